"""lpr_node under two 64-beam LiDARs at 20 Hz, for minutes: more than it can take.

Two publishers, each with the frame of its LiDAR, on the one topic `points`, as a robot with two
LiDARs remaps its drivers; both sit in one place, half a turn apart in time. A lap is simulated
beforehand and driven again and again, with odometry that is true. The sender, this process, takes
its part of the same cores.

Every scan sent must be handled or counted as dropped. The age of a keyframe is the time from
publishing its scan to hearing of it; the first and the last part of the drive, a minute each, show
whether it grows. Memory is the resident one of the node and its verification, without files and
what is shared; of its slope after warm-up, what the places in the map take is known.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sensor_msgs.msg import PointCloud2
from tqdm import tqdm

from lpr_ros.cloud_messages import cloud_message
from lpr_ros.core.clock import NS_PER_S
from lpr_ros.core.drive_truth import loop_errors
from lpr_ros.core.pointcloud2 import pack_cloud
from lpr_ros.core.records import LoopClosure
from lpr_ros.pose_messages import header_message, odometry_message
from lpr_training.benchmarks.figure_table import figure_table
from lpr_training.benchmarks.load_drive import circular_world, slope
from lpr_training.benchmarks.node import COLUMNS, IDLE_S, SPEED_MPS, Latencies, start_node
from lpr_training.demo.listener import Listener, wait_for
from lpr_training.demo.processes import cpu_seconds, own_mb
from lpr_training.simulator import SimulationConfig, load_sensor, make_drive, simulate_drive

LIDARS = ('lidar_left', 'lidar_right')
RATE_HZ = 20.0  # of each
SCANS_PER_S = RATE_HZ * len(LIDARS)
PERIOD_NS = round(NS_PER_S / SCANS_PER_S)
START_NS = 1_700_000_000 * NS_PER_S
RADIUS_M = 24.0  # of the lap, whose scans take 4 MB each
SEED = 200
FEW = 2 * len(LIDARS)  # scans sent one by one, before and after
STATUS_S = 60.0
NO_KEYFRAMES = {'keyframes.distance_m': 1e9}
WARM_UP_SHARE = 1.0 / 3.0
PART_S = 60.0  # of the drive that is compared: the first and the last
MB_PER_MIB = 2**20 / 1e6
HANDLED = ('described', 'passed')
NOT_SCANS = ('dropped.newer_keyframe', 'dropped.old_odometry', 'dropped.verification')
GOALS = {
    'unaccounted': '0',
    'loops_wrong': '0',
    'age_p95_ms_last': 'as at first',
    'age_max_ms': '< 1000',
    'other_mb_per_minute': '< 1',
}


@dataclass(frozen=True, eq=False)
class LapScan:
    """A scan of the lap, ready to be sent at any time."""

    message: PointCloud2
    T_odom_sensor: NDArray[np.float64]
    points: int


def run(minutes: float, *, standing: bool = False) -> dict[str, Any]:
    """Simulate a lap, send it for so long, listen, and return the figures.

    `standing` makes no keyframes: what grows then is not the map.
    """
    count = round(minutes * 60.0 * SCANS_PER_S)
    lap = simulate_lap(count)
    with ExitStack() as stack:
        settings = {'database.exclude_s': 10.0} | (NO_KEYFRAMES if standing else {})
        listener, node, clouds, odometry = start_node(stack, settings, publishers=len(LIDARS))
        latencies = Latencies(listener)

        def send(number: int) -> None:
            scan, stamp_ns = lap[number % len(lap)], START_NS + number * PERIOD_NS
            lidar = number % len(LIDARS)
            scan.message.header = header_message(stamp_ns, LIDARS[lidar])
            odometry.publish(odometry_message(stamp_ns, 'odom', LIDARS[0], scan.T_odom_sensor))
            latencies.sent_s[stamp_ns] = time.monotonic()
            clouds[lidar].publish(scan.message)

        first = _one_by_one(listener, send, 0)
        before = _settled_ends(listener)
        # Minutes, MB of the node, of its verification and of the database.
        memory: list[tuple[float, float, float, float]] = []
        cpu_before_s, began_s = cpu_seconds(node.pid), time.monotonic()
        for number in tqdm(range(first, first + count), desc='send', unit='scan'):
            due_s = began_s + (number - first) / SCANS_PER_S
            time.sleep(max(0.0, due_s - time.monotonic()))
            send(number)
            if (number - first) % round(SCANS_PER_S) == 0:
                node.check()
                mib = float(listener.status.get('database_mib', 0.0))
                passed_min = (time.monotonic() - began_s) / 60.0
                memory.append((passed_min, *own_mb(node.pid), MB_PER_MIB * mib))
        lasted_s = time.monotonic() - began_s
        busy = (cpu_seconds(node.pid) - cpu_before_s) / lasted_s
        sent = _one_by_one(listener, send, first + count) - first
        after = _settled_ends(listener)
        stamps_ns = latencies.stamps_ns()
        ends = {name: after[name] - before.get(name, 0) for name in after}
        return {
            'points': int(np.mean([scan.points for scan in lap])),
            'sent': sent,
            'sent_per_s': count / lasted_s,
            'handled': sum(ends.get(name, 0) for name in HANDLED),
            'dropped': sum(n for name, n in ends.items() if name not in HANDLED),
            'unaccounted': sent - sum(ends.values()),
            'keyframes': ends.get('described', 0),
            **_loop_figures(listener.loops, lap, stamps_ns),
            **_age_figures(latencies.keyframes(stamps_ns), began_s, lasted_s),
            **_memory_figures(memory),
            'cpu_share': busy,
            'ends': ends,
            'memory': memory,
            'diagnostics': listener.status,
        }


def simulate_lap(most: int) -> list[LapScan]:
    """Return the scans of one lap of both LiDARs in turn, or as many as are needed."""
    world = circular_world(RADIUS_M)
    sensor = replace(load_sensor('hdl64'), columns=COLUMNS, rate_hz=SCANS_PER_S)
    drive = make_drive(world, speed_mps=SPEED_MPS)
    simulation = simulate_drive(world, sensor, drive, SimulationConfig(), seed=SEED)
    lap = []
    total = min(most, len(simulation))
    for scan in tqdm(simulation, desc='simulate', unit='scan', total=total):
        message = cloud_message(0, '', pack_cloud(scan.points))
        lap.append(LapScan(message, scan.T_world_sensor, len(scan.points)))
        if len(lap) == total:
            break
    return lap


def table(result: dict[str, Any]) -> str:
    """Return the figures as markdown."""
    return figure_table('two LiDARs', result, GOALS)


def _one_by_one(listener: Listener, send: Callable[[int], None], first: int) -> int:
    """Send a few scans from this number on, each when the one before is done; return the next.

    Of a publisher that the node has not heard of it cannot know what it missed, nor that the last
    scans of one were lost before the next comes.
    """
    for number in range(first, first + FEW):
        seen = listener.status_count
        send(number)
        wait_for(lambda seen=seen: listener.status_count >= seen + 2, 'diagnostics', STATUS_S)
    return first + FEW


def _settled_ends(listener: Listener) -> dict[str, int]:
    """Wait until nothing is on its way, and return what became of all scans so far, by name."""
    time.sleep(IDLE_S)
    return scan_ends(listener.status)


def scan_ends(status: Mapping[str, str]) -> dict[str, int]:
    """Return how many scans came to which end, of the diagnostics of the node."""
    return {
        name: int(value) for name, value in status.items()
        if name in HANDLED or (name.startswith('dropped.') and name not in NOT_SCANS)
    }  # fmt: skip


def _loop_figures(
    loops: Sequence[LoopClosure], lap: Sequence[LapScan], stamps_ns: Sequence[int]
) -> dict[str, int]:
    """Return how many loops there are between these keyframes, and how many are wrong."""
    numbers = [(stamp_ns - START_NS) // PERIOD_NS for stamp_ns in stamps_ns]
    truth = {i: lap[number % len(lap)].T_odom_sensor for i, number in enumerate(numbers)}
    errors = loop_errors(loops, truth)
    return {'loops': len(errors.loops), 'loops_wrong': int((~errors.is_right).sum())}


def _age_figures(
    keyframes: Sequence[tuple[float, float]], began_s: float, lasted_s: float
) -> dict[str, float]:
    """Return quantiles of the ages: all, and those of the first and of the last part."""
    sent_s, age_ms = np.array([k for k in keyframes if k[0] >= began_s]).reshape(-1, 2).T
    part_s = min(PART_S, lasted_s / 3.0)
    parts = {
        '': np.full(len(sent_s), True),
        '_first': sent_s < began_s + part_s,
        '_last': sent_s >= began_s + lasted_s - part_s,
    }
    quantiles = {'p50': 50.0, 'p95': 95.0, 'max': 100.0}
    return {
        f'age_{name}_ms{part}': float(np.percentile(age_ms[chosen], percent))
        for part, chosen in parts.items() if chosen.any() for name, percent in quantiles.items()
    }  # fmt: skip


def _memory_figures(samples: Sequence[tuple[float, float, float, float]]) -> dict[str, float]:
    """Return slopes after warm-up: of the node's memory, of the database, and of what is left.

    Verification grows until it is renewed, again and again: of that the most counts.
    """
    minutes, own, beside, database = np.array(samples[int(WARM_UP_SHARE * len(samples)) :]).T
    return {
        'memory_mb': float(own[-1]),
        'memory_mb_per_minute': slope(minutes, own),
        'database_mb_per_minute': slope(minutes, database),
        'other_mb_per_minute': slope(minutes, own - database),
        'verification_mb_most': float(beside.max()),
    }
