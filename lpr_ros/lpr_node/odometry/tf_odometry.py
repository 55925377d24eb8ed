"""Odometry from tf: looked up at the stamp of each scan."""

from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.time import Time

from lpr_ros.conversions.poses import pose_from_transform
from lpr_ros.core.errors import ScanError
from lpr_ros.core.timing import NS_PER_S
from lpr_ros.ros_utils.spin import destroy_safely


class TfOdometry:
    """Listens to tf until it is closed."""

    def __init__(self, tf2_ros: ModuleType, node: Node, odom_frame: str, base_frame: str):
        self._tf2_ros, self._node = tf2_ros, node
        self._odom_frame, self._base_frame = odom_frame, base_frame
        self._buffer = tf2_ros.Buffer()
        self._listener = tf2_ros.TransformListener(self._buffer, node)

    @property
    def is_published(self) -> bool:
        """Whether tf has had the transform at any time."""
        try:
            self._buffer.lookup_transform(self._odom_frame, self._base_frame, Time())
        except self._tf2_ros.TransformException:
            return False
        return True

    def pose_at(self, stamp_ns: int, timeout_s: float) -> NDArray[np.float64]:
        """Return T_odom_base at a stamp, waiting for it; ScanError if tf does not have it."""
        try:
            found = self._buffer.lookup_transform(
                self._odom_frame,
                self._base_frame,
                Time(nanoseconds=stamp_ns),
                Duration(nanoseconds=round(timeout_s * NS_PER_S)),
            )
        except self._tf2_ros.TransformException as error:
            raise ScanError(
                'no_odometry',
                f'scan at {stamp_ns} ns: no transform from {self._base_frame} to '
                f'{self._odom_frame} on tf after waiting {timeout_s} s: {error}',
            ) from error
        return pose_from_transform(found.transform)

    def close(self) -> None:
        """Stop listening."""
        destroy_safely(self._node, self._listener.unregister)


def tf_odometry(node: Node, odom_frame: str, base_frame: str) -> TfOdometry | None:
    """Return a tf listener, or None if tf2_ros is not installed."""
    try:
        import tf2_ros  # not on the package index: only in a ROS installation
    except ImportError:
        return None
    return TfOdometry(tf2_ros, node, odom_frame, base_frame)
