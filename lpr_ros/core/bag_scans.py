"""Scans and trajectories out of a recording."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.bags import Bag, BagMessage, OnBad, report
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


def read_trajectory(bag: Bag, topic: str, on_bad: OnBad | None = None) -> Trajectory:
    """Read the poses of an odometry or pose topic, by their header stamps."""
    stamps: list[int] = []
    values: list[tuple[float, ...]] = []
    for message in bag.messages(topic, on_bad):
        pose = message.content.pose
        pose = getattr(pose, 'pose', pose)  # PoseStamped has one level less
        row = _pose_values(pose.position, pose.orientation)
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
        raise DatasetError(f'{bag.label}: expected poses on {topic}, got none')
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
    for message in bag.messages(topic, on_bad):
        T_odom_base = None
        if odometry is not None:
            T_odom_base = odometry.at(stamp_ns(message.content.header))
        if T_odom_base is not None and T_base_sensor is not None:
            T_odom_base = T_odom_base @ T_base_sensor
        try:
            yield decode_scan(bag, topic, message, T_odom_base)
        except DatasetError as error:
            report(error, on_bad)


def decode_scan(
    bag: Bag, topic: str, message: BagMessage, T_odom_sensor: NDArray[np.float64] | None
) -> Scan:
    """Turn one PointCloud2 message into a Scan; a DatasetError names the message."""
    try:
        points = read_cloud(message.content).points
    except CloudError as error:
        raise DatasetError(f'{bag.label}: message {message.index} of {topic}: {error}') from error
    return Scan(points, stamp_ns(message.content.header), T_odom_sensor)


def find_extrinsic(bag: Bag, cloud_topic: str, pose_topic: str) -> NDArray[np.float64] | None:
    """Return T_base_sensor from the recorded static transforms.

    The base is the child frame of the odometry. None when the frames are not linked, or the
    messages name none (a PoseStamped has no child frame).
    """
    cloud = next(bag.messages(cloud_topic), None)
    pose = next(bag.messages(pose_topic), None)
    sensor = cloud.content.header.frame_id if cloud else ''
    base = getattr(pose.content, 'child_frame_id', '') if pose else ''
    if not sensor or not base:
        return None
    links: dict[str, dict[str, NDArray[np.float64]]] = {}
    if STATIC_TRANSFORMS in [t.name for t in bag.topics]:
        for message in bag.messages(STATIC_TRANSFORMS):
            for link in message.content.transforms:
                t = link.transform
                row = _pose_values(t.translation, t.rotation)
                T_parent_child = pose_from_quaternion(row[:3], row[3:])
                parent, child = _frame(link.header.frame_id), _frame(link.child_frame_id)
                links.setdefault(parent, {})[child] = T_parent_child
                links.setdefault(child, {})[parent] = invert(T_parent_child)
    return _chain(links, _frame(base), _frame(sensor))


def _chain(
    links: dict[str, dict[str, NDArray[np.float64]]], start: str, goal: str
) -> NDArray[np.float64] | None:
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
