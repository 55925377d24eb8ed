"""The topics that LiDAR odometry is published on."""

from typing import Any

from geometry_msgs.msg import TransformStamped
from nav_msgs.msg import Odometry
import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node
from rclpy.publisher import Publisher

from lpr_ros.conversions.poses import header_message, odometry_message, transform_message
from lpr_ros.core.errors import InterfaceError
from lpr_ros.ros_utils.optional_interfaces import interface


class OdometryPublisher:
    """Publishes ~/odometry and, on request, tf. Lives as long as the node."""

    def __init__(self, node: Node):
        self._node = node
        self._odometry = node.create_publisher(Odometry, '~/odometry', 100)
        self._tf: Publisher | None = None
        self._publishes_tf = False

    def configure(self, publish_tf: bool) -> None:
        """Publish on tf from now on, or not."""
        self._publishes_tf = publish_tf
        if not publish_tf or self._tf is not None:
            return
        try:
            self._tf_message: Any = interface('tf2_msgs/msg/TFMessage')
        except InterfaceError as error:
            self._node.get_logger().error(f'publish_tf: odometry is not on /tf: {error}')
            return
        self._tf = self._node.create_publisher(self._tf_message, '/tf', 100)

    def publish(
        self, stamp_ns: int, frames: tuple[str, str], T_odom_base: NDArray[np.float64]
    ) -> None:
        """Publish a pose; `frames` are odom and base."""
        self._odometry.publish(odometry_message(stamp_ns, *frames, T_odom_base))
        if self._publishes_tf and self._tf is not None:
            transform = TransformStamped(
                header=header_message(stamp_ns, frames[0]),
                child_frame_id=frames[1],
                transform=transform_message(T_odom_base),
            )
            self._tf.publish(self._tf_message(transforms=[transform]))
