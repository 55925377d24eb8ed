"""What the nodes of the demonstration say, gathered in this process."""

from collections.abc import Callable
import threading
import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from nav_msgs.msg import Odometry, Path
import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from std_srvs.srv import Trigger

from lpr_ros.core.errors import LprError
from lpr_ros.core.records import LoopClosure
from lpr_ros.loop_messages import loop_from_constraint
from lpr_ros.qos import LATCHED, LOOPS

ANSWER_S = 60.0


class Listener:
    """A node that listens; its fields are what came last."""

    def __init__(self) -> None:
        rclpy.init()
        self._node = rclpy.create_node('demo')
        self.loops: list[LoopClosure] = []
        self.corrected: Path | None = None
        self.status: dict[str, str] = {}
        self.status_count = 0
        self.listen = self._node.create_subscription
        self.publisher = self._node.create_publisher
        self.listen(Odometry, 'lpr_node/loop_closures', self._on_loop, LOOPS)
        self.listen(Path, 'pose_graph_node/path', self._on_path, LATCHED)
        self.listen(DiagnosticArray, '/diagnostics', self._on_status, 10)
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self._node)
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._thread.start()

    def count(self, name: str) -> int:
        """Return what lpr_node counted under a name."""
        return int(self.status.get(name, 0))

    def subscribers(self, topic: str) -> int:
        """Return how many listen to a topic."""
        return int(self._node.count_subscribers(topic))

    def call(self, service: str) -> str:
        """Call a Trigger service and return its message; LprError where it did not succeed."""
        client = self._node.create_client(Trigger, service)
        if not client.wait_for_service(ANSWER_S):
            raise LprError(f'no service {service} within {ANSWER_S} s')
        answered = threading.Event()
        future = client.call_async(Trigger.Request())
        future.add_done_callback(lambda _: answered.set())
        if not answered.wait(ANSWER_S):
            raise LprError(f'{service}: no answer within {ANSWER_S} s')
        answer: Any = future.result()
        if not answer.success:
            raise LprError(f'{service}: {answer.message}')
        return str(answer.message)

    def close(self) -> None:
        """Stop listening."""
        self._executor.shutdown()
        self._node.destroy_node()
        rclpy.try_shutdown()
        self._thread.join()

    def _on_loop(self, message: Odometry) -> None:
        self.loops.append(loop_from_constraint(message))

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
    """Wait until something is true; LprError names what did not come."""
    end_s = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() > end_s:
            raise LprError(f'{what}: not within {timeout_s:.0f} s')
        time.sleep(0.05)
