"""The scans of a recording with PointCloud2 and, where there are any, poses."""

from collections.abc import Iterator, Sequence
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
from lpr_ros.core.bags import Bag, BagMessage, OnBad, choose_topic, is_ground_truth, report
from lpr_ros.core.clock import NS_PER_S
from lpr_ros.core.errors import DatasetError
from lpr_ros.core.scan_source import (
    DriveTable,
    ScanSource,
    SourceScan,
    poses_at,
    read_pose_file,
    unknown_poses,
)

logger = logging.getLogger(__name__)

MAX_ODOMETRY_GAP_NS = NS_PER_S  # a longer silence is a failure: no pose is made up in it


class BagSource(ScanSource):
    """One recording, read in order or scan by scan.

    The odometry comes from `poses`, a TUM or KITTI file, or else from the topic `odometry`; the
    truth from the topic or pose file `truth`, or a topic called ground truth. Topics are found by
    type when there is only one. `T_base_sensor` places the sensor on the body that the poses
    follow; by default it is looked up in /tf_static.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        points: str = '',
        odometry: str = '',
        truth: str = '',
        poses: Path | None = None,
        T_base_sensor: NDArray[np.float64] | None = None,
        on_bad: OnBad | None = None,
        progress: Progress = lambda messages, total: messages,
    ):
        self.paths = [Path(p) for p in paths]
        self._bag, self._pid = Bag(self.paths), os.getpid()
        self.cloud_topic = choose_topic(self.bag, CLOUD_TYPES, 'PointCloud2', points)
        self.odometry_topic = self._choose_odometry(odometry) if poses is None else ''
        truth_file = Path(truth) if truth and Path(truth).is_file() else None
        self.truth_topic = '' if truth_file else self._choose_truth(truth)
        topics = [t for t in (self.truth_topic, self.odometry_topic) if t]
        recording = index_recording(
            self.bag, self.cloud_topic, topics, on_bad=on_bad, progress=progress
        )
        self.entries = recording.entries
        if not self.entries:
            raise DatasetError(f'{self.bag.label}: no message on {self.cloud_topic}')
        stamps = np.array([e.stamp_ns for e in self.entries], dtype=np.int64)
        mount = self._extrinsic(T_base_sensor, recording)
        T_odom, T_world = unknown_poses(len(stamps)), unknown_poses(len(stamps))
        if poses is not None:
            T_odom = poses_at(read_pose_file(poses, stamps), stamps) @ mount
        elif self.odometry_topic:
            trajectory = recording.trajectories[self.odometry_topic]
            T_odom = poses_at(trajectory, stamps, MAX_ODOMETRY_GAP_NS) @ mount
        if truth_file is not None:
            T_world = poses_at(read_pose_file(truth_file, stamps), stamps)
        elif self.truth_topic:
            own = recording.extrinsic(self.truth_topic) if T_base_sensor is None else None
            T_world = poses_at(recording.trajectories[self.truth_topic], stamps)
            T_world = T_world @ (mount if own is None else own)
        about = {
            'clouds': self.cloud_topic,
            'odometry': str(poses or self.odometry_topic),
            'truth': str(truth_file or self.truth_topic),
        }
        super().__init__(run_name(self.paths[0]), DriveTable(stamps, T_odom, T_world, about))

    @property
    def bag(self) -> Bag:
        """The open recording; opened anew in a worker, as processes must not share a position."""
        if self._pid != os.getpid():
            self._bag, self._pid = Bag(self.paths), os.getpid()
        return self._bag

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, '_bag': None, '_pid': None}

    def points(self, index: int) -> NDArray[np.float32]:
        """Read one scan from anywhere in the recording, metres."""
        return self._decoded(self.bag.read(self.cloud_topic, self.entries[index]))

    def scans(self, on_bad: OnBad | None = None, *, first: int = 0) -> Iterator[SourceScan]:
        """Yield the scans in one pass over the recording."""
        for message in self.bag.messages(self.cloud_topic, on_bad):
            if not first <= message.index < len(self):
                continue
            try:
                points = self._decoded(message)
            except DatasetError as error:
                report(error, on_bad)
                continue
            yield self.scan_of(message.index, points)

    def close(self) -> None:
        """Close the files."""
        self.bag.close()

    def _decoded(self, message: BagMessage) -> NDArray[np.float32]:
        return decode_scan(self.bag, self.cloud_topic, message, None).points

    def _choose_odometry(self, asked: str) -> str:
        """Return the topic of the odometry, or '' where the recording has none."""
        there = any(
            t.msgtype in POSE_TYPES and not is_ground_truth(t.name) for t in self.bag.topics
        )
        if not (asked or there):
            return ''
        return choose_topic(self.bag, POSE_TYPES, 'odometry', asked)

    def _choose_truth(self, asked: str) -> str:
        named = [
            t.name
            for t in self.bag.topics
            if t.msgtype in POSE_TYPES and (t.name == asked if asked else is_ground_truth(t.name))
        ]
        if asked and not named:
            raise DatasetError(
                f'{self.bag.label}: expected {asked} to be a pose topic or a pose file'
            )
        return named[0] if len(named) == 1 else ''

    def _extrinsic(
        self, given: NDArray[np.float64] | None, recording: Recording
    ) -> NDArray[np.float64]:
        """Return the sensor on the body of the odometry, as given or as recorded."""
        if given is not None:
            return given
        if not self.odometry_topic:
            return np.eye(4)
        found = recording.extrinsic(self.odometry_topic)
        if found is None:
            logger.warning(
                'no transform from the body of %s to the frame of %s: taken to be the same',
                self.odometry_topic,
                self.cloud_topic,
            )
        return np.eye(4) if found is None else found


def run_name(path: Path) -> str:
    """Return what the run of a recording is called: its folder, or its file without suffix."""
    path = path.resolve()
    return path.name if path.is_dir() else path.stem


def require_odometry(source: BagSource) -> None:
    """Raise, listing what there is, where a recording has no poses at all."""
    if not source.about['odometry']:
        choose_topic(source.bag, POSE_TYPES, 'odometry')


