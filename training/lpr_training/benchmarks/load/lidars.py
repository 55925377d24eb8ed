"""lpr_node under two 64-beam LiDARs at 20 Hz for minutes, which is more than it can process.

Two publishers with different frame ids share the topic `points`, as on a robot that remaps two
drivers; the LiDARs are mounted at one position, half a period apart in time. A lap is simulated in
advance and repeated, with true odometry. The publishers, in this process, use the same cores.

Every scan sent must be processed or counted as dropped. The age of a keyframe is the time from
publishing its scan to receiving it; the first and the last minute show whether it grows. Memory is
resident memory of the node and of its verification process without file-backed and shared pages;
part of its slope after warm-up is the growing map.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sensor_msgs.msg import PointCloud2
from tqdm import tqdm

from lpr_ros.conversions.clouds import cloud_message
from lpr_ros.conversions.poses import header_message, odometry_message
from lpr_ros.core.io.pointcloud2 import pack_cloud
from lpr_ros.core.markdown import metric_table
from lpr_ros.core.offline.evaluation import loop_errors
from lpr_ros.core.timing import NS_PER_S
from lpr_ros.core.types import LoopClosure
from lpr_training.benchmarks.load.drive import circular_world, slope
from lpr_training.benchmarks.speed.node import COLUMNS, IDLE_S, SPEED_MPS, Latencies, start_node
from lpr_training.harness.accounting import HANDLED, scan_outcomes
from lpr_training.harness.listener import Listener, wait_for
from lpr_training.harness.processes import cpu_seconds, private_mb
from lpr_training.simulator import SimulationConfig, load_sensor, make_drive, simulate_drive

LIDARS = ('lidar_left', 'lidar_right')
RATE_HZ = 20.0  # of each
SCANS_PER_S = RATE_HZ * len(LIDARS)
PERIOD_NS = round(NS_PER_S / SCANS_PER_S)
START_NS = 1_700_000_000 * NS_PER_S
RADIUS_M = 24.0  # of the lap; a scan takes 4 MB
SEED = 200
PROBES = 2 * len(LIDARS)  # scans sent one by one before and after the load
STATUS_S = 60.0
NO_KEYFRAMES = {'keyframes.distance_m': 1e9}
WARM_UP_FRACTION = 1.0 / 3.0
PART_S = 60.0  # of the first and of the last part, which are compared
MB_PER_MIB = 2**20 / 1e6
TARGETS = {
    'unaccounted': '0',
    'loops_wrong': '0',
    'age_p95_ms_last': 'as first',
    'age_max_ms': '< 1000',
    'other_mb_per_minute': '< 1',
}


@dataclass(frozen=True, eq=False)
class LapScan:
    """A scan of the lap as a message; the header is set when it is sent."""

    message: PointCloud2
    T_odom_sensor: NDArray[np.float64]
    points: int


def run(minutes: float, *, standing: bool = False) -> dict[str, Any]:
    """Publish a simulated lap for this many minutes and return the measurements.

    With `standing` there are no keyframes, so the map does not grow.
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

        first = _send_probes(listener, send, 0)
        before = _idle_outcomes(listener)
        # Minutes, MB of the node, of its verification process and of the database.
        memory: list[tuple[float, float, float, float]] = []
        cpu_before_s, started_s = cpu_seconds(node.pid), time.monotonic()
        for number in tqdm(range(first, first + count), desc='send', unit='scan'):
            due_s = started_s + (number - first) / SCANS_PER_S
            time.sleep(max(0.0, due_s - time.monotonic()))
            send(number)
            if (number - first) % round(SCANS_PER_S) == 0:
                node.check()
                mib = float(listener.status.get('database_mib', 0.0))
                passed_min = (time.monotonic() - started_s) / 60.0
                memory.append((passed_min, *private_mb(node.pid), MB_PER_MIB * mib))
        lasted_s = time.monotonic() - started_s
        busy = (cpu_seconds(node.pid) - cpu_before_s) / lasted_s
        sent = _send_probes(listener, send, first + count) - first
        after = _idle_outcomes(listener)
        stamps_ns = latencies.stamps_ns()
        outcomes = {name: after[name] - before.get(name, 0) for name in after}
        return {
            'points': int(np.mean([scan.points for scan in lap])),
            'sent': sent,
            'sent_per_s': count / lasted_s,
            'handled': sum(outcomes.get(name, 0) for name in HANDLED),
            'dropped': sum(n for name, n in outcomes.items() if name not in HANDLED),
            'unaccounted': sent - sum(outcomes.values()),
            'keyframes': outcomes.get('described', 0),
            **_loop_metrics(listener.loops, lap, stamps_ns),
            **_age_metrics(latencies.keyframes(stamps_ns), started_s, lasted_s),
            **_memory_metrics(memory),
            'cpu_share': busy,
            'ends': outcomes,
            'memory': memory,
            'diagnostics': listener.status,
        }


def simulate_lap(max_scans: int) -> list[LapScan]:
    """Return the scans of one lap, alternating between the LiDARs, at most `max_scans`."""
    world = circular_world(RADIUS_M)
    sensor = replace(load_sensor('hdl64'), columns=COLUMNS, rate_hz=SCANS_PER_S)
    drive = make_drive(world, speed_mps=SPEED_MPS)
    simulation = simulate_drive(world, sensor, drive, SimulationConfig(), seed=SEED)
    lap = []
    total = min(max_scans, len(simulation))
    for scan in tqdm(simulation, desc='simulate', unit='scan', total=total):
        message = cloud_message(0, '', pack_cloud(scan.points))
        lap.append(LapScan(message, scan.T_world_sensor, len(scan.points)))
        if len(lap) == total:
            break
    return lap


def table(result: dict[str, Any]) -> str:
    """Return the results as a markdown table."""
    return metric_table('two LiDARs', result, TARGETS)


def _send_probes(listener: Listener, send: Callable[[int], None], first: int) -> int:
    """Send a few scans slowly, starting at number `first`; return the next number.

    The node detects a lost scan only between two that it received from the same publisher.
    """
    for number in range(first, first + PROBES):
        seen = listener.status_count
        send(number)
        wait_for(lambda seen=seen: listener.status_count >= seen + 2, 'diagnostics', STATUS_S)
    return first + PROBES


def _idle_outcomes(listener: Listener) -> dict[str, int]:
    """Wait until the node is idle and return the outcomes of all scans so far."""
    time.sleep(IDLE_S)
    return scan_outcomes(listener.status)


def _loop_metrics(
    loops: Sequence[LoopClosure], lap: Sequence[LapScan], stamps_ns: Sequence[int]
) -> dict[str, int]:
    """Return the numbers of loop closures and of wrong ones."""
    numbers = [(stamp_ns - START_NS) // PERIOD_NS for stamp_ns in stamps_ns]
    truth = {i: lap[number % len(lap)].T_odom_sensor for i, number in enumerate(numbers)}
    errors = loop_errors(loops, truth)
    return {'loops': len(errors.loops), 'loops_wrong': int((~errors.is_correct).sum())}


def _age_metrics(
    keyframes: Sequence[tuple[float, float]], started_s: float, lasted_s: float
) -> dict[str, float]:
    """Return quantiles of the keyframe ages: overall, first part and last part."""
    sent_s, age_ms = np.array([k for k in keyframes if k[0] >= started_s]).reshape(-1, 2).T
    part_s = min(PART_S, lasted_s / 3.0)
    parts = {
        '': np.full(len(sent_s), True),
        '_first': sent_s < started_s + part_s,
        '_last': sent_s >= started_s + lasted_s - part_s,
    }
    quantiles = {'p50': 50.0, 'p95': 95.0, 'max': 100.0}
    return {
        f'age_{name}_ms{part}': float(np.percentile(age_ms[chosen], percent))
        for part, chosen in parts.items() if chosen.any() for name, percent in quantiles.items()
    }  # fmt: skip


def _memory_metrics(samples: Sequence[tuple[float, float, float, float]]) -> dict[str, float]:
    """Return slopes after warm-up: of the node, of the database, and of the rest.

    The verification process grows until it is restarted, so only its maximum counts.
    """
    minutes, node, verification, database = np.array(
        samples[int(WARM_UP_FRACTION * len(samples)) :]
    ).T
    return {
        'memory_mb': float(node[-1]),
        'memory_mb_per_minute': slope(minutes, node),
        'database_mb_per_minute': slope(minutes, database),
        'other_mb_per_minute': slope(minutes, node - database),
        'verification_mb_most': float(verification.max()),
    }
