"""lpr_node: the lifecycle node with its services, parameters and timer.

Callbacks return quickly: one worker thread waits for odometry and describes scans, another one
verifies candidates.
"""

from collections.abc import Callable, Sequence
import sys
import threading
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from lifecycle_msgs.srv import ChangeState
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from std_srvs.srv import Trigger

from lpr_ros.core.errors import LprError, error_with_type, utf8_text
from lpr_ros.lpr_node.config import NodeConfig
from lpr_ros.lpr_node.connections import Connections
from lpr_ros.lpr_node.diagnostics import Diagnostics
from lpr_ros.lpr_node.runtime import LprRuntime
from lpr_ros.ros_utils.parameters import ConfigParameters
from lpr_ros.ros_utils.spin import run_node

HELP = """Recognize places that were visited before, and publish verified loop closures.

Subscribes to points (sensor_msgs/PointCloud2) and odometry (nav_msgs/Odometry); publishes
~/loop_closures (nav_msgs/Odometry). All topics, services and parameters: docs/node.md.
    lpr_node --ros-args -p autostart:=true -r points:=/velodyne_points -r odometry:=/odom"""
THREADS = 2  # one for topics, one for slow services
# Python switches threads every 5 ms by default. Taking a scan needs the GIL many times, and a
# scan that is not taken before the next two arrive is lost.
SWITCH_INTERVAL_S = 0.0005
# Of pose_graph_node: one file may have the parameters of both.
POSE_GRAPH_PARAMETERS = ('g2o_path', 'map_frame', 'optimizer', 'path_interval_s')
SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


class LprNode(LifecycleNode):
    """Configured, it has weights, a map and workers; active, it processes scans."""

    def __init__(self, **options: Any):
        super().__init__('lpr_node', **options)
        self._settings = ConfigParameters(self, NodeConfig(), others=POSE_GRAPH_PARAMETERS)
        self._runtime: LprRuntime | None = None
        self._runtime_lock = threading.RLock()  # transitions and services run in two threads
        self._state = 'unconfigured'
        self._connections = Connections(self)
        self._diagnostics = Diagnostics(
            self.get_fully_qualified_name(), self._connections.events.statistics
        )
        self._status = self.create_publisher(DiagnosticArray, '/diagnostics', 10)
        # Slow callbacks must not delay scans, of which DDS keeps only the newest.
        slow = MutuallyExclusiveCallbackGroup()
        # Simulated time may stand still, which is when the diagnostics are needed.
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self.create_timer(1.0, self._tick, callback_group=slow, clock=steady)
        self.create_service(Trigger, '~/save_map', self._on_save_map, callback_group=slow)
        self.create_service(Trigger, '~/load_map', self._on_load_map, callback_group=slow)
        self.create_service(Trigger, '~/reset', self._on_reset, callback_group=slow)
        self._reject_invalid_transitions()

    def _reject_invalid_transitions(self) -> None:
        """Make change_state answer false to a transition that the current state does not allow.

        The callback of rclpy raises, which would end the node.
        """
        (service,) = (s for s in self.services if s.srv_type is ChangeState)
        change = service.callback

        def change_state(
            request: ChangeState.Request, response: ChangeState.Response
        ) -> ChangeState.Response:
            try:
                return change(request, response)
            except Exception as error:
                self.get_logger().error(
                    f'transition {request.transition.id} in state {self._state}: '
                    f'{error_with_type(error)}'
                )
                return ChangeState.Response(success=False)

        service.callback = change_state

    def start(self) -> None:
        """Configure and activate if the parameter autostart is set; LprError if that fails."""
        if not self._settings.read().autostart:
            self.get_logger().info(
                'unconfigured: waiting for a lifecycle manager (ros2 lifecycle set '
                f'{self.get_fully_qualified_name()} configure, then activate); with '
                'autostart:=true the node does both by itself'
            )
            return
        if self.trigger_configure() != SUCCESS or self.trigger_activate() != SUCCESS:
            raise LprError('startup failed, see the errors above')

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load weights and map; an invalid setting leaves the node unconfigured."""
        with self._runtime_lock:
            try:
                config = self._settings.read()
                self._runtime = LprRuntime(self, config, self._connections)
            except Exception as error:  # rclpy would not log it
                self._log_error('cannot be configured', error)
                return FAILURE
            self._settings.watch(self._runtime.reconfigure)
            self._state = 'inactive'
        return super().on_configure(state)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Process scans and odometry."""
        with self._runtime_lock:
            try:
                if self._runtime is not None:
                    self._runtime.activate()
            except Exception as error:
                self._log_error('cannot be activated', error)
                return FAILURE
            self._state = 'active'
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Ignore scans and odometry; keep the keyframes."""
        with self._runtime_lock:
            if self._runtime is not None:
                self._runtime.deactivate()
            self._state = 'inactive'
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Save the map; release weights, keyframes and workers."""
        self._close('unconfigured')
        return super().on_cleanup(state)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Clean up from any state."""
        self._close('finalized')
        return super().on_shutdown(state)

    def destroy_node(self) -> None:
        """Stop the workers too: they would keep the process alive."""
        self._close('finalized')
        super().destroy_node()

    def _close(self, state: str) -> None:
        with self._runtime_lock:
            self._settings.unwatch()
            self._state = state
            if self._runtime is not None:
                runtime, self._runtime = self._runtime, None
                runtime.close()

    def _log_error(self, what: str, error: Exception) -> None:
        self.get_logger().error(f'{what}: {error_with_type(error)}')

    def _on_save_map(self, request: Any, response: Trigger.Response) -> Trigger.Response:
        return self._answer(response, LprRuntime.save_map)

    def _on_load_map(self, request: Any, response: Trigger.Response) -> Trigger.Response:
        return self._answer(response, LprRuntime.load_map)

    def _on_reset(self, request: Any, response: Trigger.Response) -> Trigger.Response:
        return self._answer(response, LprRuntime.reset)

    def _answer(
        self, response: Trigger.Response, serve: Callable[[LprRuntime], str]
    ) -> Trigger.Response:
        """Answer a service call with the result of a method of the runtime."""
        with self._runtime_lock:
            try:
                if self._runtime is None:
                    raise LprError(f'the node is {self._state}: configure it first')
                response.message = utf8_text(serve(self._runtime))
                response.success = True
                self.get_logger().info(response.message)
            except Exception as error:  # an exception would end the node
                response.message = error_with_type(error)
                response.success = False
                self.get_logger().error(f'{serve.__name__}: {response.message}')
        return response

    def _tick(self) -> None:
        """Publish the diagnostics, unless a transition or a service is in progress."""
        if not self._runtime_lock.acquire(blocking=False):
            return
        try:
            now_ns = self.get_clock().now().nanoseconds
            status = None
            try:
                if self._runtime is not None:
                    status = self._runtime.tick(now_ns)
            except Exception as error:  # an exception would end the node
                self._connections.events.fault(error)
            self._status.publish(self._diagnostics.message(now_ns, self._state, status))
        finally:
            self._runtime_lock.release()


def make_node() -> LprNode:
    """Create the node and start it if the parameter autostart is set."""
    node = LprNode()
    try:
        node.start()
    except BaseException:
        node.destroy_node()
        raise
    return node


def main(argv: Sequence[str] | None = None) -> int:
    """Run the node until SIGINT or SIGTERM."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    return run_node(make_node, argv, name='lpr_node', description=HELP, threads=THREADS)
