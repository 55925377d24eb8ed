"""Run one node until it is told to end."""

from collections.abc import Callable, Sequence
from contextlib import suppress
import signal
import sys

import rclpy
from rclpy.executors import ExternalShutdownException, MultiThreadedExecutor
from rclpy.node import Node

from lpr_ros.core.errors import LprError

ENDING = (signal.SIGINT, signal.SIGTERM)


def run_node(
    make_node: Callable[[], Node], argv: Sequence[str] | None = None, *, threads: int = 1
) -> int:
    """Spin a node; the exit status is 0 after SIGINT or SIGTERM, 1 if it could not be made.

    rclpy ends the context on both signals, which ends spinning. Python's own KeyboardInterrupt is
    switched off: a second signal, as `ros2 launch` sends, must not break the cleaning up.
    """
    for number in ENDING:
        signal.signal(number, lambda number, frame: None)
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
    except Exception:
        if rclpy.ok():
            raise
        # A signal ended the context under whoever was using it: not an error but the end.
    finally:
        rclpy.try_shutdown()
        ignore_signals()
    return 0


def ignore_signals() -> None:
    """From here on signals do nothing: Python makes them deadly again while it ends."""
    # Blocked first: one that comes while its handler is replaced would be reported as an error.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
