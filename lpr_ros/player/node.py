r"""Play a bag, a KITTI sequence or packed scans as ROS topics.

    lpr_player drive.mcap                                   # as recorded, with /clock
    lpr_player drive.mcap --rate 2 --start 30 --duration 60
    lpr_player kitti/sequences/05 --rate 0 --wait 1         # as fast as it is taken
    lpr_player scans.npz --ros-args -r /points:=/velodyne_points

Messages keep their stamps; /clock runs along, for nodes with use_sim_time. A KITTI sequence or
packed scans come on /points, /odometry and, where it is known, /ground_truth.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
import signal
import sys
import time
from types import FrameType
from typing import Any

import rclpy
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import remove_ros_args
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import PointCloud2
from tqdm import tqdm

from lpr_ros.core.bag_scans import STATIC_TRANSFORMS
from lpr_ros.core.clock import NS_PER_S
from lpr_ros.core.errors import DatasetError, LprError
from lpr_ros.playback import CLOCK, BagSource, Source, open_source
from lpr_ros.pose_messages import time_message
from lpr_ros.running import ENDING, ignore_signals

CLOCK_PERIOD_S = 0.01
LONGEST_WAIT_S = 10.0  # for a listener that does not answer
DEPTH = 10
# With a history of one, Fast DDS asks for the acknowledgement at once: 5 ms, otherwise up to 3 s.
DEPTH_AT_FULL_SPEED = 1


class Player:
    """Publishes timed messages, and the clock between them."""

    def __init__(self, node: Node, topics: dict[str, Any], rate: float):
        self._log = node.get_logger()
        self._rate = rate
        depth = DEPTH if rate > 0.0 else DEPTH_AT_FULL_SPEED
        self._publishers = {
            topic: node.create_publisher(kind, topic, _qos(topic, depth))
            for topic, kind in topics.items()
        }
        self._clouds = [self._publishers[t] for t, kind in topics.items() if kind is PointCloud2]
        self._clock = node.create_publisher(Clock, CLOCK, DEPTH)

    def wait_for_listeners(self, count: int) -> None:
        """Wait until so many listen to a topic of clouds, or to any where there is none."""
        watched = self._clouds or list(self._publishers.values())
        names = ' or '.join(publisher.topic_name for publisher in watched)
        told = None
        while (here := max((p.get_subscription_count() for p in watched), default=count)) < count:
            if here != told:
                self._log.info(f'waiting for listeners to {names}: {here} of {count} are there')
                told = here
            time.sleep(CLOCK_PERIOD_S)

    def play(self, source: Source, start_ns: int, stop_ns: int, bar: Any) -> None:
        """Publish what is due in this time, once."""
        began, now_ns = time.monotonic(), start_ns
        for timed in source.messages(start_ns, stop_ns):
            if self._rate > 0.0:
                self._wait(began, start_ns, timed.time_ns)
            self._tick(timed.time_ns)
            publisher = self._publishers[timed.topic]
            publisher.publish(timed.message)
            if self._rate == 0.0:
                _acknowledged(publisher)
            bar.update((timed.time_ns - now_ns) / NS_PER_S)
            now_ns = timed.time_ns
        bar.update((stop_ns - now_ns) / NS_PER_S)
        for publisher in self._publishers.values():
            _acknowledged(publisher)

    def _wait(self, began: float, start_ns: int, time_ns: int) -> None:
        """Sleep until a message is due, with the clock running."""
        due = began + (time_ns - start_ns) / NS_PER_S / self._rate
        while (left := due - time.monotonic()) > 0.0:
            self._tick(time_ns - int(left * self._rate * NS_PER_S))
            time.sleep(min(left, CLOCK_PERIOD_S))

    def _tick(self, time_ns: int) -> None:
        self._clock.publish(Clock(clock=time_message(time_ns)))


def build_parser() -> argparse.ArgumentParser:
    """Declare the command line."""
    parser = argparse.ArgumentParser(
        prog='lpr_player', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument('source', type=Path, nargs='+', help='what to play; parts of a split bag')
    parser.add_argument('--rate', type=float, default=1.0,
                        help='times real time; 0: as fast as reliable listeners take it')
    parser.add_argument('--start', type=float, default=0.0, metavar='S', help='seconds left out')
    parser.add_argument('--duration', type=float, metavar='S', help='seconds played; default all')
    parser.add_argument('--loop', action='store_true', help='begin again at the end')
    parser.add_argument('--wait', type=int, default=0, metavar='N',
                        help='begin when so many listen to the clouds')
    parser.add_argument('--quiet', action='store_true', help='no progress bar')
    return parser


def run(args: argparse.Namespace, node: Node) -> None:
    """Play what was asked for."""
    source = open_source(args.source)
    if isinstance(source, BagSource):
        for topic, reason in source.missing.items():
            node.get_logger().warning(f'{topic} is left out: {reason}')
    start_ns, stop_ns = _span(args, source)
    player = Player(node, source.topics, args.rate)
    player.wait_for_listeners(args.wait)
    while True:
        seconds = (stop_ns - start_ns) / NS_PER_S
        with tqdm(
            total=seconds, unit='s', disable=args.quiet,
            bar_format='{desc}{percentage:3.0f}% |{bar}| {n:.1f}/{total:.1f} s, {elapsed} elapsed',
        ) as bar:  # fmt: skip
            player.play(source, start_ns, stop_ns, bar)
        if not args.loop:
            return


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, 1 on bad input, 130 on Ctrl-C."""
    arguments = sys.argv if argv is None else ['lpr_player', *argv]
    args = build_parser().parse_args(remove_ros_args(arguments)[1:])
    _interrupt_once()
    rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
    try:
        node = Node('lpr_player')
        run(args, node)
    except LprError as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        rclpy.try_shutdown()
        ignore_signals()
    return 0


def _interrupt_once() -> None:
    """Let the first signal end the play, and the next ones, as of `ros2 launch`, do nothing."""
    is_ending = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal is_ending
        if not is_ending:
            is_ending = True
            raise KeyboardInterrupt

    for number in ENDING:
        signal.signal(number, handle)


def _span(args: argparse.Namespace, source: Source) -> tuple[int, int]:
    """Return the times to play between; DatasetError where nothing is left."""
    first_ns, last_ns = source.span_ns
    start_ns = first_ns + int(args.start * NS_PER_S)
    stop_ns = last_ns
    if args.duration is not None:
        stop_ns = min(stop_ns, start_ns + int(args.duration * NS_PER_S))
    if args.rate < 0.0 or args.start < 0.0 or stop_ns < start_ns:
        seconds = (last_ns - first_ns) / NS_PER_S
        raise DatasetError(
            f'expected a rate of 0 or more and a part of {seconds:.1f} s of recording, got rate '
            f'{args.rate}, start {args.start}, duration {args.duration}'
        )
    return start_ns, stop_ns


def _qos(topic: str, depth: int) -> QoSProfile:
    qos = QoSProfile(depth=depth, reliability=ReliabilityPolicy.RELIABLE)
    if topic == STATIC_TRANSFORMS:  # sent once, for all who come later
        qos.depth, qos.durability = 100, DurabilityPolicy.TRANSIENT_LOCAL
    return qos


def _acknowledged(publisher: Publisher) -> None:
    """Wait until those who listen reliably have what was sent; in steps that Ctrl-C ends."""
    end = time.monotonic() + LONGEST_WAIT_S
    while not publisher.wait_for_all_acked(Duration(seconds=0.1)) and time.monotonic() < end:
        pass


if __name__ == '__main__':
    sys.exit(main())
