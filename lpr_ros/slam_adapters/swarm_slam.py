"""Swarm-SLAM: loops between its own keyframes, within one robot.

Its keyframes come from cslam/keyframe_odom (the cloud on cslam/keyframe_data has no stamp). Either
the loop goes out with its pose, that of keyframe 1 in keyframe 0, or only the pair of keyframes,
which it then registers itself.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node

from lpr_ros.backends.foreign_nodes import ForeignNodes, ForeignNodesConfig
from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import LprError
from lpr_ros.core.pointcloud2 import stamp_ns
from lpr_ros.core.records import LoopClosure, Place
from lpr_ros.interfaces import interface
from lpr_ros.pose_messages import pose_from_message, transform_message


@dataclass(frozen=True)
class SwarmSlamConfig(Config):
    """How loops reach Swarm-SLAM."""

    namespace: str = option('cslam', 'prefix of its topics', fixed=True)
    with_pose: bool = option(
        True, 'send our pose; without, it registers the two scans itself', fixed=True
    )
    nodes: ForeignNodesConfig = field(default_factory=ForeignNodesConfig)


class SwarmSlam:
    """Publishes a loop, or a pair of keyframes, for each loop."""

    def __init__(self, node: Node, config: SwarmSlamConfig):
        self._node = node
        self._with_pose = config.with_pose
        self._nodes = ForeignNodes(config.nodes)
        package = 'cslam_common_interfaces/msg'
        keyframe_odom = interface(f'{package}/KeyframeOdom')
        name, topic = 'LocalKeyframeMatch', 'local_keyframe_match'
        if config.with_pose:
            name, topic = 'IntraRobotLoopClosure', 'intra_robot_loop_closure'
        self._message = interface(f'{package}/{name}')
        at = config.namespace
        self._publisher = node.create_publisher(self._message, f'{at}/{topic}', 100)
        self._keyframes = node.create_subscription(
            keyframe_odom, f'{at}/keyframe_odom', self._on_keyframe, 100
        )

    def publish(
        self, loop: LoopClosure, query: Place, match: Place, T_base_sensor: NDArray[np.float64]
    ) -> None:
        """Publish one loop."""
        moved = self._nodes.move(loop, query, match, T_base_sensor)
        message = self._message(keyframe0_id=moved.match_id, keyframe1_id=moved.query_id)
        if self._with_pose:
            message.success = True
            message.transform = transform_message(moved.T_match_query)
        self._publisher.publish(message)

    def close(self) -> None:
        """Take the topics off the node."""
        self._node.destroy_subscription(self._keyframes)
        self._node.destroy_publisher(self._publisher)

    def _on_keyframe(self, message: Any) -> None:
        try:
            T_odom_base = pose_from_message(message.odom.pose.pose)
        except LprError as error:
            self._node.get_logger().warning(f'swarm_slam: keyframe {message.id}: {error}')
            return
        self._nodes.add(message.id, stamp_ns(message.odom.header), T_odom_base)
