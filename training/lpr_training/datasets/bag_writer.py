"""Write scans as a rosbag2 with PointCloud2, odometry and ground truth."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from lpr_ros.core.files import scratch_folder
from lpr_ros.core.geometry.se3 import quaternion_from_pose
from lpr_ros.core.io.pointcloud2 import pack_cloud
from lpr_ros.core.timing import NS_PER_S
from lpr_training.datasets.base import RecordedScan

CLOCK_PERIOD_NS = 10_000_000
BAG_VERSION: Literal[8] = 8  # the older of the two supported versions, readable by more players
SENSOR_FRAME = 'lidar'


@dataclass(frozen=True)
class BagTopics:
    """Topic names of a written bag."""

    points: str = '/points'
    odometry: str = '/odometry'
    ground_truth: str = '/ground_truth'
    clock: str = '/clock'


DEFAULT_TOPICS = BagTopics()


def write_bag(
    path: Path,
    scans: Iterable[RecordedScan],
    *,
    clock: bool = False,
    topics: BagTopics = DEFAULT_TOPICS,
    storage: str = 'mcap',
    compression: str = 'none',
) -> None:
    """Write scans in time order as a rosbag2 folder, atomically.

    Poses are those of the sensor: odom -> lidar and world -> lidar. `clock` adds /clock at
    100 Hz. `compression` is none, message or file (zstd).
    """
    path = Path(path)
    with scratch_folder(path) as aside:
        writer = Writer(
            aside / path.name,
            version=BAG_VERSION,
            storage_plugin=StoragePlugin[storage.upper()],
        )
        if compression != 'none':
            writer.set_compression(CompressionMode[compression.upper()], CompressionFormat.ZSTD)
        with writer:
            _write(writer, scans, topics, clock)
        (aside / path.name).replace(path)


def _write(writer: Writer, scans: Iterable[RecordedScan], topics: BagTopics, clock: bool) -> None:
    messages = Messages()
    types = {
        topics.points: 'sensor_msgs/msg/PointCloud2',
        topics.odometry: 'nav_msgs/msg/Odometry',
        topics.ground_truth: 'nav_msgs/msg/Odometry',
        **({topics.clock: 'rosgraph_msgs/msg/Clock'} if clock else {}),
    }
    connections = {
        topic: writer.add_connection(topic, msgtype, typestore=messages.store)
        for topic, msgtype in types.items()
    }
    previous_ns: int | None = None
    for scan in scans:
        stamp = scan.stamp_ns
        sent = [
            (topics.odometry, messages.odometry(stamp, 'odom', scan.T_odom_sensor)),
            (topics.ground_truth, messages.odometry(stamp, 'world', scan.T_world_sensor)),
            (topics.points, messages.cloud(scan)),
        ]
        if clock:
            for tick in _ticks(previous_ns, stamp):
                data = messages.serialize(messages.clock(tick))
                writer.write(connections[topics.clock], tick, data)
        for topic, message in sent:
            writer.write(connections[topic], stamp, messages.serialize(message))
        previous_ns = stamp


def _ticks(previous_ns: int | None, stamp_ns: int) -> Iterator[int]:
    """Yield the clock stamps after one scan up to the next."""
    if previous_ns is not None:
        yield from range(previous_ns + CLOCK_PERIOD_NS, stamp_ns, CLOCK_PERIOD_NS)
    yield stamp_ns


@cache
def _types() -> Any:
    return get_typestore(Stores.ROS2_HUMBLE)


class Messages:
    """Builds and serializes messages with the type definitions of `rosbags`."""

    def __init__(self) -> None:
        self.store = _types()

    def serialize(self, message: Any) -> memoryview:
        """Return the CDR bytes of a message."""
        return self.store.serialize_cdr(message, message.__msgtype__)

    def cloud(self, scan: RecordedScan) -> Any:
        """Return the PointCloud2 message of a scan."""
        packed = pack_cloud(scan.points, scan.intensity, scan.ring, scan.time_s)
        field = self._type('sensor_msgs/msg/PointField')
        return self._type('sensor_msgs/msg/PointCloud2')(
            header=self._header(scan.stamp_ns, SENSOR_FRAME),
            height=1,
            width=packed.width,
            fields=[field(name, offset, code, 1) for name, offset, code in packed.fields],
            is_bigendian=False,
            point_step=packed.point_step,
            row_step=packed.point_step * packed.width,
            data=np.frombuffer(packed.data, dtype=np.uint8),
            is_dense=True,
        )

    def odometry(self, stamp_ns: int, frame: str, T_frame_sensor: NDArray[np.float64]) -> Any:
        """Return an Odometry message with only a pose."""
        geometry = 'geometry_msgs/msg/'
        position = self._type(geometry + 'Point')(*map(float, T_frame_sensor[:3, 3]))
        orientation = self._type(geometry + 'Quaternion')(
            *map(float, quaternion_from_pose(T_frame_sensor))
        )
        pose = self._type(geometry + 'Pose')(position, orientation)
        vector = self._type(geometry + 'Vector3')
        twist = self._type(geometry + 'Twist')(vector(0.0, 0.0, 0.0), vector(0.0, 0.0, 0.0))
        return self._type('nav_msgs/msg/Odometry')(
            header=self._header(stamp_ns, frame),
            child_frame_id=SENSOR_FRAME,
            pose=self._type(geometry + 'PoseWithCovariance')(pose, np.zeros(36)),
            twist=self._type(geometry + 'TwistWithCovariance')(twist, np.zeros(36)),
        )

    def clock(self, stamp_ns: int) -> Any:
        """Return a Clock message."""
        return self._type('rosgraph_msgs/msg/Clock')(clock=self._time(stamp_ns))

    def _header(self, stamp_ns: int, frame: str) -> Any:
        return self._type('std_msgs/msg/Header')(stamp=self._time(stamp_ns), frame_id=frame)

    def _time(self, stamp_ns: int) -> Any:
        return self._type('builtin_interfaces/msg/Time')(*divmod(stamp_ns, NS_PER_S))

    def _type(self, name: str) -> Any:
        return self.store.types[name]
