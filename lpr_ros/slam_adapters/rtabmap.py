"""RTAB-Map: links between its own nodes, by its service add_link.

Nodes come from mapData as they are made, and those before us from get_map_data. It removes a link
that bends its graph too much (RGBD/OptimizeMaxError), so the information is our real one.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node

from lpr_ros.backends.foreign_nodes import ForeignNodes, ForeignNodesConfig
from lpr_ros.core.clock import NS_PER_S
from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import BackendError, LprError
from lpr_ros.core.records import LoopClosure, Place
from lpr_ros.interfaces import interface
from lpr_ros.pose_messages import pose_from_message, transform_message

USER_CLOSURE = 4


@dataclass(frozen=True)
class RtabmapConfig(Config):
    """How loops reach RTAB-Map."""

    namespace: str = option('rtabmap', 'namespace of its node', fixed=True)
    nodes: ForeignNodesConfig = field(default_factory=ForeignNodesConfig)


class Rtabmap:
    """Adds a link for each loop."""

    def __init__(self, node: Node, config: RtabmapConfig):
        self._node = node
        self._nodes = ForeignNodes(config.nodes)
        self._add_link = interface('rtabmap_msgs/srv/AddLink')
        self._get_map = interface('rtabmap_msgs/srv/GetMap')
        map_data = interface('rtabmap_msgs/msg/MapData')
        self._link = interface('rtabmap_msgs/msg/Link')
        at = config.namespace
        self._links = node.create_client(self._add_link, f'{at}/add_link')
        self._maps = node.create_client(self._get_map, f'{at}/get_map_data')
        self._data = node.create_subscription(map_data, f'{at}/mapData', self._on_map, 10)
        self._knows_earlier_nodes = False

    def publish(
        self, loop: LoopClosure, query: Place, match: Place, T_base_sensor: NDArray[np.float64]
    ) -> None:
        """Ask RTAB-Map for a link; its pose is that of `to` in `from`, in the base frame."""
        if not self._links.service_is_ready():
            raise BackendError(f'no service {self._links.srv_name}: is RTAB-Map running?')
        moved = self._nodes.move(loop, query, match, T_base_sensor)
        link = self._link(
            from_id=moved.match_id,
            to_id=moved.query_id,
            type=USER_CLOSURE,
            transform=transform_message(moved.T_match_query),
            information=np.linalg.inv(moved.covariance).ravel(),
        )
        self._links.call_async(self._add_link.Request(link=link))

    def close(self) -> None:
        """Take topic and services off the node."""
        self._node.destroy_subscription(self._data)
        self._node.destroy_client(self._links)
        self._node.destroy_client(self._maps)

    def _on_map(self, message: Any) -> None:
        self._take(message)
        # A request before the service is there would be lost; now RTAB-Map is there.
        if not self._knows_earlier_nodes and self._maps.service_is_ready():
            self._knows_earlier_nodes = True
            request = self._get_map.Request(global_map=True, optimized=False, graph_only=True)
            answer = self._maps.call_async(request)
            answer.add_done_callback(lambda future: self._take(future.result().data))

    def _take(self, message: Any) -> None:
        for node in message.nodes:
            try:
                T_odom_base = pose_from_message(node.pose)
            except LprError as error:
                self._node.get_logger().warning(f'rtabmap: node {node.id}: {error}')
                continue
            self._nodes.add(node.id, round(node.stamp * NS_PER_S), T_odom_base)
