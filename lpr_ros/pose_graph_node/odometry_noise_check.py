"""Compare the odometry noise of lpr_node and pose_graph_node: both describe the same odometry."""

from collections.abc import Iterator, Sequence
import time
from typing import Any

from rcl_interfaces.msg import ParameterValue
from rcl_interfaces.srv import GetParameters
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.parameter import parameter_value_to_python

from lpr_ros.core.geometry.odometry_noise import OdometryNoiseConfig
from lpr_ros.ros_utils.parameters import leaves

POLL_S = 0.5
RESPONSE_TIMEOUT_S = 5.0
Gid = tuple[int, ...]


class OdometryNoiseCheck:
    """Reads `odometry_noise.*` of lpr_node each time it starts, and warns about differences.

    A running instance of lpr_node is identified by its publisher on /parameter_events, which every
    node keeps for its lifetime. Unlike the availability of the service, this also reveals an
    instance that replaced a killed one.
    """

    def __init__(self, node: Node, noise: OdometryNoiseConfig, other: str = 'lpr_node'):
        self._node = node
        self._own = {leaf.name: leaf.default for leaf in leaves(noise, 'odometry_noise.')}
        service = f'{other}/get_parameters'
        self._client = node.create_client(GetParameters, service)
        self._other = node.resolve_service_name(service).rpartition('/')[0]
        self._checked: set[Gid] = set()
        self._pending: Any = None  # future of the request sent last
        self._sent_s = 0.0
        clock = Clock(clock_type=ClockType.STEADY_TIME)  # also runs while simulated time stands
        node.create_timer(POLL_S, self._poll, clock=clock)

    def _poll(self) -> None:
        instances = set(self._instances())
        self._checked &= instances
        if self._pending is not None:
            # A service may lose the response to a client it has only just discovered.
            if time.monotonic() - self._sent_s < RESPONSE_TIMEOUT_S:
                return
            self._client.remove_pending_request(self._pending)
            self._pending = None
        if instances - self._checked and self._client.service_is_ready():
            self._sent_s = time.monotonic()
            self._pending = self._client.call_async(GetParameters.Request(names=list(self._own)))
            self._pending.add_done_callback(lambda future: self._on_response(future, instances))

    def _instances(self) -> Iterator[Gid]:
        for info in self._node.get_publishers_info_by_topic('/parameter_events'):
            namespace = info.node_namespace.rstrip('/')
            if f'{namespace}/{info.node_name}' == self._other:
                yield tuple(info.endpoint_gid)

    def _on_response(self, future: Any, instances: set[Gid]) -> None:
        if future is not self._pending:
            return
        self._pending = None
        self._checked |= instances
        self._compare(future.result().values)

    def _compare(self, values: Sequence[ParameterValue]) -> None:
        log, own_name = self._node.get_logger(), self._node.get_fully_qualified_name()
        if len(values) != len(self._own):  # the response if a parameter is not declared
            log.warning(
                f'{self._other} does not declare {", ".join(self._own)}: its odometry noise '
                f'cannot be compared with that of {own_name}'
            )
            return
        others = [parameter_value_to_python(value) for value in values]
        different = [
            (name, own, other)
            for (name, own), other in zip(self._own.items(), others, strict=True)
            if own != other
        ]
        for name, own, other in different:
            log.warning(
                f'{name} is {own} in {own_name} but {other} in {self._other}: both nodes use the '
                'same odometry; set it once for both, under /** of a params file'
            )
        if not different:
            log.info(f'odometry_noise is the same in {self._other}')
