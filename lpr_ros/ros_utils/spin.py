"""Spin one node until it is asked to stop."""

import argparse
from collections.abc import Callable, Sequence
from contextlib import suppress
import queue
import signal
import sys
import threading

import rclpy
from rclpy.context import Context
from rclpy.executors import (
    Executor,
    ExternalShutdownException,
    InvalidHandle,  # rclpy.exceptions has it from Jazzy on only
    MultiThreadedExecutor,
    SingleThreadedExecutor,
)
from rclpy.node import Node
from rclpy.utilities import remove_ros_args

from lpr_ros.core.errors import LprError

ROS_ARGUMENTS = """arguments of ROS, after --ros-args:
  -p NAME:=VALUE       set a parameter
  -r FROM:=TO          rename a topic or service; __ns:=/NAME sets the namespace
  --params-file FILE   set the parameters in a YAML file
  --log-level LEVEL    debug, info, warn or error"""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
MAX_INVALID_HANDLES = 100  # in a row; more mean that the node keeps an entity that is gone


class NodeExecutor(MultiThreadedExecutor):
    """A MultiThreadedExecutor that can destroy entities of a node while it spins.

    rclpy raises InvalidHandle, or never runs a callback group again, if a callback destroys a
    publisher, subscription or timer while another thread builds the wait set.
    """

    def __init__(self, threads: int, *, context: Context | None = None):
        super().__init__(threads, context=context)
        self._deferred: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._spinning_thread = 0

    def run_between_waits(self, work: Callable[[], object]) -> None:
        """Have the spinning thread call `work` before it builds the next wait set. Any thread."""
        self._deferred.put(work)
        self.wake()

    def spin_once(self, timeout_sec: float | None = None) -> None:
        """Wait for one callback and hand it to a thread."""
        self._spinning_thread = threading.get_ident()
        super().spin_once(timeout_sec)

    def get_nodes(self) -> list[Node]:
        """Return the nodes. The spinning thread asks for them before it builds each wait set."""
        if threading.get_ident() == self._spinning_thread:
            with suppress(queue.Empty):
                while True:
                    self._deferred.get_nowait()()
        nodes: list[Node] = super().get_nodes()
        return nodes


def destroy_safely(node: Node, destroy: Callable[[], object]) -> None:
    """Call `destroy`, which destroys entities of the node, while no wait set is being built."""
    executor = node.executor
    if isinstance(executor, NodeExecutor):
        executor.run_between_waits(destroy)
    else:
        destroy()


def run_node(
    make_node: Callable[[], Node],
    argv: Sequence[str] | None = None,
    *,
    name: str,
    description: str,
    threads: int = 1,
) -> int:
    """Spin a node; return 0 after SIGINT or SIGTERM, 1 if the node could not be created.

    `name` and `description` are for --help; all other arguments are those of ROS.

    rclpy shuts down its context on both signals, which ends the spinning. Python's own
    KeyboardInterrupt is disabled: a second signal, as sent by `ros2 launch`, must not interrupt
    the cleanup.
    """
    parser = argparse.ArgumentParser(
        prog=name,
        description=description,
        epilog=ROS_ARGUMENTS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(user_arguments(argv))
    for number in STOP_SIGNALS:
        signal.signal(number, lambda number, frame: None)
    rclpy.init(args=argv)
    try:
        node = make_node()
        try:
            spin(node, NodeExecutor(threads) if threads > 1 else SingleThreadedExecutor())
        finally:
            node.destroy_node()
    except LprError as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    except Exception:
        if rclpy.ok():
            raise
        # A signal shut down the context while it was in use.
    finally:
        rclpy.try_shutdown()
        ignore_signals()
    return 0


def user_arguments(argv: Sequence[str] | None = None) -> list[str]:
    """Return the arguments that are not for ROS; exit with a line if those for ROS are bad."""
    try:
        arguments: list[str] = remove_ros_args(argv)[1:]
    except RuntimeError as error:
        raise SystemExit(f'error: {error}') from None
    return arguments


def spin(node: Node, executor: Executor) -> None:
    """Run the callbacks of a node until its context is shut down.

    An entity destroyed while its callback was about to run raises InvalidHandle: the other
    callbacks must not suffer from that.
    """
    executor.add_node(node)
    failures = 0
    try:
        while node.context.ok():
            try:
                executor.spin_once()
                failures = 0
            except ExternalShutdownException:
                return
            except InvalidHandle as error:
                failures += 1
                if failures > MAX_INVALID_HANDLES:
                    raise
                node.get_logger().debug(f'skipped a callback of a destroyed entity: {error}')
    finally:
        executor.remove_node(node)


def ignore_signals() -> None:
    """Ignore SIGINT and SIGTERM from here on: Python restores their defaults while it exits."""
    # Blocked first: a signal that arrives while its handler is replaced is reported as an error.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
