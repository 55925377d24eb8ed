"""The attacks, one function each; ATTACKS is their registry."""

from collections.abc import Callable
from contextlib import suppress
import os
from random import Random
import signal
import time
from typing import Any, NamedTuple

from geometry_msgs.msg import TransformStamped
from nav_msgs.msg import Odometry
from nav_msgs.msg import Path as PathMessage
import rclpy
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import PointCloud2
from visualization_msgs.msg import MarkerArray

from lpr_ros.core.errors import InterfaceError, LprError
from lpr_ros.core.files import sidecar_path
from lpr_ros.core.geometry.se3 import pose_from_euler
from lpr_ros.core.timing import NS_PER_S
from lpr_ros.lpr_node.config import NodeConfig
from lpr_ros.lpr_node.map_lock import MapLock
from lpr_ros.ros_utils.optional_interfaces import interface
from lpr_ros.ros_utils.parameters import leaves
from lpr_ros.ros_utils.qos import LATCHED, LOOPS
from lpr_training.benchmarks.fuzz.mutations import BINARY, damage
from lpr_training.benchmarks.siege import scans
from lpr_training.benchmarks.siege.hostile_paths import HOSTILE_PATHS, give_away, remove
from lpr_training.benchmarks.siege.siege import NODE, Siege
from lpr_training.benchmarks.speed.node import LIDAR_QOS
from lpr_training.harness.service_calls import ServiceCalls, ServiceTimeoutError

GRAPH_TIMEOUT_S, GRAPH_ATTEMPTS = 25.0, 4  # DDS keeps a killed process for 20 s
HOUR_NS = 3600 * NS_PER_S
TF_MESSAGE = 'tf2_msgs/msg/TFMessage'
MAP_SERVICES = ('reset', 'load_map', 'save_map')
WRONG_TYPES: tuple[Any, ...] = (True, 7, 1.5, 'x', [1, 2], ['a'], [True], [float('nan')])


def scan_flood(siege: Siege, rng: Random, calls: ServiceCalls) -> None:
    """Publish scans far faster than the node can process them, some of them damaged."""
    stamp_ns = siege.robot.feed.stamp_ns
    for _ in range(rng.randint(30, 300)):
        cloud, T = siege.random_scan(rng)
        sent, shows_place = scans.damaged(cloud, rng) if rng.random() < 0.3 else (cloud, True)
        sent = scans.copied(sent)
        stamp_ns += rng.randint(1, 2_000_000)
        sent.header.stamp.sec, sent.header.stamp.nanosec = divmod(stamp_ns, NS_PER_S)
        siege.send(sent, stamp_ns, T if shows_place else None)
        time.sleep(rng.choice((0.0, 0.001, 0.005)))


def damaged_scans(siege: Siege, rng: Random, calls: ServiceCalls) -> None:
    """Publish damaged scans and random points at the rate of a sensor."""
    for _ in range(rng.randint(5, 20)):
        cloud, T = siege.random_scan(rng)
        is_noise = rng.random() < 0.3
        sent, shows_place = (scans.noise(rng), False) if is_noise else scans.damaged(cloud, rng)
        stamp_ns = siege.robot.feed.stamp_ns + rng.randint(1, 50_000_000)
        sent.header.stamp.sec, sent.header.stamp.nanosec = divmod(stamp_ns, NS_PER_S)
        siege.send(sent, stamp_ns, T if shows_place else None)
        time.sleep(0.05)


def extreme_stamps(siege: Siege, rng: Random, calls: ServiceCalls) -> None:
    """Publish valid scans with stamps at the limits of the message, and beyond a second."""
    for _ in range(rng.randint(1, 5)):
        cloud, T = siege.random_scan(rng)
        sent = scans.copied(cloud)
        sec, nanosec = (
            rng.choice(values) for values in (scans.EXTREME_SECONDS, scans.EXTREME_NANOSECONDS)
        )
        sent.header.stamp.sec, sent.header.stamp.nanosec = sec, nanosec
        siege.send(sent, sec * NS_PER_S + nanosec, T)
        time.sleep(0.1)


def odometry_storm(siege: Siege, rng: Random, calls: ServiceCalls) -> None:
    """Publish thousands of bad odometry messages."""
    for _ in range(rng.randint(200, 2000)):
        stamp_ns = siege.robot.feed.stamp_ns + rng.randint(-NS_PER_S, NS_PER_S)
        siege.robot.feed.odometry.publish(scans.hostile_odometry(stamp_ns, rng))
        if rng.random() < 0.1:
            time.sleep(0.001)


def odometry_jump(siege: Siege, rng: Random, calls: ServiceCalls) -> None:
    """Move the odometry frame by meters to kilometers."""
    xyz = [rng.uniform(-1, 1) * rng.choice((1.0, 100.0, 1e5)) for _ in range(3)]
    siege.robot.feed.T_jump = pose_from_euler(xyz, [0.0, 0.0, rng.uniform(-3.0, 3.0)])
    time.sleep(rng.uniform(0.5, 3.0))


def clock_jump(siege: Siege, rng: Random, calls: ServiceCalls) -> None:
    """Set the stamps of the drive ahead or back."""
    siege.robot.feed.stamp_ns += rng.choice((-1, 1)) * rng.randrange(1, HOUR_NS)
    time.sleep(rng.uniform(0.5, 3.0))


def sensor_loss(siege: Siege, rng: Random, calls: ServiceCalls) -> None:
    """Stop odometry or all input for a while."""
    feed = siege.robot.feed
    name = rng.choice(('has_odometry', 'is_publishing'))
    setattr(feed, name, False)
    try:
        time.sleep(rng.uniform(0.5, 3.0))
    finally:
        setattr(feed, name, True)


def map_services(siege: Siege, rng: Random, calls: ServiceCalls) -> None:
    """Call ~/reset, ~/load_map and ~/save_map, each as soon as the last one has returned."""
    names = rng.choice((MAP_SERVICES, ('reset',), ('load_map',), ('save_map',)))
    for _ in range(rng.randint(3, 30)):
        calls.trigger(f'{NODE}/{rng.choice(names)}')


def lifecycle(siege: Siege, rng: Random, calls: ServiceCalls) -> None:
    """Cycle through the lifecycle states, with transitions that are not allowed in between."""
    with siege.exclusive:
        try:
            for _ in range(rng.randint(1, 4)):
                calls.change_state(NODE, 'deactivate')
                if rng.random() < 0.7:
                    calls.change_state(NODE, 'cleanup')
                    calls.change_state(NODE, rng.choice(('activate', 'configure', 'cleanup')))
                    calls.change_state(NODE, 'configure')
                calls.change_state(NODE, 'activate')
        finally:
            siege.ensure_active(calls)


def verification_process(siege: Siege, rng: Random, calls: ServiceCalls) -> None:
    """Kill or suspend the verification process."""
    with suppress(LprError, ProcessLookupError):  # there may be none at the moment
        os.kill(siege.robot.verifier_pid(), rng.choice((signal.SIGKILL, signal.SIGSTOP)))
    time.sleep(rng.uniform(0.0, 2.0))


def hostile_map_path(siege: Siege, rng: Random, calls: ServiceCalls) -> None:
    """Point map_path at a FIFO, a directory, odd names and unwritable places."""
    with siege.exclusive:
        path = rng.choice(HOSTILE_PATHS)(siege.folder)
        try:
            calls.set_parameter(NODE, 'map_path', str(path))
            for _ in range(rng.randint(1, 3)):
                calls.trigger(f'{NODE}/{rng.choice(MAP_SERVICES)}')
        finally:
            calls.set_parameter(NODE, 'map_path', str(siege.robot.map_path))
            remove(path)


def locked_map(siege: Siege, rng: Random, calls: ServiceCalls) -> None:
    """Hold the lock of another map, or remove the lock file of this one, while the node saves.

    Half of the locks belong to another user, who lets nobody read them.
    """
    with siege.exclusive:
        path = siege.folder / 'locked.map'
        try:
            lock = MapLock(path)
        except LprError:
            return  # another attack filled the disk
        if rng.random() < 0.5:
            give_away(sidecar_path(path, '.lock'))
        try:
            calls.set_parameter(NODE, 'map_path', str(path))
            if calls.trigger(f'{NODE}/save_map')[0]:
                siege.fail('save_map: wrote a map that another process has locked')
            sidecar_path(siege.robot.map_path, '.lock').unlink(missing_ok=True)
        finally:
            lock.release()
            calls.set_parameter(NODE, 'map_path', str(siege.robot.map_path))
            calls.trigger(f'{NODE}/save_map')


def damaged_map(siege: Siege, rng: Random, calls: ServiceCalls) -> None:
    """Load a map with flipped bits, missing parts and odd lengths."""
    with siege.exclusive:
        calls.trigger(f'{NODE}/save_map')
        if not siege.robot.map_path.is_file():
            return
        path = siege.folder / 'damaged.map'
        try:
            path.write_bytes(damage([siege.robot.map_path.read_bytes()], rng, BINARY))
            calls.set_parameter(NODE, 'map_path', str(path))
            calls.trigger(f'{NODE}/load_map')
        except OSError:
            return  # another attack filled the disk
        finally:
            calls.set_parameter(NODE, 'map_path', str(siege.robot.map_path))
            remove(path)


def full_disk(siege: Siege, rng: Random, calls: ServiceCalls) -> None:
    """Fill the disk of the map and save."""
    disk, pid = siege.robot.disk, siege.robot.node.pid
    with siege.exclusive:
        disk.fill(pid)
        try:
            calls.trigger(f'{NODE}/save_map')
            time.sleep(rng.uniform(0.0, 2.0))
        finally:
            with suppress(ProcessLookupError):
                disk.free(pid)


def read_only_disk(siege: Siege, rng: Random, calls: ServiceCalls) -> None:
    """Make the disk of the map read-only and save."""
    with siege.exclusive:
        siege.robot.disk.set_writable(False)
        try:
            calls.trigger(f'{NODE}/save_map')
            time.sleep(rng.uniform(0.0, 2.0))
        finally:
            siege.robot.disk.set_writable(True)


def bad_parameters(siege: Siege, rng: Random, calls: ServiceCalls) -> None:
    """Set unknown parameters and parameters of the wrong type: all must be rejected."""
    known = {leaf.name: leaf for leaf in leaves(NodeConfig())}
    for _ in range(rng.randint(5, 30)):
        name = rng.choice((*known, f'unknown_{rng.getrandbits(16)}'))
        default = known[name].default if name in known else None
        value = rng.choice([v for v in WRONG_TYPES if _is_wrong_type(v, default)])
        accepted, _ = calls.set_parameter(NODE, name, value)
        if accepted:
            siege.fail(f'parameter {name}: {value!r} was accepted')


def live_parameters(siege: Siege, rng: Random, calls: ServiceCalls) -> None:
    """Change parameters that may change at run time, back and forth."""
    for _ in range(rng.randint(1, 10)):
        calls.set_parameter(NODE, 'odometry_wait_s', rng.choice((0.0, 0.1, 0.5)))
        calls.set_parameter(NODE, 'keyframes.distance_m', rng.choice((0.5, 2.0, -1.0)))
    calls.set_parameter(NODE, 'keyframes.distance_m', 2.0)


def tf_flood(siege: Siege, rng: Random, calls: ServiceCalls) -> None:
    """Flood /tf and /tf_static with new frames, cycles and NaN."""
    kind = interface(TF_MESSAGE)
    with _Participant() as node:
        publishers = [
            node.create_publisher(kind, topic, qos)
            for topic, qos in (('/tf', 100), ('/tf_static', LATCHED))
        ]
        frames = [
            'odom',
            'lidar',
            'base_link',
            'a',
            *(f'f{rng.getrandbits(24)}' for _ in range(9)),
        ]
        for _ in range(rng.randint(20, 200)):
            transforms = [_hostile_transform(rng, frames) for _ in range(20)]
            rng.choice(publishers).publish(kind(transforms=transforms))
            time.sleep(0.002)


def participants(siege: Siege, rng: Random, calls: ServiceCalls) -> None:
    """Join and leave the domain with publishers of clouds and odometry."""
    for _ in range(rng.randint(1, 4)):
        with _Participant() as node:
            points = node.create_publisher(PointCloud2, 'points', LIDAR_QOS)
            odometry = node.create_publisher(Odometry, 'odometry', 10)
            for _ in range(rng.randint(0, 5)):
                points.publish(scans.damaged(siege.random_scan(rng)[0], rng)[0])
                odometry.publish(scans.hostile_odometry(siege.robot.feed.stamp_ns, rng))
                time.sleep(0.02)


def subscribers(siege: Siege, rng: Random, calls: ServiceCalls) -> None:
    """Subscribe to everything the node publishes, read nothing, and leave."""
    topics = {
        'loop_closures': (Odometry, LOOPS),
        'retracted_loop_closures': (Odometry, LOOPS),
        'keyframes': (PathMessage, LATCHED),
        'markers': (MarkerArray, LATCHED),
    }
    for _ in range(rng.randint(1, 4)):
        with _Participant() as node:
            for name, (kind, qos) in topics.items():
                node.create_subscription(kind, f'{NODE}/{name}', lambda message: None, qos)
            time.sleep(rng.uniform(0.0, 0.5))


def player(siege: Siege, rng: Random, calls: ServiceCalls) -> None:
    """Play the recording at the same time, and kill the player."""
    rate = rng.choice(('0', '1', '4'))
    program = siege.robot.start(
        'lpr_ros.player', str(siege.robot.recording), '--rate', rate, '--quiet'
    )
    time.sleep(rng.uniform(0.5, 8.0))
    program.kill()


def pose_graph(siege: Siege, rng: Random, calls: ServiceCalls) -> None:
    """Call the services of pose_graph_node; during warm-up also kill and restart it.

    Later it keeps running, so that its resources can be compared with those after warm-up.
    """
    with siege.exclusive:
        graph = siege.robot.graph
        if not graph.is_running:
            siege.fail(f'pose_graph_node exited: {graph.output[-500:]}')
        if graph.is_running and (siege.keeps_graph or rng.random() < 0.7):
            for _ in range(rng.randint(1, 5)):
                _call_graph(siege, calls, rng.choice(('optimize', 'save_g2o')))
            return
        graph.kill()
        siege.robot.start_graph()


def _call_graph(siege: Siege, calls: ServiceCalls, name: str) -> None:
    """Call a service of pose_graph_node; DDS may still send a request to one that was killed."""
    for attempt in range(GRAPH_ATTEMPTS):
        try:
            calls.trigger(f'/pose_graph_node/{name}', GRAPH_TIMEOUT_S)
            return
        except ServiceTimeoutError as error:
            if attempt == GRAPH_ATTEMPTS - 1:
                log = siege.robot.graph.output[-500:]
                raise LprError(f'{error}, {GRAPH_ATTEMPTS} times in a row: {log}') from error


class Attack(NamedTuple):
    """How often an attack is chosen, its function, and whether it leaves drive and map alone."""

    weight: int
    run: Callable[[Siege, Random, ServiceCalls], None]
    spares_drive: bool = False


ATTACKS = {
    'scan flood': Attack(6, scan_flood),
    'damaged scans': Attack(6, damaged_scans),
    'extreme stamps': Attack(4, extreme_stamps),
    'odometry storm': Attack(4, odometry_storm),
    'odometry jump': Attack(3, odometry_jump),
    'clock jump': Attack(3, clock_jump),
    'sensor loss': Attack(2, sensor_loss, spares_drive=True),
    'map services': Attack(8, map_services),
    'lifecycle cycles': Attack(6, lifecycle),
    'verification process killed or suspended': Attack(4, verification_process, spares_drive=True),
    'hostile map_path': Attack(6, hostile_map_path),
    'locked map': Attack(3, locked_map, spares_drive=True),
    'damaged map': Attack(4, damaged_map),
    'full disk': Attack(3, full_disk, spares_drive=True),
    'read-only disk': Attack(3, read_only_disk, spares_drive=True),
    'bad parameters': Attack(4, bad_parameters, spares_drive=True),
    'live parameters': Attack(3, live_parameters, spares_drive=True),
    'tf flood': Attack(3, tf_flood),
    'participants': Attack(4, participants),
    'subscribers': Attack(4, subscribers, spares_drive=True),
    'player killed': Attack(2, player),
    'pose_graph_node called or killed': Attack(2, pose_graph, spares_drive=True),
}


def choose_attack(names: list[str], rng: Random, *, spare_drive: bool) -> str | None:
    """Return the name of an attack, None if all that are named would disturb the drive."""
    names = [name for name in names if ATTACKS[name].spares_drive or not spare_drive]
    if not names:
        return None
    (name,) = rng.choices(names, [ATTACKS[name].weight for name in names])
    return name


def available_attacks() -> list[str]:
    """Return the names of the attacks for which all messages are installed."""
    try:
        interface(TF_MESSAGE)
    except InterfaceError:
        return [name for name, attack in ATTACKS.items() if attack.run is not tf_flood]
    return list(ATTACKS)


def _is_wrong_type(value: Any, default: Any) -> bool:
    """Return whether ROS or the node must reject a value because of its type."""
    if isinstance(default, list) and isinstance(value, list):
        return any(v != v for v in value)  # NaN
    return type(value) is not type(default)


def _hostile_transform(rng: Random, frames: list[str]) -> TransformStamped:
    message = TransformStamped()
    message.header.frame_id, message.child_frame_id = rng.choice(frames), rng.choice(frames)
    message.header.stamp.sec = rng.choice(scans.EXTREME_SECONDS)
    message.transform.translation.x = rng.choice((0.0, float('nan'), 1e300))
    message.transform.rotation.w = rng.choice((1.0, 0.0, float('nan')))
    return message


class _Participant:
    """A DDS participant that exists for the block; nothing spins it."""

    def __enter__(self) -> Any:
        self._context = rclpy.Context()
        rclpy.init(context=self._context, signal_handler_options=SignalHandlerOptions.NO)
        self._node = rclpy.create_node(f'visitor_{id(self)}', context=self._context)
        return self._node

    def __exit__(self, *error: object) -> None:
        self._node.destroy_node()
        self._context.try_shutdown()
