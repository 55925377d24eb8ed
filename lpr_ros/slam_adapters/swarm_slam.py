"""Swarm-SLAM: intra-robot loop closures between its own keyframes.

Its keyframes arrive on cslam/keyframe_odom; the clouds on cslam/keyframe_data have no stamp. A
loop closure is sent either with the pose of keyframe 1 in keyframe 0, or as a pair of keyframes
that Swarm-SLAM registers itself.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node

from lpr_ros.conversions.poses import pose_from_message, transform_message
from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import AdapterError, LprError
from lpr_ros.core.timing import stamp_ns
from lpr_ros.core.types import LoopClosure, Place
from lpr_ros.ros_utils.optional_interfaces import interface
from lpr_ros.slam_adapters.node_association import NodeAssociation, NodeAssociationConfig


@dataclass(frozen=True)
class SwarmSlamConfig(Config):
    """Adapter for Swarm-SLAM."""

    namespace: str = option('cslam', 'Prefix of the Swarm-SLAM topics', fixed=True)
    with_pose: bool = option(
        True,
        'Send the relative pose with each loop closure; otherwise Swarm-SLAM registers the scans',
        fixed=True,
    )
    association: NodeAssociationConfig = field(default_factory=NodeAssociationConfig)


class SwarmSlam:
    """Publishes one loop closure, or one pair of keyframes, per loop closure."""

    def __init__(self, node: Node, config: SwarmSlamConfig):
        self._node = node
        self._with_pose = config.with_pose
        self._nodes = NodeAssociation(config.association)
        package = 'cslam_common_interfaces/msg'
        keyframe_odom = interface(f'{package}/KeyframeOdom')
        name, topic = 'LocalKeyframeMatch', 'local_keyframe_match'
        if config.with_pose:
            name, topic = 'IntraRobotLoopClosure', 'intra_robot_loop_closure'
        self._message = interface(f'{package}/{name}')
        namespace = config.namespace
        self._publisher = node.create_publisher(self._message, f'{namespace}/{topic}', 100)
        self._keyframes = node.create_subscription(
            keyframe_odom, f'{namespace}/keyframe_odom', self._on_keyframe, 100
        )

    def publish(
        self, loop: LoopClosure, query: Place, match: Place, T_base_sensor: NDArray[np.float64]
    ) -> None:
        """Publish one loop closure."""
        node_loop = self._nodes.transfer(loop, query, match, T_base_sensor)
        message = self._message(keyframe0_id=node_loop.match_id, keyframe1_id=node_loop.query_id)
        if self._with_pose:
            message.success = True
            message.transform = transform_message(node_loop.T_match_query)
        self._publisher.publish(message)

    def retract(
        self, loop: LoopClosure, query: Place, match: Place, T_base_sensor: NDArray[np.float64]
    ) -> None:
        """Raise AdapterError: the back-end cannot take back a loop closure."""
        raise AdapterError('Swarm-SLAM keeps it: it cannot remove a loop closure')

    def close(self) -> None:
        """Destroy the subscription and the publisher."""
        self._node.destroy_subscription(self._keyframes)
        self._node.destroy_publisher(self._publisher)

    def _on_keyframe(self, message: Any) -> None:
        try:
            T_odom_base = pose_from_message(message.odom.pose.pose)
        except LprError as error:
            self._node.get_logger().warning(f'swarm_slam: keyframe {message.id}: {error}')
            return
        self._nodes.add_node(message.id, stamp_ns(message.odom.header), T_odom_base)
