"""Scans, trajectories and sensor mounts out of a recording."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.bags import Bag, BagMessage, Entry, OnBad, RawMessage, report
from lpr_ros.core.errors import CloudError, DatasetError
from lpr_ros.core.geometry import Trajectory, invert, pose_from_quaternion
from lpr_ros.core.pointcloud2 import read_cloud, stamp_ns
from lpr_ros.core.records import Scan

CLOUD_TYPES = ('sensor_msgs/msg/PointCloud2',)
POSE_TYPES = (
    'nav_msgs/msg/Odometry',
    'geometry_msgs/msg/PoseWithCovarianceStamped',
    'geometry_msgs/msg/PoseStamped',
)
STATIC_TRANSFORMS = '/tf_static'
Progress = Callable[[Iterable[RawMessage], int], Iterable[RawMessage]]
Links = dict[str, dict[str, NDArray[np.float64]]]  # frame -> its neighbours: T_frame_neighbour


@dataclass(frozen=True, eq=False)
class Recording:
    """What one pass over a bag finds; the clouds are left undecoded."""

    entries: list[Entry]  # of the clouds
    cloud_frame: str
    trajectories: dict[str, Trajectory]  # by topic
    body_frames: dict[str, str]  # by topic: what the poses are of; '' where they do not say
    links: Links  # static transforms

    def extrinsic(self, pose_topic: str) -> NDArray[np.float64] | None:
        """Return T_base_sensor, from the body a topic follows to the sensor; None if unknown."""
        base = self.body_frames[pose_topic]
        if not base or not self.cloud_frame:
            return None
        return _chain(self.links, base, self.cloud_frame)


def index_recording(
    bag: Bag,
    cloud_topic: str,
    pose_topics: Sequence[str],
    *,
    on_bad: OnBad | None = None,
    progress: Progress = lambda messages, total: messages,
) -> Recording:
    """Read poses and static transforms and note where the clouds are, in a single pass."""
    counts = {t.name: t.count for t in bag.topics}
    topics = [cloud_topic, *dict.fromkeys(pose_topics)]
    if STATIC_TRANSFORMS in counts:
        topics.append(STATIC_TRANSFORMS)
    total = sum(counts.get(t, 0) for t in topics)
    poses = {topic: _PoseRows(bag, topic) for topic in pose_topics}
    entries: list[Entry] = []
    links: Links = {}
    cloud_frame = ''
    for raw in progress(_until_damaged(bag, topics, on_bad), total):
        try:
            if raw.topic == cloud_topic:
                entries.append(bag.entry_of(raw, entries[-1] if entries else None))
                if not cloud_frame:
                    cloud_frame = _frame(bag.decode(raw).content.header.frame_id)
            elif raw.topic == STATIC_TRANSFORMS:
                _add_links(links, bag.decode(raw).content.transforms)
            else:
                poses[raw.topic].add(bag.decode(raw))
        except DatasetError as error:
            report(error, on_bad)
    return Recording(
        entries,
        cloud_frame,
        {topic: rows.trajectory() for topic, rows in poses.items()},
        {topic: rows.body_frame for topic, rows in poses.items()},
        links,
    )


def read_trajectory(bag: Bag, topic: str, on_bad: OnBad | None = None) -> Trajectory:
    """Read the poses of an odometry or pose topic, by their header stamps."""
    rows = _PoseRows(bag, topic)
    for message in bag.messages(topic, on_bad):
        try:
            rows.add(message)
        except DatasetError as error:
            report(error, on_bad)
    return rows.trajectory()


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
    for message in bag.messages(topic, on_bad):
        T_odom_base = None
        if odometry is not None:
            T_odom_base = odometry.at(stamp_ns(message.content.header))
        if T_odom_base is not None and T_base_sensor is not None:
            T_odom_base = T_odom_base @ T_base_sensor
        try:
            scan = decode_scan(bag, topic, message, T_odom_base)
        except DatasetError as error:
            report(error, on_bad)
            continue
        yield scan


def decode_scan(
    bag: Bag, topic: str, message: BagMessage, T_odom_sensor: NDArray[np.float64] | None
) -> Scan:
    """Turn one PointCloud2 message into a Scan; a DatasetError names the message."""
    try:
        points = read_cloud(message.content).points
    except CloudError as error:
        raise DatasetError(f'{bag.label}: message {message.index} of {topic}: {error}') from error
    return Scan(points, stamp_ns(message.content.header), T_odom_sensor)


class _PoseRows:
    """Gathers the poses of one topic."""

    def __init__(self, bag: Bag, topic: str):
        self._name = f'{bag.label}: message {{}} of {topic}'
        self._none = f'{bag.label}: expected poses on {topic}, got none'
        self._stamps: list[int] = []
        self._values: list[tuple[float, ...]] = []
        self.body_frame = ''

    def add(self, message: BagMessage) -> None:
        """Take one message; one without a usable pose is named in a DatasetError."""
        pose = message.content.pose
        pose = getattr(pose, 'pose', pose)  # PoseStamped has one level less
        row = _pose_values(pose.position, pose.orientation)
        if not np.isfinite(row).all() or np.linalg.norm(row[3:]) < 1e-6:
            raise DatasetError(
                f'{self._name.format(message.index)}: expected a finite pose and a unit '
                f'quaternion, got {row}'
            )
        self.body_frame = _frame(getattr(message.content, 'child_frame_id', ''))
        self._stamps.append(stamp_ns(message.content.header))
        self._values.append(row)

    def trajectory(self) -> Trajectory:
        """Return what was gathered."""
        if not self._stamps:
            raise DatasetError(self._none)
        table = np.array(self._values)
        T = pose_from_quaternion(table[:, :3], table[:, 3:])
        return Trajectory.from_unordered(self._stamps, T)


def _until_damaged(
    bag: Bag, topics: Sequence[str], on_bad: OnBad | None
) -> Iterator[RawMessage]:
    try:
        yield from bag.walk(topics)
    except DatasetError as error:
        report(error, on_bad)


def _add_links(links: Links, transforms: Iterable[Any]) -> None:
    """Note static transforms in both directions."""
    for link in transforms:
        row = _pose_values(link.transform.translation, link.transform.rotation)
        T_parent_child = pose_from_quaternion(row[:3], row[3:])
        parent, child = _frame(link.header.frame_id), _frame(link.child_frame_id)
        links.setdefault(parent, {})[child] = T_parent_child
        links.setdefault(child, {})[parent] = invert(T_parent_child)


def _chain(links: Links, start: str, goal: str) -> NDArray[np.float64] | None:
    """Multiply transforms along the way from one frame to another."""
    reached = {start: np.eye(4)}
    waiting = [start]
    while waiting:
        frame = waiting.pop(0)
        if frame == goal:
            return reached[frame]
        for neighbour, T_frame_neighbour in links.get(frame, {}).items():
            if neighbour not in reached:
                reached[neighbour] = reached[frame] @ T_frame_neighbour
                waiting.append(neighbour)
    return None


def _frame(name: str) -> str:
    return name.lstrip('/')  # ROS 1 recordings begin frames with a slash


def _pose_values(p: Any, q: Any) -> tuple[float, ...]:
    return (p.x, p.y, p.z, q.x, q.y, q.z, q.w)
