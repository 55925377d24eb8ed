"""Recordings as streams of timed ROS messages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nav_msgs.msg import Odometry
import numpy as np
from numpy.typing import NDArray
from sensor_msgs.msg import PointCloud2

from lpr_ros.conversions.clouds import cloud_message
from lpr_ros.conversions.poses import odometry_message
from lpr_ros.core.errors import InterfaceError
from lpr_ros.core.io.pointcloud2 import pack_cloud
from lpr_ros.core.recordings.bag import BagRecording
from lpr_ros.core.recordings.bag_reader import Bag
from lpr_ros.core.recordings.base import Recording, known
from lpr_ros.core.recordings.open import open_recording, recording_format
from lpr_ros.ros_utils.optional_interfaces import interface

POINTS, ODOMETRY, GROUND_TRUTH, CLOCK = '/points', '/odometry', '/ground_truth', '/clock'
SENSOR_FRAME, ODOMETRY_FRAME, WORLD_FRAME = 'lidar', 'odom', 'world'


@dataclass(frozen=True, eq=False)
class TimedMessage:
    """A message and the time at which to publish it."""

    time_ns: int
    topic: str
    message: Any  # a ROS message, or its serialization


class Playback(Protocol):
    """A recording that can be played."""

    topics: dict[str, Any]  # message class by topic
    missing: dict[str, str]  # topics that cannot be published, with the reason
    span_ns: tuple[int, int]  # first and last time

    def messages(self, start_ns: int, stop_ns: int) -> Iterator[TimedMessage]:
        """Yield the messages due in [start_ns, stop_ns], in order."""


class BagPlayback:
    """The messages of a bag as recorded, not decoded.

    Topics whose message packages are not installed are in `missing`.
    """

    def __init__(self, paths: Sequence[Path]):
        self._bag = Bag(paths)
        self.topics: dict[str, Any] = {}
        self.missing: dict[str, str] = {}
        for topic in self._bag.topics:
            if topic.name == CLOCK:
                continue  # the player publishes its own clock, scaled by the rate
            try:
                self.topics[topic.name] = interface(topic.msgtype)
            except InterfaceError as error:
                self.missing[topic.name] = str(error)
        self.span_ns = self._bag.span_ns

    def messages(self, start_ns: int, stop_ns: int) -> Iterator[TimedMessage]:
        """Yield the messages recorded in [start_ns, stop_ns]."""
        for raw in self._bag.walk(list(self.topics), start_ns, stop_ns + 1):
            yield TimedMessage(raw.log_ns, raw.topic, self._bag.cdr(raw))


class ScanPlayback:
    """Scans and poses as messages of a LiDAR driver and an odometry node."""

    def __init__(self, recording: Recording):
        self._recording = recording
        self._poses: dict[str, tuple[str, NDArray[np.float64]]] = {}
        if recording.has_odometry:
            self._poses[ODOMETRY] = ODOMETRY_FRAME, recording.T_odom_sensor
        if recording.has_truth:
            self._poses[GROUND_TRUTH] = WORLD_FRAME, recording.T_world_sensor
        self.topics: dict[str, Any] = dict.fromkeys(self._poses, Odometry)
        self.topics[POINTS] = PointCloud2
        self.missing: dict[str, str] = {}
        self.span_ns = int(recording.stamps_ns[0]), int(recording.stamps_ns[-1])

    def messages(self, start_ns: int, stop_ns: int) -> Iterator[TimedMessage]:
        """Yield the poses and the cloud of each scan in [start_ns, stop_ns]."""
        for index, stamp in enumerate(map(int, self._recording.stamps_ns)):
            if start_ns <= stamp <= stop_ns:
                for topic, (frame, T) in self._poses.items():
                    if known(T[index]):
                        message = odometry_message(stamp, frame, SENSOR_FRAME, T[index])
                        yield TimedMessage(stamp, topic, message)
                packed = pack_cloud(self._recording.points(index))
                yield TimedMessage(stamp, POINTS, cloud_message(stamp, SENSOR_FRAME, packed))


def open_playback(paths: Sequence[Path]) -> Playback:
    """Open a recording for playback; several paths are the parts of a split bag.

    A bag plays all of its topics; other recordings play clouds, odometry and ground truth.
    """
    if issubclass(recording_format(paths[0]), BagRecording):
        return BagPlayback(paths)
    return ScanPlayback(open_recording(paths[0]))
