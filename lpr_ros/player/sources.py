"""What can be played: recordings as timed messages, in order of time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nav_msgs.msg import Odometry
import numpy as np
from numpy.typing import NDArray
from sensor_msgs.msg import PointCloud2

from lpr_ros.cloud_messages import cloud_message
from lpr_ros.core.bags import Bag
from lpr_ros.core.errors import BackendError, DatasetError
from lpr_ros.core.kitti_source import KittiSource, scan_files
from lpr_ros.core.packed_source import PackedSource
from lpr_ros.core.pointcloud2 import pack_cloud
from lpr_ros.core.scan_source import ScanSource, known
from lpr_ros.interfaces import interface
from lpr_ros.pose_messages import odometry_message

POINTS, ODOMETRY, GROUND_TRUTH, CLOCK = '/points', '/odometry', '/ground_truth', '/clock'
SENSOR_FRAME, ODOMETRY_FRAME, WORLD_FRAME = 'lidar', 'odom', 'world'


@dataclass(frozen=True, eq=False)
class Timed:
    """One message and when it is due."""

    time_ns: int
    topic: str
    message: Any  # a ROS message, or its bytes


class Source(Protocol):
    """A recording."""

    topics: dict[str, Any]  # message class by topic
    span_ns: tuple[int, int]  # first and last time

    def messages(self, start_ns: int, stop_ns: int) -> Iterator[Timed]:
        """Yield the messages due in [start_ns, stop_ns], in order."""


class BagSource:
    """A bag: its messages as they were recorded, bytes that nobody decodes.

    Topics whose messages are not installed here are left out; `missing` says why of each.
    """

    def __init__(self, paths: Sequence[Path]):
        self._bag = Bag(paths)
        self.topics: dict[str, Any] = {}
        self.missing: dict[str, str] = {}
        for topic in self._bag.topics:
            if topic.name == CLOCK:
                continue  # the player makes its own, which follows its rate
            try:
                self.topics[topic.name] = interface(topic.msgtype)
            except BackendError as error:
                self.missing[topic.name] = str(error)
        self.span_ns = self._bag.span_ns

    def messages(self, start_ns: int, stop_ns: int) -> Iterator[Timed]:
        """Yield the messages recorded in [start_ns, stop_ns]."""
        for raw in self._bag.walk(list(self.topics), start_ns, stop_ns + 1):
            yield Timed(raw.log_ns, raw.topic, self._bag.cdr(raw))


class ScanPlayback:
    """Scans with poses, as a driver and an odometry would have sent them."""

    def __init__(self, scans: ScanSource):
        self._scans = scans
        self._poses: dict[str, tuple[str, NDArray[np.float64]]] = {}
        if scans.has_odometry:
            self._poses[ODOMETRY] = ODOMETRY_FRAME, scans.T_odom_sensor
        if scans.has_truth:
            self._poses[GROUND_TRUTH] = WORLD_FRAME, scans.T_world_sensor
        self.topics: dict[str, Any] = dict.fromkeys(self._poses, Odometry)
        self.topics[POINTS] = PointCloud2
        self.span_ns = int(scans.stamps_ns[0]), int(scans.stamps_ns[-1])

    def messages(self, start_ns: int, stop_ns: int) -> Iterator[Timed]:
        """Yield poses and cloud of each scan in [start_ns, stop_ns]."""
        for index, stamp in enumerate(map(int, self._scans.stamps_ns)):
            if start_ns <= stamp <= stop_ns:
                for topic, (frame, T) in self._poses.items():
                    if known(T[index]):
                        message = odometry_message(stamp, frame, SENSOR_FRAME, T[index])
                        yield Timed(stamp, topic, message)
                packed = pack_cloud(self._scans.points(index))
                yield Timed(stamp, POINTS, cloud_message(stamp, SENSOR_FRAME, packed))


def open_source(paths: Sequence[Path]) -> BagSource | ScanPlayback:
    """Open a bag, a KITTI sequence (ROOT/sequences/<seq>) or packed scans (.npz)."""
    path = paths[0]
    if not path.exists():
        raise DatasetError(f'{path}: expected a bag, a KITTI sequence or a .npz, there is none')
    if path.suffix == '.npz':
        return ScanPlayback(PackedSource(path))
    if path.is_dir() and scan_files(path):
        return ScanPlayback(KittiSource(path))
    if (path / 'sequences').is_dir():
        found = sorted(str(p) for p in (path / 'sequences').iterdir())
        raise DatasetError(f'{path}: choose one of the sequences {", ".join(found)}')
    return BagSource(paths)
