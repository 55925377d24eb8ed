"""Hydra and Kimera-PGMO: edges of a pose_graph_tools_msgs/PoseGraph.

Both read the same message differently. Hydra: keys are stamps in nanoseconds, the pose is that of
`from` in `to`. Kimera-PGMO: keys are the numbers of its own nodes, which must be the keyframes of
our session, the pose is that of `to` in `from`. So the pose is always T_match_query, of the base,
and the ends are swapped.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node

from lpr_ros.backends.base import refuse_other_session, seen_from_base
from lpr_ros.core.config import Config, option
from lpr_ros.core.records import LoopClosure, Place
from lpr_ros.interfaces import interface
from lpr_ros.pose_messages import header_message, pose_message

LOOP_CLOSURE = 1


@dataclass(frozen=True)
class PoseGraphToolsConfig(Config):
    """How loops reach Hydra or Kimera-PGMO."""

    reader: str = option('hydra', 'who reads', choices=('hydra', 'kimera'), fixed=True)
    topic: str = option(
        'external_loop_closures', 'topic it listens on; Kimera-PGMO: pose_graph_incremental',
        fixed=True,
    )  # fmt: skip
    frame_id: str = option('map', 'frame of the graph', fixed=True)
    robot: int = option(0, 'number of the robot', low=0, fixed=True)


class PoseGraphTools:
    """Publishes a graph of one edge for each loop."""

    def __init__(self, node: Node, config: PoseGraphToolsConfig):
        self._node = node
        self._config = config
        self._graph = interface('pose_graph_tools_msgs/msg/PoseGraph')
        self._edge = interface('pose_graph_tools_msgs/msg/PoseGraphEdge')
        self._publisher = node.create_publisher(self._graph, config.topic, 100)

    def publish(
        self, loop: LoopClosure, query: Place, match: Place, T_base_sensor: NDArray[np.float64]
    ) -> None:
        """Publish the edge of a loop."""
        refuse_other_session(query, match)
        base = seen_from_base(loop, T_base_sensor)
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

    def close(self) -> None:
        """Take the topic off the node."""
        self._node.destroy_publisher(self._publisher)
