"""Collect what lpr_node and pose_graph_node publish, and call their services."""

from collections import Counter
from collections.abc import Callable
import threading
import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from nav_msgs.msg import Odometry, Path
import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node

from lpr_ros.conversions.loops import loop_from_constraint
from lpr_ros.core.errors import LprError
from lpr_ros.core.types import LoopClosure
from lpr_ros.ros_utils.qos import LATCHED, LOOPS
from lpr_training.harness.service_calls import ServiceCalls


class Listener:
    """A node whose attributes hold the latest messages."""

    def __init__(self) -> None:
        rclpy.init()
        self._node = rclpy.create_node('listener')
        self.services = ServiceCalls(self._node)
        self.loops: list[LoopClosure] = []  # all that were published
        self.retracted: list[LoopClosure] = []
        self.corrected: Path | None = None
        self.status: dict[str, str] = {}
        self.status_count = 0
        self.subscribe = self._node.create_subscription
        self.create_publisher = self._node.create_publisher
        self.subscribe(Odometry, 'lpr_node/loop_closures', self._on_loop, LOOPS)
        self.subscribe(Odometry, 'lpr_node/retracted_loop_closures', self._on_retraction, LOOPS)
        self.subscribe(Path, 'pose_graph_node/path', self._on_path, LATCHED)
        self.subscribe(DiagnosticArray, '/diagnostics', self._on_status, 10)
        self._nodes = [self._node]
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self._node)
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._thread.start()

    def standing_loops(self) -> list[LoopClosure]:
        """Return the loop closures published more often than retracted, in whatever order."""
        surplus = Counter(loop.key for loop in self.loops)
        surplus.subtract(loop.key for loop in self.retracted)
        by_key = {loop.key: loop for loop in self.loops}
        return [loop for key, loop in by_key.items() if surplus[key] > 0]

    def count(self, name: str) -> int:
        """Return a counter of the diagnostics of lpr_node."""
        return int(self.status.get(name, 0))

    def subscribers(self, topic: str) -> int:
        """Return the number of subscriptions to a topic."""
        return int(self._node.count_subscribers(topic))

    def call(self, service: str) -> str:
        """Call a Trigger service and return its message; raise LprError if it fails."""
        success, message = self.services.trigger(service)
        if not success:
            raise LprError(f'{service}: {message}')
        return message

    def create_node(self, name: str) -> Node:
        """Return another node that is spun here, such as a further client."""
        node = rclpy.create_node(name)
        self._executor.add_node(node)
        self._nodes.append(node)
        return node

    def close(self) -> None:
        """Stop spinning and shut down ROS."""
        self._executor.shutdown()
        for node in self._nodes:
            node.destroy_node()
        rclpy.try_shutdown()
        self._thread.join()

    def _on_loop(self, message: Odometry) -> None:
        self.loops.append(loop_from_constraint(message))

    def _on_retraction(self, message: Odometry) -> None:
        self.retracted.append(loop_from_constraint(message))

    def _on_path(self, message: Path) -> None:
        self.corrected = message

    def _on_status(self, message: DiagnosticArray) -> None:
        for status in message.status:
            if status.name.endswith('lpr_node'):
                self.status = {value.key: value.value for value in status.values}
                self.status_count += 1

    def _spin(self) -> None:
        try:
            self._executor.spin()
        except ExternalShutdownException:
            return


def wait_for(is_true: Callable[[], Any], what: str, timeout_s: float) -> None:
    """Wait until a condition holds; LprError names `what` after the timeout."""
    end_s = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() > end_s:
            raise LprError(f'{what}: timeout after {timeout_s:.0f} s')
        time.sleep(0.05)
