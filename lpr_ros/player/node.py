r"""Play a bag, a KITTI sequence or packed scans as ROS topics.

    lpr_player drive.mcap                                   # real time, with /clock
    lpr_player drive.mcap --rate 2 --start 30 --duration 60
    lpr_player kitti/sequences/05 --rate 0 --wait 1         # as fast as subscribers keep up
    lpr_player drive.mcap --points points                   # its only cloud topic, on /points
    lpr_player scans.npz --ros-args -r /points:=/velodyne_points

Messages keep their stamps, and /clock is published for nodes with use_sim_time. KITTI sequences
and packed scans are published on /points, /odometry and, if known, /ground_truth. Ctrl-C ends the
playback with exit status 0.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
import signal
import sys
import time
from types import FrameType
from typing import Any

from nav_msgs.msg import Odometry
import rclpy
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import PointCloud2
from tqdm import tqdm

from lpr_ros.conversions.poses import time_message
from lpr_ros.core.errors import DatasetError, LprError
from lpr_ros.core.recordings.bag_index import STATIC_TRANSFORMS
from lpr_ros.core.recordings.bag_reader import is_ground_truth
from lpr_ros.core.timing import NS_PER_S
from lpr_ros.player.sources import CLOCK, Playback, open_playback
from lpr_ros.ros_utils.spin import STOP_SIGNALS, ignore_signals, user_arguments

BAR_FORMAT = '{desc}{percentage:3.0f}% |{bar}| {n:.1f}/{total:.1f} s, {elapsed} elapsed'
CLOCK_PERIOD_S = 0.01
# Subscribers that acknowledge nothing take the last message out of shared memory, which goes away
# with this process.
LINGER_S = 0.5
ACK_TIMEOUT_S = 10.0  # for a subscriber that does not respond
DEPTH = 10
# With a history of 1, Fast DDS requests the acknowledgment at once: 5 ms instead of up to 3 s.
UNTHROTTLED_DEPTH = 1


class Player:
    """Publish timed messages and the clock between them."""

    def __init__(self, node: Node, topics: dict[str, Any], names: dict[str, str], rate: float):
        """Publish topics of these message classes, some of them under other names."""
        self._log = node.get_logger()
        self._rate = rate
        depth = DEPTH if rate > 0.0 else UNTHROTTLED_DEPTH
        self._publishers = {
            topic: node.create_publisher(kind, names.get(topic, topic), _qos(topic, depth))
            for topic, kind in topics.items()
        }
        self._clouds = [self._publishers[t] for t, kind in topics.items() if kind is PointCloud2]
        self._clock = node.create_publisher(Clock, CLOCK, DEPTH)

    def wait_for_subscribers(self, count: int) -> None:
        """Wait until a cloud topic (any topic if there is none) has this many subscribers."""
        watched = self._clouds or list(self._publishers.values())
        names = ' or '.join(publisher.topic_name for publisher in watched)
        logged = None
        while (found := max((p.get_subscription_count() for p in watched), default=count)) < count:
            if found != logged:
                self._log.info(f'waiting for subscribers of {names}: {found} of {count}')
                logged = found
            time.sleep(CLOCK_PERIOD_S)

    def play(self, source: Playback, start_ns: int, stop_ns: int, bar: Any) -> None:
        """Publish the messages due in [start_ns, stop_ns] once."""
        started, now_ns = time.monotonic(), start_ns
        for timed in source.messages(start_ns, stop_ns):
            if self._rate > 0.0:
                self._wait(started, start_ns, timed.time_ns)
            self._tick(timed.time_ns)
            publisher = self._publishers[timed.topic]
            publisher.publish(timed.message)
            if self._rate == 0.0:
                _wait_for_ack(publisher)
            bar.update((timed.time_ns - now_ns) / NS_PER_S)
            now_ns = timed.time_ns
        bar.update((stop_ns - now_ns) / NS_PER_S)
        for publisher in self._publishers.values():
            _wait_for_ack(publisher)

    def _wait(self, started: float, start_ns: int, time_ns: int) -> None:
        """Sleep until a message is due while publishing the clock."""
        due = started + (time_ns - start_ns) / NS_PER_S / self._rate
        while (left := due - time.monotonic()) > 0.0:
            self._tick(time_ns - int(left * self._rate * NS_PER_S))
            time.sleep(min(left, CLOCK_PERIOD_S))

    def _tick(self, time_ns: int) -> None:
        self._clock.publish(Clock(clock=time_message(time_ns)))


def build_parser() -> argparse.ArgumentParser:
    """Declare the command line."""
    parser = argparse.ArgumentParser(
        prog='lpr_player',
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        'source',
        type=Path,
        nargs='+',
        help='bag, KITTI sequence or .npz to play; several paths are the parts of a split bag',
    )
    parser.add_argument(
        '--rate',
        type=float,
        default=1.0,
        help='playback speed as a factor of real time; 0: as fast as reliable subscribers keep up',
    )
    parser.add_argument(
        '--start', type=float, default=0.0, metavar='S', help='seconds to skip at the beginning'
    )
    parser.add_argument(
        '--duration', type=float, metavar='S', help='seconds to play (default: until the end)'
    )
    parser.add_argument('--loop', action='store_true', help='restart at the end')
    parser.add_argument(
        '--wait',
        type=int,
        default=0,
        metavar='N',
        help='start when the cloud topic has N subscribers',
    )
    parser.add_argument(
        '--points',
        default='',
        metavar='TOPIC',
        help='topic of the scans; if the recording has none of this name, its only PointCloud2 '
        'topic is published under it',
    )
    parser.add_argument(
        '--odometry', default='', metavar='TOPIC', help='the same for nav_msgs/Odometry'
    )
    parser.add_argument('--quiet', action='store_true', help='hide the progress bar')
    return parser


def run(args: argparse.Namespace, node: Node) -> None:
    """Play a recording as the command line says."""
    source = open_playback(args.source)
    for topic, reason in source.missing.items():
        node.get_logger().warning(f'{topic} is not played: {reason}')
    start_ns, stop_ns = _span(args, source)
    names = published_names(node, source.topics, args.points, args.odometry)
    player = Player(node, source.topics, names, args.rate)
    player.wait_for_subscribers(args.wait)
    while True:
        seconds = (stop_ns - start_ns) / NS_PER_S
        with tqdm(total=seconds, unit='s', disable=args.quiet, bar_format=BAR_FORMAT) as bar:
            player.play(source, start_ns, stop_ns, bar)
        if not args.loop:
            time.sleep(LINGER_S)
            return


def published_names(
    node: Node, topics: dict[str, Any], points: str, odometry: str
) -> dict[str, str]:
    """Return the names of recorded topics to publish under another name, and log what is played.

    DatasetError if the recording has no scans, or several topics and none of the name asked for.
    """
    names = {}
    for kind, requested in ((PointCloud2, points), (Odometry, odometry)):
        found = [topic for topic, played in topics.items() if played is kind]
        wanted = node.resolve_topic_name(requested) if requested else ''
        node.get_logger().info(f'{kind.__name__}: {", ".join(sorted(found)) or "no topic"}')
        if not wanted or wanted in found:
            continue
        estimates = [topic for topic in found if not is_ground_truth(topic)]
        if len(estimates) == 1:
            names[estimates[0]] = wanted
            node.get_logger().info(f'{estimates[0]} is published as {wanted}')
        elif estimates:
            argument = 'points' if kind is PointCloud2 else 'odometry'
            raise DatasetError(
                f'the recording has no {wanted} but {len(estimates)} topics of the type '
                f'{kind.__name__}: choose one with {argument}, {" or ".join(sorted(estimates))}'
            )
        elif kind is PointCloud2:
            raise DatasetError(
                f'the recording has no PointCloud2 topic, only {", ".join(sorted(topics))}'
            )
    return names


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, also when interrupted, or 1 on bad input."""
    arguments = sys.argv if argv is None else ['lpr_player', *argv]
    args = build_parser().parse_args(user_arguments(arguments))
    _interrupt_once()
    rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
    try:
        node = Node('lpr_player')
        run(args, node)
    except LprError as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0  # the usual end of a playback
    finally:
        rclpy.try_shutdown()
        ignore_signals()
    return 0


def _interrupt_once() -> None:
    """Stop on the first signal and ignore further ones, which `ros2 launch` sends."""
    is_interrupted = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal is_interrupted
        if not is_interrupted:
            is_interrupted = True
            raise KeyboardInterrupt

    for number in STOP_SIGNALS:
        signal.signal(number, handle)


def _span(args: argparse.Namespace, source: Playback) -> tuple[int, int]:
    """Return the start and stop times to play; DatasetError if nothing is left."""
    first_ns, last_ns = source.span_ns
    start_ns = first_ns + int(args.start * NS_PER_S)
    stop_ns = last_ns
    if args.duration is not None:
        stop_ns = min(stop_ns, start_ns + int(args.duration * NS_PER_S))
    if args.rate < 0.0 or args.start < 0.0 or stop_ns < start_ns:
        seconds = (last_ns - first_ns) / NS_PER_S
        raise DatasetError(
            f'expected a rate of 0 or more and a start and duration within the {seconds:.1f} s of '
            f'the recording, got rate {args.rate}, start {args.start}, duration {args.duration}'
        )
    return start_ns, stop_ns


def _qos(topic: str, depth: int) -> QoSProfile:
    qos = QoSProfile(depth=depth, reliability=ReliabilityPolicy.RELIABLE)
    if topic == STATIC_TRANSFORMS:  # published once, for late subscribers
        qos.depth, qos.durability = 100, DurabilityPolicy.TRANSIENT_LOCAL
    return qos


def _wait_for_ack(publisher: Publisher) -> None:
    """Wait until reliable subscribers have all messages, in steps that Ctrl-C interrupts."""
    end = time.monotonic() + ACK_TIMEOUT_S
    while not publisher.wait_for_all_acked(Duration(seconds=0.1)) and time.monotonic() < end:
        pass
