"""lpr_node with a 64-beam LiDAR at 10 Hz, published from another process.

This process simulates a drive with revisits (130,000 points per scan), publishes it and subscribes
to the results. Latencies are from publishing a scan to receiving its keyframe or its loop closure.
`received` counts the scans that reached the node; memory growth is of the node and its
verification process, after the first third of the drive.
"""

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path as FilePath
import tempfile
import time
from typing import Any

from nav_msgs.msg import Odometry, Path
import numpy as np
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Float64MultiArray
from tqdm import tqdm

from lpr_ros.conversions.clouds import cloud_message
from lpr_ros.conversions.poses import odometry_message
from lpr_ros.core.io.pointcloud2 import pack_cloud
from lpr_ros.core.markdown import metric_table
from lpr_ros.core.timing import stamp_ns
from lpr_ros.ros_utils.qos import LATCHED, LOOPS
from lpr_training.benchmarks.options import add_option
from lpr_training.harness.listener import Listener, wait_for
from lpr_training.harness.processes import (
    Program,
    cpu_seconds,
    resident_mb,
    ros_arguments,
    use_own_domain,
)
from lpr_training.simulator import load_sensor, make_drive, make_world, simulate_drive

RATE_HZ = 10.0
SPEED_MPS = 8.0
SEED = 200
WORLD_M = 100.0  # small, for revisits within a minute
COLUMNS = 2330  # per beam, chosen for as many returns as a real HDL-64 has
WARM_UP_FRACTION = 1.0 / 3.0
IDLE_S = 5.0
START_S = 180.0
PATH_S = 30.0
TARGETS = {'keyframe_p95_ms': '< 150', 'loop_p95_ms': '< 600', 'received': 'all sent'}
LIDAR_QOS = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)


class Latencies:
    """Times from publishing scans to receiving their keyframes and loop closures."""

    def __init__(self, listener: Listener):
        self.sent_s: dict[int, float] = {}  # by stamp
        self.loops_ms: list[float] = []
        self._received_s: dict[int, float] = {}  # by keyframe; candidates are published at once
        self._path = Path()
        self._listener = listener
        listener.listen(Float64MultiArray, 'lpr_node/candidates', self._on_candidates, 100)
        listener.listen(Odometry, 'lpr_node/loop_closures', self._on_loop, LOOPS)

    def stamps_ns(self) -> list[int]:
        """Return the stamp of each keyframe.

        The path that holds them is large; subscribing during the drive would delay publishing.
        """
        self._listener.listen(Path, 'lpr_node/keyframes', self._on_path, LATCHED)
        last = max(self._received_s, default=-1)
        wait_for(lambda: len(self._path.poses) > last, 'path of the keyframes', PATH_S)
        return [stamp_ns(pose.header) for pose in self._path.poses]

    def keyframes(self, stamps_ns: Sequence[int]) -> list[tuple[float, float]]:
        """Return the time each keyframe's scan was sent, and its latency in ms."""
        sent_s = [self.sent_s[stamp] for stamp in stamps_ns]
        received = [(i, at_s) for i, at_s in list(self._received_s.items()) if i < len(sent_s)]
        return [(sent_s[i], (at_s - sent_s[i]) * 1e3) for i, at_s in received]

    def _on_candidates(self, message: Float64MultiArray) -> None:
        # The message is empty, without an id, for the first keyframes: nothing to match yet.
        number = int(message.data[0]) if message.data else len(self._received_s)
        self._received_s[number] = time.monotonic()

    def _on_path(self, message: Path) -> None:
        self._path = message

    def _on_loop(self, message: Odometry) -> None:
        sent_s = self.sent_s[stamp_ns(message.header)]
        self.loops_ms.append((time.monotonic() - sent_s) * 1e3)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_option(parser, '--seconds', 60.0, 'Duration of the drive')


def run(seconds: float = 60.0) -> dict[str, Any]:
    """Publish a simulated drive to lpr_node and return the measurements."""
    scans = simulate(seconds)
    with ExitStack() as stack:
        # The drive is short, so loops must close early.
        parameters = {'database.exclude_s': 10.0, 'database.exclude_m': 50.0}
        listener, node, (clouds,), odometry = start_node(stack, parameters)
        latencies = Latencies(listener)
        idle = _cpu_share(node.pid, IDLE_S)
        cpu_before_s, started_s = cpu_seconds(node.pid), time.monotonic()
        warm_mb = 0.0
        due_s = started_s
        for number, scan in enumerate(tqdm(scans, desc='send', unit='scan')):
            message = cloud_message(scan.stamp_ns, 'lidar', pack_cloud(scan.points))
            time.sleep(max(0.0, due_s - time.monotonic()))
            # A late scan must not cause a burst, which no LiDAR sends.
            due_s = time.monotonic() + 1.0 / RATE_HZ
            odometry.publish(odometry_message(scan.stamp_ns, 'odom', 'lidar', scan.T_odom_sensor))
            latencies.sent_s[scan.stamp_ns] = time.monotonic()
            clouds.publish(message)
            if number == int(WARM_UP_FRACTION * len(scans)):
                warm_mb = resident_mb(node.pid)
        busy = (cpu_seconds(node.pid) - cpu_before_s) / (time.monotonic() - started_s)
        time.sleep(IDLE_S)
        grown_mb = resident_mb(node.pid) - warm_mb
        return {
            'sent': len(scans),
            'received': listener.count('scans'),
            'replaced_or_lost': listener.count('scans_lost'),
            'points': int(np.mean([len(scan.points) for scan in scans])),
            'keyframes': listener.count('keyframes'),
            'loops': len(listener.loops),
            'keyframe_p95_ms': _p95([ms for _, ms in latencies.keyframes(latencies.stamps_ns())]),
            'loop_p95_ms': _p95(latencies.loops_ms),
            'rss_growth_mb': grown_mb,
            'idle_cpu_share': idle,
            'cpu_share': busy,
            'diagnostics': listener.status,
        }


def start_node(
    stack: ExitStack, parameters: dict[str, object], *, publishers: int = 1
) -> tuple[Listener, Program, list[Publisher], Publisher]:
    """Start lpr_node; return listener, node, cloud publishers and odometry publisher."""
    use_own_domain()
    folder = FilePath(stack.enter_context(tempfile.TemporaryDirectory()))
    listener = Listener()
    stack.callback(listener.close)
    arguments = ros_arguments({'autostart': True} | parameters)
    node = Program('lpr_ros.lpr_node', arguments, folder / 'node.log')
    stack.callback(node.stop)
    clouds = [listener.publisher(PointCloud2, 'points', LIDAR_QOS) for _ in range(publishers)]
    odometry = listener.publisher(Odometry, 'odometry', 100)

    def is_ready() -> bool:
        node.check()
        return all(publisher.get_subscription_count() for publisher in (*clouds, odometry))

    wait_for(is_ready, 'lpr_node', START_S)
    time.sleep(IDLE_S)  # startup still uses the CPU
    return listener, node, clouds, odometry


def simulate(seconds: float) -> list[Any]:
    """Return the scans of a drive, simulated in advance because ray casting needs all cores."""
    world = make_world('city', SEED, size_m=WORLD_M)
    drive = make_drive(world, SPEED_MPS * seconds * 1.2, speed_mps=SPEED_MPS, seed=SEED)
    sensor = replace(load_sensor('hdl64'), columns=COLUMNS, rate_hz=RATE_HZ)
    simulation = simulate_drive(world, sensor, drive, seed=SEED)
    count = min(len(simulation), round(seconds * RATE_HZ))
    indices = tqdm(range(count), desc='simulate', unit='scan')
    return [simulation.scan(index) for index in indices]


def table(result: dict[str, Any]) -> str:
    """Return the results as a markdown table."""
    return metric_table('lpr_node', result, TARGETS)


def _cpu_share(pid: int, seconds: float) -> float:
    before_s = cpu_seconds(pid)
    time.sleep(seconds)
    return (cpu_seconds(pid) - before_s) / seconds


def _p95(times_ms: list[float]) -> float:
    return float(np.percentile(times_ms, 95.0)) if times_ms else float('nan')
