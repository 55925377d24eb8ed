"""Hydra and Kimera-PGMO: edges of a pose_graph_tools_msgs/PoseGraph.

The two interpret the message differently. Hydra: keys are stamps in nanoseconds, and the pose is
that of `from` in `to`. Kimera-PGMO: keys are indices of its own nodes, which must be the keyframes
of our session, and the pose is that of `to` in `from`. The pose sent is always T_match_query
between base poses, and the keys are swapped.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node

from lpr_ros.conversions.poses import header_message, pose_message
from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import AdapterError
from lpr_ros.core.types import LoopClosure, Place
from lpr_ros.ros_utils.optional_interfaces import interface
from lpr_ros.slam_adapters.base import loop_between_base_poses, require_same_session

LOOP_CLOSURE = 1


@dataclass(frozen=True)
class PoseGraphToolsConfig(Config):
    """Adapter for Hydra and Kimera-PGMO."""

    reader: str = option(
        'hydra',
        'Back-end that receives the pose graph edges: the two interpret keys and pose differently',
        choices=('hydra', 'kimera'),
        fixed=True,
    )
    topic: str = option(
        'external_loop_closures',
        'Topic on which the back-end receives pose graph edges; pose_graph_incremental for '
        'Kimera-PGMO',
        fixed=True,
    )
    frame_id: str = option('map', 'Frame of the published pose graph', fixed=True)
    robot: int = option(0, 'Robot index in the published pose graph', low=0, fixed=True)


class PoseGraphTools:
    """Publishes one pose graph with a single edge per loop closure."""

    def __init__(self, node: Node, config: PoseGraphToolsConfig):
        self._node = node
        self._config = config
        self._graph = interface('pose_graph_tools_msgs/msg/PoseGraph')
        self._edge = interface('pose_graph_tools_msgs/msg/PoseGraphEdge')
        self._publisher = node.create_publisher(self._graph, config.topic, 100)

    def publish(
        self, loop: LoopClosure, query: Place, match: Place, T_base_sensor: NDArray[np.float64]
    ) -> None:
        """Publish the edge of one loop closure."""
        require_same_session(query, match)
        base = loop_between_base_poses(loop, T_base_sensor)
        if self._config.reader == 'hydra':
            key_from, key_to = query.stamp_ns, match.stamp_ns
        else:
            key_from, key_to = match.order, query.order
        header = header_message(query.stamp_ns, self._config.frame_id)
        edge = self._edge(
            header=header,
            key_from=key_from,
            key_to=key_to,
            robot_from=self._config.robot,
            robot_to=self._config.robot,
            type=LOOP_CLOSURE,
            pose=pose_message(base.T_match_query),
            covariance=base.covariance.ravel(),
        )
        self._publisher.publish(self._graph(header=header, nodes=[], edges=[edge]))

    def retract(
        self, loop: LoopClosure, query: Place, match: Place, T_base_sensor: NDArray[np.float64]
    ) -> None:
        """Raise AdapterError: the back-end cannot take back a loop closure."""
        raise AdapterError('Hydra and Kimera-PGMO keep it: they cannot remove an edge')

    def close(self) -> None:
        """Destroy the publisher."""
        self._node.destroy_publisher(self._publisher)
