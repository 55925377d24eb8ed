"""Conversions between ROS stamps, poses and transforms and nanoseconds and 4x4 matrices."""

from typing import Any

from builtin_interfaces.msg import Time
from geometry_msgs.msg import Point, Pose, Quaternion, Transform, Vector3
from nav_msgs.msg import Odometry
import numpy as np
from numpy.typing import NDArray
from std_msgs.msg import Header

from lpr_ros.core.errors import ScanError
from lpr_ros.core.geometry.se3 import MAX_POSITION_M, pose_from_quaternion, quaternion_from_pose
from lpr_ros.core.timing import NS_PER_S


def time_message(stamp_ns: int) -> Time:
    """Return the message of a stamp in nanoseconds."""
    seconds, nanoseconds = divmod(stamp_ns, NS_PER_S)
    return Time(sec=seconds, nanosec=nanoseconds)


def check_stamp(header: Header) -> None:
    """Raise ScanError for a stamp that is not normalized: it may not fit into another message."""
    if header.stamp.nanosec >= NS_PER_S:
        raise ScanError(
            'stamp', f'stamp with {header.stamp.nanosec} ns, expected less than {NS_PER_S} ns'
        )


def header_message(stamp_ns: int, frame_id: str) -> Header:
    """Return a header with a stamp and a frame."""
    return Header(stamp=time_message(stamp_ns), frame_id=frame_id)


def pose_message(T: NDArray[np.float64]) -> Pose:
    """Return the message of a 4x4 pose."""
    return pose_messages(T[None])[0]


def pose_messages(T: NDArray[np.float64]) -> list[Pose]:
    """Return the messages of (N, 4, 4) poses; faster for a long path than one by one."""
    positions, quaternions = T[:, :3, 3].tolist(), quaternion_from_pose(T).tolist()
    return [
        Pose(position=Point(x=x, y=y, z=z), orientation=Quaternion(x=qx, y=qy, z=qz, w=qw))
        for (x, y, z), (qx, qy, qz, qw) in zip(positions, quaternions, strict=True)
    ]


def transform_message(T_parent_child: NDArray[np.float64]) -> Transform:
    """Return the message of a 4x4 transform from child to parent coordinates."""
    pose = pose_message(T_parent_child)
    p = pose.position
    return Transform(translation=Vector3(x=p.x, y=p.y, z=p.z), rotation=pose.orientation)


def odometry_message(
    stamp_ns: int, frame_id: str, child_frame_id: str, T_frame_child: NDArray[np.float64]
) -> Odometry:
    """Return an odometry message with a pose, without velocity and covariance."""
    message = Odometry(header=header_message(stamp_ns, frame_id), child_frame_id=child_frame_id)
    message.pose.pose = pose_message(T_frame_child)
    return message


def pose_from_message(pose: Any) -> NDArray[np.float64]:
    """Return a geometry_msgs/Pose as a 4x4 matrix; ScanError if it is not a finite rigid pose."""
    return _checked_pose(pose.position, pose.orientation)


def pose_from_transform(transform: Any) -> NDArray[np.float64]:
    """Return a geometry_msgs/Transform as a 4x4 matrix; ScanError as for a pose."""
    return _checked_pose(transform.translation, transform.rotation)


def _checked_pose(p: Any, q: Any) -> NDArray[np.float64]:
    values = np.array([p.x, p.y, p.z, q.x, q.y, q.z, q.w])
    is_far = (np.abs(values[:3]) > MAX_POSITION_M).any()
    if is_far or not np.isfinite(values).all() or np.linalg.norm(values[3:]) < 1e-6:
        raise ScanError(
            'odometry',
            f'expected a finite pose within {MAX_POSITION_M:g} m and a unit quaternion, got '
            f'x y z qx qy qz qw = {values.tolist()}',
        )
    return pose_from_quaternion(values[:3], values[3:])
