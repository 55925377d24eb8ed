"""The choice of where odometry comes from: a topic, tf, or the clouds."""

import time

from rclpy.node import Node

from lpr_ros.core.errors import InterfaceError
from lpr_ros.lpr_node.config import NodeConfig
from lpr_ros.lpr_node.connections import Connections
from lpr_ros.lpr_node.odometry.lidar_odometry import LidarOdometrySource
from lpr_ros.lpr_node.odometry.tf_odometry import TfOdometry, tf_odometry

TOPIC_WAIT_S = 5.0  # after the first cloud; DDS may still be discovering the odometry


class OdometrySource:
    """Odometry of a configured node.

    `auto` takes the topic as soon as somebody publishes it. If nobody does for some seconds of
    clouds, it takes tf if that has the transform, else the clouds. The choice holds until the node
    is configured again: poses of two sources share no frame.
    """

    def __init__(self, node: Node, config: NodeConfig, connections: Connections):
        self._node, self._config, self._connections = node, config, connections
        self._inputs, self._log = connections.inputs, node.get_logger()
        self._topic = node.resolve_topic_name('odometry')
        self._lidar: LidarOdometrySource | None = None
        self._tf: TfOdometry | None = None
        self.choice = ''  # until it is made
        if not config.use_odometry:
            return
        if config.odometry_source in ('auto', 'tf'):
            self._tf = tf_odometry(node, config.odom_frame, config.base_frame)
        if config.odometry_source == 'tf' and self._tf is None:
            raise InterfaceError(
                "odometry_source 'tf': tf2_ros is not installed; expected auto, topic or lidar"
            )
        if config.odometry_source != 'auto':
            self._choose(config.odometry_source, 'odometry_source')

    def update(self) -> None:
        """Choose if it is time to; called every second."""
        if not self._config.use_odometry:
            return
        is_published = self._inputs.has_odometry or self._node.count_publishers(self._topic) > 0
        if self.choice:
            if is_published and self.choice != 'topic' and self._config.odometry_source == 'auto':
                self._connections.events.warn(
                    'odometry_source',
                    f'{self._topic} is published now, but odometry comes from {self.choice}: set '
                    'odometry_source to topic to use it',
                )
        elif is_published:
            self._choose('topic', f'{self._topic} is published')
        elif self._has_waited():
            self._choose_without_topic()

    def close(self) -> None:
        """Release thread, process and tf listener."""
        self._inputs.set_source()
        if self._lidar is not None:
            self._lidar.close()
            self._lidar = None
        self._close_tf()

    def _has_waited(self) -> bool:
        first_s = self._inputs.first_cloud_s
        return first_s is not None and time.monotonic() - first_s >= TOPIC_WAIT_S

    def _choose_without_topic(self) -> None:
        reason = f'nobody publishes {self._topic}'
        if self._tf is not None and self._tf.is_published:
            self._choose('tf', reason)
            return
        if self._tf is not None:
            reason += f', and tf has no {self._config.odom_frame} -> {self._config.base_frame}'
        self._choose('lidar', reason)

    def _choose(self, choice: str, reason: str) -> None:
        if choice != 'tf':
            self._close_tf()
        if choice == 'lidar':
            self._lidar = LidarOdometrySource(self._config, self._connections)
            self._inputs.set_source(takes_topic=False, on_cloud=self._lidar.put)
        elif self._tf is not None:
            frames = self._config.odom_frame, self._config.base_frame
            self._inputs.set_source(takes_topic=False, pose_at=self._tf.pose_at, frames=frames)
        self.choice = choice
        self._log.info(f'odometry from {choice}: {reason}')

    def _close_tf(self) -> None:
        if self._tf is not None:
            self._tf.close()
            self._tf = None
