"""One pass over a bag: where the clouds are, trajectories and static transforms."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import CloudError, DatasetError
from lpr_ros.core.geometry.se3 import invert, pose_from_quaternion
from lpr_ros.core.geometry.trajectory import Trajectory
from lpr_ros.core.io.pointcloud2 import Cloud, read_cloud
from lpr_ros.core.recordings.bag_reader import Bag, BagMessage, Entry, RawMessage
from lpr_ros.core.recordings.base import OnBad, Progress, report
from lpr_ros.core.recordings.message_types import TRANSFORM_TYPES
from lpr_ros.core.timing import stamp_ns

STATIC_TRANSFORMS = '/tf_static'
Links = dict[str, dict[str, NDArray[np.float64]]]  # frame -> neighbor -> T_frame_neighbor


@dataclass(frozen=True, eq=False)
class BagIndex:
    """Contents of a bag; the clouds are not decoded."""

    entries: list[Entry]  # of the clouds
    cloud_frame: str
    trajectories: dict[str, Trajectory]  # by topic
    base_frames: dict[str, str]  # by topic: child frame of the poses, '' if not given
    links: Links  # static transforms

    def extrinsic(self, pose_topic: str) -> NDArray[np.float64] | None:
        """Return T_base_sensor for the base frame of a pose topic; None if unknown."""
        base = self.base_frames[pose_topic]
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
) -> BagIndex:
    """Index the clouds and read poses and static transforms in a single pass."""
    counts = {t.name: t.count for t in bag.topics}
    topics = [cloud_topic, *dict.fromkeys(pose_topics)]
    if any(t.name == STATIC_TRANSFORMS and t.msgtype in TRANSFORM_TYPES for t in bag.topics):
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
    return BagIndex(
        entries,
        cloud_frame,
        {topic: rows.trajectory() for topic, rows in poses.items()},
        {topic: rows.base_frame for topic, rows in poses.items()},
        links,
    )


def decode_cloud(bag: Bag, topic: str, message: BagMessage) -> Cloud:
    """Return the cloud of a PointCloud2 message; DatasetError names the message."""
    try:
        return read_cloud(message.content)
    except CloudError as error:
        raise DatasetError(f'{bag.label}: message {message.index} of {topic}: {error}') from error


class _PoseRows:
    """Collects the poses of one topic."""

    def __init__(self, bag: Bag, topic: str):
        self._bag, self._topic = bag, topic
        self._stamps: list[int] = []
        self._values: list[tuple[float, ...]] = []
        self.base_frame = ''

    def add(self, message: BagMessage) -> None:
        """Add one message; DatasetError if its pose is invalid."""
        pose = message.content.pose
        pose = getattr(pose, 'pose', pose)  # PoseStamped has no covariance level
        row = _pose_values(pose.position, pose.orientation)
        if not np.isfinite(row).all() or np.linalg.norm(row[3:]) < 1e-6:
            raise DatasetError(
                f'{self._bag.label}: message {message.index} of {self._topic}: expected a finite '
                f'pose and a unit quaternion, got {row}'
            )
        self.base_frame = _frame(getattr(message.content, 'child_frame_id', ''))
        self._stamps.append(stamp_ns(message.content.header))
        self._values.append(row)

    def trajectory(self) -> Trajectory:
        """Return the poses sorted by stamp."""
        if not self._stamps:
            raise DatasetError(f'{self._bag.label}: expected poses on {self._topic}, got none')
        table = np.array(self._values)
        T = pose_from_quaternion(table[:, :3], table[:, 3:])
        return Trajectory.from_unordered(self._stamps, T)


def _until_damaged(bag: Bag, topics: Sequence[str], on_bad: OnBad | None) -> Iterator[RawMessage]:
    try:
        yield from bag.walk(topics)
    except DatasetError as error:
        report(error, on_bad)


def _add_links(links: Links, transforms: Iterable[Any]) -> None:
    """Add static transforms in both directions."""
    for link in transforms:
        row = _pose_values(link.transform.translation, link.transform.rotation)
        T_parent_child = pose_from_quaternion(row[:3], row[3:])
        parent, child = _frame(link.header.frame_id), _frame(link.child_frame_id)
        links.setdefault(parent, {})[child] = T_parent_child
        links.setdefault(child, {})[parent] = invert(T_parent_child)


def _chain(links: Links, start: str, goal: str) -> NDArray[np.float64] | None:
    """Return T_start_goal along a path of links; None if the frames are not connected."""
    reached = {start: np.eye(4)}
    queue = [start]
    while queue:
        frame = queue.pop(0)
        if frame == goal:
            return reached[frame]
        for neighbor, T_frame_neighbor in links.get(frame, {}).items():
            if neighbor not in reached:
                reached[neighbor] = reached[frame] @ T_frame_neighbor
                queue.append(neighbor)
    return None


def _frame(name: str) -> str:
    return name.lstrip('/')  # ROS 1 frames start with a slash


def _pose_values(p: Any, q: Any) -> tuple[float, ...]:
    return (p.x, p.y, p.z, q.x, q.y, q.z, q.w)
