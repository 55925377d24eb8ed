"""Recordings: rosbag2 (mcap, sqlite3, zstd) and ROS 1 bags, read through `rosbags`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rosbags.highlevel import AnyReader
from rosbags.typesys import Stores, get_typestore

from lpr_ros.core.errors import CloudError, DatasetError
from lpr_ros.core.geometry import Trajectory, pose_from_quaternion
from lpr_ros.core.pointcloud2 import read_cloud, stamp_ns
from lpr_ros.core.records import Scan

CLOUD_TYPE = 'sensor_msgs/msg/PointCloud2'
POSE_TYPES = (
    'nav_msgs/msg/Odometry',
    'geometry_msgs/msg/PoseWithCovarianceStamped',
    'geometry_msgs/msg/PoseStamped',
)
OnBad = Callable[[DatasetError], None]


@dataclass(frozen=True)
class Topic:
    """One topic of a recording."""

    name: str
    msgtype: str
    count: int


@dataclass(frozen=True)
class BagMessage:
    """One message: its number on its topic, when it was recorded, and what it says."""

    index: int
    log_ns: int
    content: Any


class Bag:
    """One recording (a folder, a file, or the parts of a split one), open for reading."""

    def __init__(self, paths: Sequence[Path]):
        self.paths = tuple(Path(p) for p in paths)
        self.label = ', '.join(map(str, self.paths))
        # Bags of distributions before Iron do not carry their message definitions.
        store = get_typestore(Stores.ROS2_HUMBLE)
        try:
            self._reader = AnyReader(list(self.paths), default_typestore=store)
            self._reader.open()
        except Exception as error:  # a damaged file makes the parsers raise anything
            raise DatasetError(
                f'{self.label}: expected a rosbag2 folder, an .mcap, .db3 or ROS 1 .bag file: '
                f'{error or type(error).__name__}'
            ) from error

    def __enter__(self) -> 'Bag':
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        self._reader.close()

    @property
    def topics(self) -> list[Topic]:
        """List the topics by name."""
        return [
            Topic(name, str(info.msgtype), int(info.msgcount))
            for name, info in sorted(self._reader.topics.items())
        ]

    def messages(
        self,
        topic: str,
        *,
        start_ns: int | None = None,
        stop_ns: int | None = None,
        on_bad: OnBad | None = None,
    ) -> Iterator[BagMessage]:
        """Yield the messages of one topic recorded in [start_ns, stop_ns).

        A message that cannot be read goes to on_bad, or stops the reading.
        """
        for index, log_ns, raw, msgtype in self.raw_messages(topic, start_ns, stop_ns):
            try:
                content = self._reader.deserialize(raw, msgtype)
            except Exception as error:  # as above
                report(
                    DatasetError(
                        f'{self.label}: message {index} of {topic}: expected a {msgtype}: {error}'
                    ),
                    on_bad,
                )
                continue
            yield BagMessage(index, log_ns, content)

    def raw_messages(
        self, topic: str, start_ns: int | None = None, stop_ns: int | None = None
    ) -> Iterator[tuple[int, int, bytes, str]]:
        """Yield (number, record time, bytes, type) without decoding."""
        connections = [c for c in self._reader.connections if c.topic == topic]
        if not connections:
            raise DatasetError(
                f'{self.label}: no topic {topic}; there are {[t.name for t in self.topics]}'
            )
        index = 0
        try:
            for connection, log_ns, raw in self._reader.messages(connections, start_ns, stop_ns):
                yield index, log_ns, raw, connection.msgtype
                index += 1
        except GeneratorExit:
            raise
        except Exception as error:
            raise DatasetError(
                f'{self.label}: after message {index} of {topic} the file cannot be read: '
                f'{error or type(error).__name__}'
            ) from error


def choose_topic(bag: Bag, types: Iterable[str], what: str, asked: str = '') -> str:
    """Return the topic asked for, or the only one of these types; else list what there is.

    A topic called ground truth is for evaluation and is chosen only when asked for.
    """
    accepted = tuple(types)
    found = [t for t in bag.topics if t.msgtype in accepted]
    if asked:
        if asked in [t.name for t in found]:
            return asked
        raise DatasetError(
            f'{bag.label}: expected {asked} to be a {what} topic; {_listing(bag, found, what)}'
        )
    candidates = [t for t in found if not is_ground_truth(t.name)]
    if len(candidates) == 1:
        return candidates[0].name
    raise DatasetError(f'{bag.label}: {_listing(bag, candidates, what)}')


def is_ground_truth(topic: str) -> bool:
    """Tell by its name whether a topic holds the truth instead of an estimate."""
    return 'ground_truth' in topic or 'groundtruth' in topic


def _listing(bag: Bag, found: list[Topic], what: str) -> str:
    if found:
        names = ', '.join(f'{t.name} ({t.msgtype}, {t.count} messages)' for t in found)
        return f'choose one of the {what} topics: {names}'
    names = ', '.join(f'{t.name} ({t.msgtype})' for t in bag.topics) or 'no topics'
    return f'no {what} topic; the recording has {names}'


def read_trajectory(bag: Bag, topic: str, on_bad: OnBad | None = None) -> Trajectory:
    """Read the poses of an odometry or pose topic, by their header stamps."""
    stamps: list[int] = []
    values: list[tuple[float, ...]] = []
    for message in bag.messages(topic, on_bad=on_bad):
        pose = message.content.pose
        pose = getattr(pose, 'pose', pose)  # PoseStamped has one level less
        p, q = pose.position, pose.orientation
        row = (p.x, p.y, p.z, q.x, q.y, q.z, q.w)
        if not np.isfinite(row).all() or np.linalg.norm(row[3:]) < 1e-6:
            report(
                DatasetError(
                    f'{bag.label}: message {message.index} of {topic}: expected a finite pose '
                    f'and a unit quaternion, got {row}'
                ),
                on_bad,
            )
            continue
        stamps.append(stamp_ns(message.content.header))
        values.append(row)
    if not stamps:
        raise DatasetError(f'{bag.label}: expected poses on {topic}, got no message')
    table = np.array(values)
    return Trajectory.from_unordered(stamps, pose_from_quaternion(table[:, :3], table[:, 3:]))


def read_scans(
    bag: Bag,
    topic: str,
    odometry: Trajectory | None = None,
    *,
    T_base_sensor: NDArray[np.float64] | None = None,
    on_bad: OnBad | None = None,
) -> Iterator[Scan]:
    """Yield the scans of a cloud topic, each with the odometry interpolated at its stamp.

    T_base_sensor places the sensor on the body the odometry follows (the same by default). A scan
    outside the odometry has the pose None.
    """
    for message in bag.messages(topic, on_bad=on_bad):
        scan = decode_scan(bag, topic, message, odometry, T_base_sensor, on_bad)
        if scan is not None:
            yield scan


def decode_scan(
    bag: Bag,
    topic: str,
    message: BagMessage,
    odometry: Trajectory | None = None,
    T_base_sensor: NDArray[np.float64] | None = None,
    on_bad: OnBad | None = None,
) -> Scan | None:
    """Turn one PointCloud2 message into a Scan; None when it was bad and on_bad took it."""
    try:
        points = read_cloud(message.content).points
    except CloudError as error:
        report(DatasetError(f'{bag.label}: message {message.index} of {topic}: {error}'), on_bad)
        return None
    stamp = stamp_ns(message.content.header)
    T_odom_base = odometry.at(stamp) if odometry is not None else None
    if T_odom_base is not None and T_base_sensor is not None:
        T_odom_base = T_odom_base @ T_base_sensor
    return Scan(points, stamp, T_odom_base)


def report(error: DatasetError, on_bad: OnBad | None) -> None:
    """Hand bad input to on_bad, or raise it."""
    if on_bad is None:
        raise error
    on_bad(error)
