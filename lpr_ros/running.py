"""How our nodes run: until SIGINT or SIGTERM, however often they come, and then clean up."""

from collections.abc import Callable, Sequence
import signal
import threading

import rclpy
from rclpy.executors import ExternalShutdownException, MultiThreadedExecutor
from rclpy.logging import get_logger
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from lpr_ros.core.errors import LprError

THREADS = 2  # one for topics, one for slow services


def run(make_node: Callable[[], Node], args: Sequence[str] | None = None) -> int:
    """Spin a node until a signal; return 0, or 1 where it could not be made or failed."""
    ended = threading.Event()
    # The handlers only set an event: a second signal cannot interrupt the cleaning up.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    try:
        node = make_node()
    except LprError as error:
        get_logger('lpr_ros').fatal(str(error))
        rclpy.try_shutdown()
        return 1
    executor = MultiThreadedExecutor(num_threads=THREADS)
    executor.add_node(node)
    failures: list[Exception] = []

    def spin() -> None:
        try:
            executor.spin()
        except ExternalShutdownException:
            pass
        except Exception as error:
            failures.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=spin)
    thread.start()
    ended.wait()
    executor.shutdown()
    thread.join()
    for error in failures:
        node.get_logger().fatal(f'{type(error).__name__}: {error}')
    node.destroy_node()
    rclpy.try_shutdown()
    return int(bool(failures))
