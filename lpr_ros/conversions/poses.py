"""Times, poses and transforms of ROS messages, and the core's nanoseconds and 4x4 matrices."""

from typing import Any

from builtin_interfaces.msg import Time
from geometry_msgs.msg import Point, Pose, Quaternion, Transform, Vector3
from nav_msgs.msg import Odometry
import numpy as np
from numpy.typing import NDArray
from std_msgs.msg import Header

from lpr_ros.core.clock import NS_PER_S
from lpr_ros.core.errors import ScanError
from lpr_ros.core.geometry import pose_from_quaternion, quaternion_from_pose


def time_message(stamp_ns: int) -> Time:
    """Make a time from nanoseconds."""
    seconds, part = divmod(stamp_ns, NS_PER_S)
    return Time(sec=seconds, nanosec=part)


def header_message(stamp_ns: int, frame_id: str) -> Header:
    """Make a header."""
    return Header(stamp=time_message(stamp_ns), frame_id=frame_id)


def pose_message(T: NDArray[np.float64]) -> Pose:
    """Make a pose from a 4x4 matrix."""
    return pose_messages(T[None])[0]


def pose_messages(T: NDArray[np.float64]) -> list[Pose]:
    """Make poses from (N, 4, 4) matrices; the rotations of a long path cost one call."""
    positions, quaternions = T[:, :3, 3].tolist(), quaternion_from_pose(T).tolist()
    return [
        Pose(position=Point(x=x, y=y, z=z), orientation=Quaternion(x=qx, y=qy, z=qz, w=qw))
        for (x, y, z), (qx, qy, qz, qw) in zip(positions, quaternions, strict=True)
    ]


def transform_message(T_parent_child: NDArray[np.float64]) -> Transform:
    """Make a transform, which takes points of the child to the parent, from a 4x4 matrix."""
    pose = pose_message(T_parent_child)
    p = pose.position
    return Transform(translation=Vector3(x=p.x, y=p.y, z=p.z), rotation=pose.orientation)


def odometry_message(
    stamp_ns: int, frame_id: str, child_frame_id: str, T_frame_child: NDArray[np.float64]
) -> Odometry:
    """Make an odometry message with a pose and nothing else."""
    message = Odometry(header=header_message(stamp_ns, frame_id), child_frame_id=child_frame_id)
    message.pose.pose = pose_message(T_frame_child)
    return message


def pose_from_message(pose: Any) -> NDArray[np.float64]:
    """Read a geometry_msgs/Pose; one that is not finite or not a rotation is a ScanError."""
    p, q = pose.position, pose.orientation
    values = np.array([p.x, p.y, p.z, q.x, q.y, q.z, q.w])
    if not np.isfinite(values).all() or np.linalg.norm(values[3:]) < 1e-6:
        raise ScanError(
            'odometry', f'expected a finite pose and a unit quaternion, got {values.tolist()}'
        )
    return pose_from_quaternion(values[:3], values[3:])
