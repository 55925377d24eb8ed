"""Call the services of a node that may be slow, refuse or die."""

from collections.abc import Callable
import threading
from typing import Any

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.srv import SetParameters
from rclpy.client import Client
from rclpy.node import Node
from rclpy.parameter import Parameter
from std_srvs.srv import Trigger

from lpr_ros.core.errors import LprError

TIMEOUT_S = 60.0
POLL_S = 0.2


class ServiceTimeoutError(LprError):
    """A service did not respond in time."""


class ServiceCalls:
    """Clients of one node, which another thread spins; a client is created once per service."""

    def __init__(self, node: Node, check: Callable[[], None] = lambda: None):
        self._node = node
        self._check = check  # raises if there is no point in waiting any longer
        self._clients: dict[str, Client] = {}
        self._lock = threading.Lock()

    def call(
        self, kind: Any, service: str, request: Any = None, timeout_s: float = TIMEOUT_S
    ) -> Any:
        """Call a service and return its response; raise ServiceTimeoutError without one."""
        with self._lock:
            if service not in self._clients:
                self._clients[service] = self._node.create_client(kind, service)
            client = self._clients[service]
        self._wait(client.service_is_ready, f'{service}: service not available', timeout_s)
        done = threading.Event()
        future = client.call_async(request or kind.Request())
        future.add_done_callback(lambda _: done.set())
        try:
            self._wait(lambda: done.wait(POLL_S), f'{service}: no response', timeout_s)
        except LprError:
            client.remove_pending_request(future)
            raise
        return future.result()

    def trigger(self, service: str, timeout_s: float = TIMEOUT_S) -> tuple[bool, str]:
        """Call a Trigger service; return its success and its message."""
        response = self.call(Trigger, service, timeout_s=timeout_s)
        return bool(response.success), str(response.message)

    def set_parameter(self, node: str, name: str, value: Any) -> tuple[bool, str]:
        """Set a parameter of another node; return whether it was accepted and the reason."""
        parameter = Parameter(name, value=value).to_parameter_msg()
        request = SetParameters.Request(parameters=[parameter])
        (result,) = self.call(SetParameters, f'{node}/set_parameters', request).results
        return bool(result.successful), str(result.reason)

    def change_state(self, node: str, transition: str) -> bool:
        """Trigger a lifecycle transition such as 'configure'; return whether it succeeded."""
        number = getattr(Transition, f'TRANSITION_{transition.upper()}')
        request = ChangeState.Request(transition=Transition(id=number))
        return bool(self.call(ChangeState, f'{node}/change_state', request).success)

    def state(self, node: str) -> str:
        """Return the lifecycle state of a node."""
        return str(self.call(GetState, f'{node}/get_state').current_state.label)

    def _wait(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        pause = threading.Event()
        for _ in range(max(1, round(timeout_s / POLL_S))):
            if condition():
                return
            self._check()
            pause.wait(POLL_S)
        raise ServiceTimeoutError(f'{what} within {timeout_s:.0f} s')
