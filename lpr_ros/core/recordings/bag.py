"""The scans of a bag: PointCloud2 messages with poses from a topic or a file."""

from collections.abc import Iterator, Sequence
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.io.pointcloud2 import Cloud
from lpr_ros.core.io.pose_files import read_pose_file
from lpr_ros.core.recordings.bag_index import BagIndex, decode_cloud, index_recording
from lpr_ros.core.recordings.bag_reader import Bag, BagMessage, choose_topic, is_ground_truth
from lpr_ros.core.recordings.base import (
    DEFAULT_OPTIONS,
    DriveOdometry,
    DriveTable,
    OnBad,
    Recording,
    RecordingOptions,
    RecordingScan,
    no_odometry,
    odometry_at,
    poses_at,
    printable,
    report,
    unknown_poses,
)
from lpr_ros.core.recordings.message_types import CLOUD_TYPES, POSE_TYPES
from lpr_ros.core.timing import NS_PER_S

logger = logging.getLogger(__name__)

MAX_ODOMETRY_GAP_NS = NS_PER_S  # do not interpolate across dropouts


class BagRecording(Recording):
    """The scans of one bag, read in order or by index; a split bag is a list of paths.

    Odometry comes from the pose file of the options (TUM or KITTI), or else from a topic; ground
    truth from a topic or pose file, or a topic named ground truth. Topics are found by type if
    there is only one. The extrinsic T_base_sensor defaults to /tf_static.
    """

    description = 'a bag (rosbag2 folder, .mcap, .db3, ROS 1 .bag)'

    def __init__(self, path: Path | Sequence[Path], options: RecordingOptions = DEFAULT_OPTIONS):
        self.paths = [Path(path)] if isinstance(path, str | Path) else [Path(p) for p in path]
        self._bag, self._pid = Bag(self.paths), os.getpid()
        self.cloud_topic = choose_topic(self.bag, CLOUD_TYPES, 'PointCloud2', options.points)
        needs_topic = options.use_odometry and options.poses is None
        self.odometry_topic = self._choose_odometry(options.odometry) if needs_topic else ''
        is_file = bool(options.truth) and Path(options.truth).is_file()
        self.truth_topic = '' if is_file else self._choose_truth(options.truth)
        topics = [t for t in (self.truth_topic, self.odometry_topic) if t]
        index = index_recording(
            self.bag,
            self.cloud_topic,
            topics,
            on_bad=options.on_bad,
            progress=options.progress,
        )
        self.entries = index.entries
        if not self.entries:
            raise DatasetError(f'{self.bag.label}: no message on {self.cloud_topic}')
        stamps = np.array([e.stamp_ns for e in self.entries], dtype=np.int64)
        odometry, T_world = self._poses(index, stamps, options)
        about = {
            'clouds': self.cloud_topic,
            'odometry': str(options.poses or self.odometry_topic),
            'truth': options.truth if is_file else self.truth_topic,
        }
        table = DriveTable(stamps, odometry.T, T_world, about, odometry.segments)
        super().__init__(run_name(self.paths[0]), table)

    @classmethod
    def matches(cls, path: Path) -> bool:
        """Return True: a path that no other format reads is opened as a bag."""
        return True

    def _poses(
        self, index: BagIndex, stamps: NDArray[np.int64], options: RecordingOptions
    ) -> tuple[DriveOdometry, NDArray[np.float64]]:
        """Return odometry and true poses (N, 4, 4) of the sensor at the stamps of the scans."""
        T_base_sensor, max_step_m = (
            self._extrinsic(options.T_base_sensor, index),
            options.max_step_m,
        )
        odometry, T_world = no_odometry(len(stamps)), unknown_poses(len(stamps))
        if options.poses is not None:
            odometry = odometry_at(read_pose_file(options.poses, stamps), stamps, max_step_m)
        elif self.odometry_topic:
            trajectory = index.trajectories[self.odometry_topic]
            odometry = odometry_at(trajectory, stamps, max_step_m, MAX_ODOMETRY_GAP_NS)
        if self.truth_topic:
            own = index.extrinsic(self.truth_topic) if options.T_base_sensor is None else None
            T_world = poses_at(index.trajectories[self.truth_topic], stamps)
            T_world = T_world @ (T_base_sensor if own is None else own)
        elif options.truth:
            T_world = poses_at(read_pose_file(Path(options.truth), stamps), stamps)
        return odometry @ T_base_sensor, T_world

    @property
    def bag(self) -> Bag:
        """The open bag; reopened in a worker process, as a file position cannot be shared."""
        if self._pid != os.getpid():
            self._bag, self._pid = Bag(self.paths), os.getpid()
        return self._bag

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, '_bag': None, '_pid': None}

    def points(self, index: int) -> NDArray[np.float32]:
        """Read one scan by index, meters."""
        return self._decoded(self.bag.read(self.cloud_topic, self.entries[index])).points

    def scans(self, on_bad: OnBad | None = None, *, first: int = 0) -> Iterator[RecordingScan]:
        """Yield the scans in one pass over the bag."""
        for message in self.bag.messages(self.cloud_topic, on_bad):
            if not first <= message.index < len(self):
                continue
            try:
                cloud = self._decoded(message)
            except DatasetError as error:
                report(error, on_bad)
                continue
            yield self.scan_of(message.index, cloud.points, cloud.time_s)

    def close(self) -> None:
        """Close the files."""
        self.bag.close()

    def _decoded(self, message: BagMessage) -> Cloud:
        return decode_cloud(self.bag, self.cloud_topic, message)

    def _choose_odometry(self, requested: str) -> str:
        """Return the odometry topic, '' if the bag has none."""
        has_odometry = any(
            t.msgtype in POSE_TYPES and not is_ground_truth(t.name) for t in self.bag.topics
        )
        if not (requested or has_odometry):
            return ''
        return choose_topic(self.bag, POSE_TYPES, 'odometry', requested)

    def _choose_truth(self, requested: str) -> str:
        named = [
            t.name
            for t in self.bag.topics
            if t.msgtype in POSE_TYPES
            and (t.name == requested if requested else is_ground_truth(t.name))
        ]
        if requested and not named:
            raise DatasetError(
                f'{self.bag.label}: expected {requested} to be a pose topic or a pose file'
            )
        return named[0] if len(named) == 1 else ''

    def _extrinsic(
        self, given: NDArray[np.float64] | None, index: BagIndex
    ) -> NDArray[np.float64]:
        """Return T_base_sensor as given or from /tf_static, with a warning if there is none."""
        if given is not None:
            return given
        if not self.odometry_topic:
            return np.eye(4)
        found = index.extrinsic(self.odometry_topic)
        if found is None:
            logger.warning(
                'no static transform from the base of %s to the frame of %s: using the identity',
                self.odometry_topic,
                self.cloud_topic,
            )
        return np.eye(4) if found is None else found


def run_name(path: Path) -> str:
    """Return the name of a run: the folder of its bag, or its file without suffix."""
    path = path.resolve()
    return printable(path.name if path.is_dir() else path.stem)


def require_odometry(recording: BagRecording) -> None:
    """Raise DatasetError with the topics of the bag if it has no odometry."""
    if not recording.about['odometry']:
        choose_topic(recording.bag, POSE_TYPES, 'odometry')
