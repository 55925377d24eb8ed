"""Keyframes or submaps of any recording with PointCloud2 and a source of poses."""

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.bag_scans import Progress
from lpr_ros.core.bag_source import BagSource, require_odometry
from lpr_ros.core.bags import OnBad
from lpr_ros.core.errors import DatasetError
from lpr_ros.core.keyframes import KeyframeConfig, KeyframePlanner, merge_scans, prepare
from lpr_ros.core.records import Scan
from lpr_ros.core.scan_source import known
from lpr_training.datasets.base import PlaceDataset, PlaceTable

DEFAULT_KEYFRAMES = KeyframeConfig()


class BagDataset(PlaceDataset):
    """The keyframes of one recording, one run.

    The poses come from `poses`, a TUM or KITTI file, or else from the topic `odometry`; the
    truth, where a topic `truth` (or one called ground truth) is recorded, becomes T_world_sensor,
    the odometry otherwise. Scans without them are left out and counted. Topics are found by type
    when there is only one. `T_base_sensor` places the sensor on the body that the poses follow;
    by default it is looked up in /tf_static.
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
        paths = [Path(root)] if isinstance(root, str | Path) else [Path(p) for p in root]
        self._config, self._on_bad = keyframes, on_bad
        self._source = source = BagSource(
            paths,
            points=points,
            odometry=odometry,
            truth=truth,
            poses=poses,
            T_base_sensor=T_base_sensor,
            on_bad=on_bad,
            progress=progress,
        )
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
        super().__init__(PlaceTable(T_world_sensor[chosen], stamps, runs, names))

    def _plan(
        self, stamps: NDArray[np.int64], covered: NDArray[np.bool_]
    ) -> list[tuple[int, ...]]:
        planner = KeyframePlanner(self._config)
        planned = (
            planner.add(int(stamp), self._source.T_odom_sensor[i] if covered[i] else None)
            for i, stamp in enumerate(stamps)
        )
        # A keyframe by time alone may lack a pose, and a place needs one; a recording of a
        # recording played twice has each stamp twice, and names are stamps.
        first_of: dict[int, tuple[int, ...]] = {}
        for window in planned:
            if window is not None and covered[window[-1]]:
                first_of.setdefault(int(stamps[window[-1]]), window)
        windows = list(first_of.values())
        if not windows:
            raise DatasetError(
                f'{self._source.bag.label}: expected scans within the time of {self.pose_source}'
                f'{" and " + self.truth_topic if self.truth_topic else ""}, got {len(stamps)} '
                f'scans and none with a pose'
            )
        return windows

    def points(self, index: int) -> NDArray[np.float32]:
        """Read and merge the scans of one keyframe, metres, in the frame of its last scan."""
        window = self._windows[index]
        scans = []
        for i in window:
            try:
                scans.append(self._scan(i))
            except DatasetError as error:
                if self._on_bad is None or i == window[-1]:
                    raise
                self._on_bad(error)  # one bad scan does not spoil a submap
        return merge_scans(scans, self._config.submap_voxel_m).points

    def _scan(self, i: int) -> Scan:
        """Read one scan; the windows of keyframes overlap, so the recent ones are kept."""
        if i not in self._recent:
            scan = self._source.scan_of(i, self._source.points(i)).scan
            self._recent[i] = prepare(scan, self._config)
            while len(self._recent) > self._config.submap_scans:
                self._recent.popitem(last=False)
        return self._recent[i]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, '_recent': OrderedDict()}
