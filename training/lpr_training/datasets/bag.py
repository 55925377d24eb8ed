"""Keyframes or submaps of a bag with PointCloud2 messages and poses."""

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.recordings.bag import BagRecording, require_odometry
from lpr_ros.core.recordings.base import OnBad, Progress, RecordingOptions, known
from lpr_ros.core.retrieval.keyframing import KeyframeConfig, KeyframePlanner, merge_scans, prepare
from lpr_ros.core.types import Scan
from lpr_training.datasets.base import DatasetTable, PlaceDataset

DEFAULT_KEYFRAMES = KeyframeConfig()


class BagDataset(PlaceDataset):
    """The keyframes of one bag, as one run.

    Poses come from `poses`, a TUM or KITTI file, or from the topic `odometry`. T_world_sensor is
    the ground truth if the topic `truth` (or one named ground_truth) is recorded, else the
    odometry. Scans without a pose are skipped and counted. Topics are found by type if there is
    only one candidate. `T_base_sensor` is the pose of the sensor in the base frame of the
    poses, by default from /tf_static.
    """

    def __init__(
        self,
        root: Path | Sequence[Path],
        *,
        points: str = '',
        odometry: str = '',
        truth: str = '',
        poses: Path | None = None,
        T_base_sensor: NDArray[np.float64] | None = None,
        keyframes: KeyframeConfig = DEFAULT_KEYFRAMES,
        on_bad: OnBad | None = None,
        progress: Progress = lambda messages, total: messages,
    ):
        self._config, self._on_bad = keyframes, on_bad
        options = RecordingOptions(
            points=points,
            odometry=odometry,
            truth=truth,
            poses=poses,
            T_base_sensor=T_base_sensor,
            on_bad=on_bad,
            progress=progress,
        )
        self._source = source = BagRecording(root, options)
        require_odometry(source)
        self.cloud_topic, self.truth_topic = source.cloud_topic, source.truth_topic
        self.pose_source = source.about['odometry']
        covered = known(source.T_odom_sensor)
        T_world_sensor = source.T_odom_sensor
        if source.has_truth:
            T_world_sensor, covered = source.T_world_sensor, covered & known(source.T_world_sensor)
        self.without_pose = int((~covered).sum())
        self._windows = self._plan(source.stamps_ns, covered)
        self._recent: OrderedDict[int, Scan] = OrderedDict()
        chosen = np.array([w[-1] for w in self._windows], dtype=np.int64)
        stamps = source.stamps_ns[chosen]
        runs, names = (source.name,) * len(chosen), tuple(map(str, stamps))
        super().__init__(DatasetTable(T_world_sensor[chosen], stamps, runs, names))

    def _plan(
        self, stamps: NDArray[np.int64], covered: NDArray[np.bool_]
    ) -> list[tuple[int, ...]]:
        planner = KeyframePlanner(self._config)
        planned = (
            planner.add(int(stamp), self._source.T_odom_sensor[i] if covered[i] else None)
            for i, stamp in enumerate(stamps)
        )
        # Keyframes by time interval may lack a pose. A bag of a drive that was played twice has
        # every stamp twice, but stamps name places and must be unique.
        first_of: dict[int, tuple[int, ...]] = {}
        for window in planned:
            if window is not None and covered[window[-1]]:
                first_of.setdefault(int(stamps[window[-1]]), window)
        windows = list(first_of.values())
        if not windows:
            raise DatasetError(
                f'{self._source.bag.label}: none of {len(stamps)} scans has a pose; expected '
                f'scans within the time range of {self.pose_source}'
                f'{" and " + self.truth_topic if self.truth_topic else ""}'
            )
        return windows

    def points(self, index: int) -> NDArray[np.float32]:
        """Return the merged scans of one keyframe in meters, in the frame of its last scan."""
        window = self._windows[index]
        scans = []
        for i in window:
            try:
                scans.append(self._scan(i))
            except DatasetError as error:
                if self._on_bad is None or i == window[-1]:
                    raise
                self._on_bad(error)  # a submap does without one of its scans
        return merge_scans(scans, self._config.submap_voxel_m).points

    def _scan(self, i: int) -> Scan:
        """Read one scan, cached because the windows of keyframes overlap."""
        if i not in self._recent:
            scan = self._source.scan_of(i, self._source.points(i)).scan
            self._recent[i] = prepare(scan, self._config)
            while len(self._recent) > self._config.submap_scans:
                self._recent.popitem(last=False)
        return self._recent[i]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, '_recent': OrderedDict()}
