"""lpr_node: point clouds and odometry in, loop closures out. A lifecycle node.

It only converts, hands on and publishes; what is found is the core's doing. Callbacks return at
once: one worker waits for odometry and describes, another has candidates verified.
"""

from collections.abc import Callable, Sequence
import sys
import threading
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from std_srvs.srv import Trigger

from lpr_ros.core.errors import LprError, named
from lpr_ros.diagnostics import Diagnostics
from lpr_ros.engine import Engine
from lpr_ros.node_config import NodeConfig
from lpr_ros.parameters import ConfigParameters
from lpr_ros.running import run_node
from lpr_ros.statistics import Statistics

THREADS = 2  # one for topics, one for what is slow
# Python hands its lock on after 5 ms by default; taking a scan needs it many times, and a scan
# that is not taken before the next one comes is lost.
SWITCH_S = 0.0005
SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


class LprNode(LifecycleNode):
    """Configured, it has weights, a map and workers; active, it is subscribed."""

    def __init__(self, **options: Any):
        super().__init__('lpr_node', **options)
        self._settings = ConfigParameters(self, NodeConfig())
        self._engine: Engine | None = None
        self._engine_lock = threading.RLock()  # transitions and map services come in two threads
        self._state = 'unconfigured'
        self._statistics = Statistics()
        self._diagnostics = Diagnostics(self.get_fully_qualified_name(), self._statistics)
        self._status = self.create_publisher(DiagnosticArray, '/diagnostics', 10)
        # What takes long must not hold back scans: of those that wait in DDS the older are lost.
        slow = MutuallyExclusiveCallbackGroup()
        # Simulated time may stand still, which is when one wants to know why.
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self.create_timer(1.0, self._tick, callback_group=slow, clock=steady)
        for name in ('save_map', 'load_map', 'reset'):
            self.create_service(
                Trigger, f'~/{name}', self._map_service(name), callback_group=slow
            )

    def start(self) -> None:
        """Configure and activate where the parameter asks for it; LprError says why not."""
        if not self._settings.read().autostart:
            return
        if self.trigger_configure() != SUCCESS or self.trigger_activate() != SUCCESS:
            raise LprError('cannot be started: the reason is above')

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load weights and map; with a wrong setting all stays as it was."""
        with self._engine_lock:
            try:
                config = self._settings.read()
                self._engine = Engine(self, config, self._statistics)
            except Exception as error:  # of others rclpy says nothing
                self.get_logger().error(f'cannot be configured: {named(error)}')
                return FAILURE
            self._settings.watch(self._engine.reconfigure)
            self._state = 'inactive'
        return super().on_configure(state)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Take scans and odometry."""
        with self._engine_lock:
            if self._engine is not None:
                self._engine.subscribe()
            self._state = 'active'
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Take no more of them; the places stay."""
        with self._engine_lock:
            if self._engine is not None:
                self._engine.unsubscribe()
            self._state = 'inactive'
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Give back weights, places and workers."""
        self._close('unconfigured')
        return super().on_cleanup(state)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Do the same from any state."""
        self._close('finalized')
        return super().on_shutdown(state)

    def destroy_node(self) -> None:
        """Stop the workers too: they would keep the process alive."""
        self._close('finalized')
        super().destroy_node()

    def _close(self, state: str) -> None:
        with self._engine_lock:
            self._settings.unwatch()
            self._state = state
            if self._engine is not None:
                self._engine.close()
                self._engine = None

    def _map_service(self, name: str) -> Callable[[Any, Any], Any]:
        """Return the callback of a service that the engine's method of that name answers."""

        def answer(request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
            with self._engine_lock:
                try:
                    if self._engine is None:
                        raise LprError(f'{name}: the node is {self._state}, expected configured')
                    response.message = getattr(self._engine, name)()
                    response.success = True
                    self.get_logger().info(response.message)
                except Exception as error:  # one that gets out ends the node
                    response.message = named(error)
                    response.success = False
                    self.get_logger().error(response.message)
            return response

        return answer

    def _tick(self) -> None:
        """Say how it goes, unless a transition or a map service is at work."""
        if not self._engine_lock.acquire(blocking=False):
            return
        try:
            now_ns = self.get_clock().now().nanoseconds
            about = {} if self._engine is None else self._engine.tick(now_ns)
            self._status.publish(self._diagnostics.message(now_ns, self._state, about))
        finally:
            self._engine_lock.release()


def make_node() -> LprNode:
    """Make the node, started where the parameters say so."""
    node = LprNode()
    try:
        node.start()
    except BaseException:
        node.destroy_node()
        raise
    return node


def main(argv: Sequence[str] | None = None) -> int:
    """Run the node until SIGINT or SIGTERM."""
    sys.setswitchinterval(SWITCH_S)
    return run_node(make_node, argv, threads=THREADS)


if __name__ == '__main__':
    raise SystemExit(main())
