"""The topics, SLAM adapters and tf listener of lpr_node; they outlive its configurations."""

from rclpy.node import Node

from lpr_ros.lpr_node.config import AdaptersConfig, NodeConfig
from lpr_ros.lpr_node.diagnostics import EventLog, Statistics
from lpr_ros.lpr_node.extrinsics import TfLookup, tf_lookup
from lpr_ros.lpr_node.inputs import Inputs
from lpr_ros.lpr_node.odometry.publisher import OdometryPublisher
from lpr_ros.lpr_node.publishers import Publishers
from lpr_ros.ros_utils.spin import destroy_safely
from lpr_ros.slam_adapters.registry import SlamAdapters


class Connections:
    """Publishers, subscriptions, SLAM adapters and tf listener of a node.

    Created once and kept across ~/reset, ~/load_map and lifecycle transitions: DDS discovers
    every new endpoint again, and rclpy cannot destroy entities while its executor waits for them.
    Only entities whose settings changed are replaced.
    """

    def __init__(self, node: Node):
        self._node = node
        self.events = EventLog(node, Statistics())
        self.publishers = Publishers(node)
        self.inputs = Inputs(node, self.events, self.publishers.set_frame)
        self.odometry = OdometryPublisher(node)
        self.tf: TfLookup | None = None
        self.adapters = SlamAdapters(node, (), AdaptersConfig(), self.events.drop_loop)
        self._adapter_settings: tuple[object, ...] = ()

    def configure(self, config: NodeConfig) -> None:
        """Create the tf listener, tf publisher and SLAM adapters that these settings ask for."""
        if self.tf is None and config.use_odometry and config.extrinsic_source != 'parameter':
            self.tf = tf_lookup(self._node)
        self.odometry.configure(config.publish_tf)
        settings = (config.backends, config.adapters)
        if settings != self._adapter_settings:
            destroy_safely(self._node, self.adapters.close)
            self.adapters = SlamAdapters(
                self._node,
                config.backends,
                config.adapters,
                self.events.drop_loop,
                self.events.drop_retraction,
            )
            self._adapter_settings = settings
        for name, reason in self.adapters.missing.items():
            self._node.get_logger().error(f'back-end {name} receives no loop closures: {reason}')
