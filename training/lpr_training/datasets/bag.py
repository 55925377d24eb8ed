"""Keyframes or submaps of any recording with PointCloud2 and a source of poses."""

from collections import OrderedDict
from collections.abc import Sequence
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.bag_scans import (
    CLOUD_TYPES,
    POSE_TYPES,
    Progress,
    Recording,
    decode_scan,
    index_recording,
)
from lpr_ros.core.bags import Bag, Entry, OnBad, choose_topic, is_ground_truth
from lpr_ros.core.errors import DatasetError
from lpr_ros.core.files import read_text
from lpr_ros.core.geometry import Trajectory
from lpr_ros.core.keyframes import KeyframeConfig, KeyframePlanner, merge_scans, prepare
from lpr_ros.core.poses import read_kitti_poses, read_tum
from lpr_ros.core.records import Scan
from lpr_training.datasets.base import PlaceDataset, PlaceTable

logger = logging.getLogger(__name__)

DEFAULT_KEYFRAMES = KeyframeConfig()
MAX_ODOMETRY_GAP_NS = 1_000_000_000  # a longer silence is a failure: no pose is made up in it


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
        self._paths = [Path(root)] if isinstance(root, str | Path) else [Path(p) for p in root]
        self._config, self._on_bad = keyframes, on_bad
        self._bag, self._pid = Bag(self._paths), os.getpid()
        self.cloud_topic = choose_topic(self._bag, CLOUD_TYPES, 'PointCloud2', points)
        self.pose_source = str(poses or choose_topic(self._bag, POSE_TYPES, 'odometry', odometry))
        self.truth_topic = self._choose_truth(truth)
        topics = [self.truth_topic] if self.truth_topic else []
        topics += [self.pose_source] if poses is None else []
        recording = index_recording(
            self._bag, self.cloud_topic, topics, on_bad=on_bad, progress=progress
        )
        self._entries = recording.entries
        if not self._entries:
            raise DatasetError(f'{self._bag.label}: no message on {self.cloud_topic}')
        stamps = np.array([e.stamp_ns for e in self._entries], dtype=np.int64)
        extrinsic = self._extrinsic(T_base_sensor, recording, poses)
        T, covered = self._odometry(recording, poses, stamps)
        self._T_odom_sensor = T_world_sensor = T @ extrinsic
        if self.truth_topic:
            mount = recording.extrinsic(self.truth_topic) if T_base_sensor is None else None
            T, known = recording.trajectories[self.truth_topic].sample(stamps)
            T_world_sensor, covered = T @ (extrinsic if mount is None else mount), covered & known
        self.without_pose = int((~covered).sum())
        self._windows = self._plan(stamps, covered)
        self._recent: OrderedDict[int, Scan] = OrderedDict()
        chosen = np.array([w[-1] for w in self._windows], dtype=np.int64)
        runs, names = (run_name(self._paths[0]),) * len(chosen), tuple(map(str, stamps[chosen]))
        super().__init__(PlaceTable(T_world_sensor[chosen], stamps[chosen], runs, names))

    def _odometry(
        self, recording: Recording, poses: Path | None, stamps: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the pose of each scan's body and whether it has one."""
        if poses is not None:
            return read_pose_file(poses, self._entries).sample(stamps)
        return recording.trajectories[self.pose_source].sample(stamps, MAX_ODOMETRY_GAP_NS)

    def _extrinsic(
        self, given: NDArray[np.float64] | None, recording: Recording, poses: Path | None
    ) -> NDArray[np.float64]:
        if given is not None:
            return given
        if poses is not None:
            return np.eye(4)
        found = recording.extrinsic(self.pose_source)
        if found is None:
            logger.warning(
                'no transform from the body of %s to the frame of %s: taken to be the same',
                self.pose_source,
                self.cloud_topic,
            )
        return np.eye(4) if found is None else found

    def _plan(
        self, stamps: NDArray[np.int64], covered: NDArray[np.bool_]
    ) -> list[tuple[int, ...]]:
        planner = KeyframePlanner(self._config)
        planned = (
            planner.add(int(stamp), self._T_odom_sensor[i] if covered[i] else None)
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
                f'{self._bag.label}: expected scans within the time of {self.pose_source}'
                f'{" and " + self.truth_topic if self.truth_topic else ""}, got {len(stamps)} '
                f'scans and none with a pose'
            )
        return windows

    def _choose_truth(self, asked: str) -> str:
        named = [
            t.name
            for t in self._bag.topics
            if t.msgtype in POSE_TYPES and (t.name == asked if asked else is_ground_truth(t.name))
        ]
        if asked and not named:
            raise DatasetError(f'{self._bag.label}: expected {asked} to be a pose topic')
        return named[0] if len(named) == 1 else ''

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
            bag = self._own_bag()
            message = bag.read(self.cloud_topic, self._entries[i])
            scan = decode_scan(bag, self.cloud_topic, message, self._T_odom_sensor[i])
            self._recent[i] = prepare(scan, self._config)
            while len(self._recent) > self._config.submap_scans:
                self._recent.popitem(last=False)
        return self._recent[i]

    def _own_bag(self) -> Bag:
        """Open the recording anew in a worker: processes must not share a file position."""
        if self._pid != os.getpid():
            self._bag, self._pid = Bag(self._paths), os.getpid()
        return self._bag

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, '_bag': None, '_pid': None, '_recent': OrderedDict()}


def run_name(path: Path) -> str:
    """Return what the run of a recording is called: its folder, or its file without suffix."""
    path = path.resolve()
    return path.name if path.is_dir() else path.stem


def read_pose_file(path: Path, entries: Sequence[Entry]) -> Trajectory:
    """Read a TUM file, or a KITTI file that has one pose per cloud."""
    path = Path(path)
    lines = read_text(path, 'a TUM or KITTI pose file').splitlines()
    first = next((line for line in lines if line and line[0] != '#'), '')
    if len(first.replace(',', ' ').split()) != 12:
        return read_tum(path)
    T = read_kitti_poses(path)
    if len(T) != len(entries):
        raise DatasetError(
            f'{path}: expected one pose for each of the {len(entries)} clouds, got {len(T)}'
        )
    return Trajectory.from_unordered([e.stamp_ns for e in entries], T)
