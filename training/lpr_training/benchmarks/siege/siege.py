"""The robot under siege: what attacks act on, and how it is observed and recovered."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
import threading
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sensor_msgs.msg import PointCloud2

from lpr_ros.core.errors import LprError
from lpr_ros.core.loop_closure.worker_process import STARTUP_S
from lpr_training.benchmarks.faults.robot import START_TIMEOUT_S, VERIFICATION_TIMEOUT_S, Robot
from lpr_training.benchmarks.siege.health import Health, measure_health
from lpr_training.benchmarks.siege.loop_check import LoopCheck
from lpr_training.benchmarks.speed.node import LIDAR_QOS
from lpr_training.harness.listener import Listener, wait_for
from lpr_training.harness.service_calls import ServiceCalls

NODE = '/lpr_node'
# A verification process that is suspended before its first answer is replaced after 65 s.
IDLE_TIMEOUT_S = 60.0 + STARTUP_S + VERIFICATION_TIMEOUT_S
COUNTERS = ('scans', 'odometry', 'described', 'passed', 'verified')
OUTPUT_TAIL = 2000  # characters of a dead node's log in the report


class NodeDiedError(LprError):
    """lpr_node exited during an attack."""


class Gate:
    """Lets attacks run until it is closed; closing waits for those in progress."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_open = True
        self._active = 0

    @contextmanager
    def attack(self) -> Iterator[None]:
        """Wait until the gate is open, and hold it open for the block."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_open)
            self._active += 1
        try:
            yield
        finally:
            with self._changed:
                self._active -= 1
                self._changed.notify_all()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Keep attacks out of the block."""
        with self._changed:
            self._is_open = False
            self._changed.wait_for(lambda: self._active == 0)
        try:
            yield
        finally:
            with self._changed:
                self._is_open = True
                self._changed.notify_all()


class Siege:
    """Everything that attacks share."""

    def __init__(self, folder: Path, listener: Listener):
        self.robot = Robot(folder, listener, environment={'ROS_PYTHON_CHECK_FIELDS': '1'})
        self.listener = listener
        self.folder = self.robot.disk.folder
        self.gate = Gate()
        self.exclusive = threading.Lock()  # of map_path, the disk and the lifecycle state
        self.truth: dict[int, NDArray[np.float64] | None] = self.robot.feed.truth
        self.loops = LoopCheck(listener, self.truth)
        self.points = listener.create_publisher(PointCloud2, 'points', LIDAR_QOS)
        self.sent = 0  # scans of attacks
        self.deaths: list[str] = []
        self.failures: list[str] = []
        self.attacks: Counter[str] = Counter()
        self.baseline: dict[str, Health] = {}  # resources at half time
        self.keeps_graph = False  # pose_graph_node must live on to be compared with itself
        self.drives = 0  # that attacks left alone
        self.spares_drive = False  # only attacks that leave drive and map alone
        self._count_lock = threading.Lock()
        self._started_s = time.monotonic()

    def client(self, name: str) -> ServiceCalls:
        """Return a client with a node of its own; its calls end when lpr_node dies."""
        return ServiceCalls(self.listener.create_node(name), self.check_node)

    def check_node(self) -> None:
        """Raise NodeDiedError if lpr_node has exited."""
        if not self.robot.node.is_running:
            raise NodeDiedError('lpr_node exited')

    def send(self, cloud: PointCloud2, stamp_ns: int, T: NDArray[np.float64] | None) -> None:
        """Publish a scan of an attack; T is its true pose, None if it shows no place."""
        self.truth[stamp_ns] = T
        with self._count_lock:
            self.sent += 1
        self.points.publish(cloud)

    def random_scan(self, rng: Random) -> tuple[PointCloud2, NDArray[np.float64]]:
        """Return a scan of the drive and its true pose."""
        feed = self.robot.feed
        place = rng.randrange(len(feed.clouds))
        return feed.clouds[place], feed.poses[place]

    def attack(self, name: str, run: Callable[[], Any]) -> None:
        """Run one attack; a failure is reported unless the node died, which is reported once."""
        self.attacks[name] += 1
        try:
            run()
        except NodeDiedError:
            pass
        except LprError as error:
            if self.robot.node.is_running:
                self.fail(f'{name}: {error}')

    def fail(self, text: str) -> None:
        """Report a failure."""
        self.failures.append(f'{time.monotonic() - self._started_s:.0f} s: {text}')

    def recover_if_dead(self) -> None:
        """Restart lpr_node if it has exited, and report it."""
        if not self.robot.node.is_running:
            self.recover('died')

    def recover(self, what: str) -> None:
        """Restart a node that died or hangs, and report it."""
        self.deaths.append(
            f'{time.monotonic() - self._started_s:.0f} s, {what}: '
            f'{self.robot.node.output[-OUTPUT_TAIL:]}'
        )
        self.robot.node.kill()
        with self.gate.closed():
            self.robot.disk.set_writable(True)
            self.robot.start_node()
            self.robot.feed.is_publishing = True

    def ensure_active(self, calls: ServiceCalls) -> None:
        """Restore map_path and bring the node to the state active."""
        calls.set_parameter(NODE, 'map_path', str(self.robot.map_path))
        end_s = time.monotonic() + START_TIMEOUT_S
        while (state := calls.state(NODE)) != 'active':
            if time.monotonic() > end_s:
                raise LprError(f'lpr_node is {state} after {START_TIMEOUT_S:.0f} s')
            calls.change_state(NODE, 'activate' if state == 'inactive' else 'configure')

    def start_drive(self, calls: ServiceCalls) -> None:
        """Start a drive with an empty map; attacks that would disturb it pause."""
        with self.gate.closed():
            self.ensure_active(calls)
            self.robot.feed.T_jump = np.eye(4)
            success, message = calls.trigger(f'{NODE}/reset')
            if not success:
                self.fail(f'reset before a drive: {message}')
            self.spares_drive = True
            self.drives += 1

    @contextmanager
    def quiet(self, calls: ServiceCalls) -> Iterator[None]:
        """Keep attacks and input out of the block, with the node active and idle."""
        with self.gate.closed():
            self.ensure_active(calls)
            self.robot.feed.is_publishing = False
            self._wait_until_idle()
            try:
                yield
            finally:
                self.robot.feed.is_publishing = True

    def measure(self, calls: ServiceCalls) -> dict[str, Health]:
        """Save and reset the node, and measure both nodes at rest."""
        for service in ('save_map', 'reset'):  # a save takes the lock of the map
            success, message = calls.trigger(f'{NODE}/{service}')
            if not success:
                self.fail(f'{service} at rest: {message}')
        self._wait_until_idle()
        programs = {'lpr_node': self.robot.node, 'pose_graph_node': self.robot.graph}
        return {
            name: measure_health(program.pid)
            for name, program in programs.items()
            if program.is_running
        }

    def _wait_until_idle(self) -> None:
        """Wait until the counters of lpr_node stay the same for two messages."""
        previous: dict[str, str] = {}
        count = self.listener.status_count
        end_s = time.monotonic() + IDLE_TIMEOUT_S
        while time.monotonic() < end_s:
            self.check_node()
            with suppress(LprError):
                wait_for(lambda c=count: self.listener.status_count > c, 'diagnostics', 10.0)
            count = self.listener.status_count
            status = self.listener.status
            counts = {k: v for k, v in status.items() if k in COUNTERS or 'dropped.' in k}
            if counts == previous and status.get('verification_queue', '0') == '0':
                return
            previous = counts
        self.fail(f'lpr_node is not idle {IDLE_TIMEOUT_S:.0f} s after its input ended')
