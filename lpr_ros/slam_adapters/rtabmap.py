"""RTAB-Map: links between its own nodes, through its service add_link.

New nodes arrive on mapData, earlier ones are requested from get_map_data. RTAB-Map removes links
whose error exceeds RGBD/OptimizeMaxError, so links carry our actual information matrix.

A link cannot be taken back: rtabmap_msgs has no service that removes one, and add_link ignores a
second link between the same two nodes.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node

from lpr_ros.conversions.poses import pose_from_message, transform_message
from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import AdapterError, LprError
from lpr_ros.core.timing import NS_PER_S
from lpr_ros.core.types import LoopClosure, Place
from lpr_ros.ros_utils.optional_interfaces import interface
from lpr_ros.slam_adapters.node_association import NodeAssociation, NodeAssociationConfig

USER_CLOSURE = 4


@dataclass(frozen=True)
class RtabmapConfig(Config):
    """Adapter for RTAB-Map."""

    namespace: str = option('rtabmap', 'Namespace of the RTAB-Map node', fixed=True)
    association: NodeAssociationConfig = field(default_factory=NodeAssociationConfig)


class Rtabmap:
    """Adds one link per loop closure."""

    def __init__(self, node: Node, config: RtabmapConfig):
        self._node = node
        self._nodes = NodeAssociation(config.association)
        self._add_link = interface('rtabmap_msgs/srv/AddLink')
        self._get_map = interface('rtabmap_msgs/srv/GetMap')
        map_data = interface('rtabmap_msgs/msg/MapData')
        self._link = interface('rtabmap_msgs/msg/Link')
        namespace = config.namespace
        self._links = node.create_client(self._add_link, f'{namespace}/add_link')
        self._maps = node.create_client(self._get_map, f'{namespace}/get_map_data')
        self._data = node.create_subscription(map_data, f'{namespace}/mapData', self._on_map, 10)
        self._requested_earlier_nodes = False

    def publish(
        self, loop: LoopClosure, query: Place, match: Place, T_base_sensor: NDArray[np.float64]
    ) -> None:
        """Request a link; its transform is the base pose of `to` in `from`."""
        if not self._links.service_is_ready():
            raise AdapterError(
                f'service {self._links.srv_name} is not available: is RTAB-Map running?'
            )
        node_loop = self._nodes.transfer(loop, query, match, T_base_sensor)
        link = self._link(
            from_id=node_loop.match_id,
            to_id=node_loop.query_id,
            type=USER_CLOSURE,
            transform=transform_message(node_loop.T_match_query),
            information=np.linalg.inv(node_loop.covariance).ravel(),
        )
        self._links.call_async(self._add_link.Request(link=link))

    def retract(
        self, loop: LoopClosure, query: Place, match: Place, T_base_sensor: NDArray[np.float64]
    ) -> None:
        """Raise AdapterError: RTAB-Map keeps the link."""
        node_loop = self._nodes.transfer(loop, query, match, T_base_sensor)
        raise AdapterError(
            f'RTAB-Map keeps its link {node_loop.match_id} -> {node_loop.query_id}: it has no '
            'service to remove one; with RGBD/OptimizeMaxErrorRepairRadius it removes wrong links '
            'itself'
        )

    def close(self) -> None:
        """Destroy the subscription and the clients."""
        self._node.destroy_subscription(self._data)
        self._node.destroy_client(self._links)
        self._node.destroy_client(self._maps)

    def _on_map(self, message: Any) -> None:
        self._add_nodes(message)
        # Not earlier: a request sent before the service exists is lost.
        if not self._requested_earlier_nodes and self._maps.service_is_ready():
            self._requested_earlier_nodes = True
            request = self._get_map.Request(global_map=True, optimized=False, graph_only=True)
            response = self._maps.call_async(request)
            response.add_done_callback(lambda future: self._add_nodes(future.result().data))

    def _add_nodes(self, message: Any) -> None:
        for node in message.nodes:
            try:
                T_odom_base = pose_from_message(node.pose)
            except LprError as error:
                self._node.get_logger().warning(f'rtabmap: node {node.id}: {error}')
                continue
            self._nodes.add_node(node.id, round(node.stamp * NS_PER_S), T_odom_base)
