"""Run one node until it is told to end."""

from collections.abc import Callable, Sequence
from contextlib import suppress
import signal
import sys

import rclpy
from rclpy.executors import ExternalShutdownException, MultiThreadedExecutor
from rclpy.node import Node

from lpr_ros.core.errors import LprError


def run_node(
    make_node: Callable[[], Node], argv: Sequence[str] | None = None, *, threads: int = 1
) -> int:
    """Spin a node; the exit status is 0 after SIGINT or SIGTERM, 1 if it could not be made.

    Both signals end the context, which ends spinning. Python's own KeyboardInterrupt is switched
    off: a second signal, as `ros2 launch` sends, must not break the cleaning up.
    """
    signal.signal(signal.SIGINT, lambda number, frame: None)
    rclpy.init(args=argv)
    try:
        node = make_node()
        try:
            executor = MultiThreadedExecutor(threads) if threads > 1 else None
            with suppress(ExternalShutdownException):
                rclpy.spin(node, executor)
        finally:
            node.destroy_node()
    except LprError as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    finally:
        rclpy.try_shutdown()
    return 0
