"""A simulated robot: an endless drive, and the nodes in their own processes."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
import threading
from typing import Any

from nav_msgs.msg import Odometry
import numpy as np
from numpy.typing import NDArray
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Float64MultiArray

from lpr_ros.conversions.clouds import cloud_message
from lpr_ros.conversions.poses import odometry_message, time_message
from lpr_ros.core.database.place_database import DatabaseConfig, PlaceDatabase
from lpr_ros.core.errors import LprError
from lpr_ros.core.io.pointcloud2 import pack_cloud
from lpr_ros.core.model.checkpoint import load_checkpoint
from lpr_ros.core.resources import default_weights
from lpr_ros.core.timing import NS_PER_S
from lpr_training.benchmarks.speed.node import LIDAR_QOS, SPEED_MPS, WORLD_M
from lpr_training.datasets.base import RecordedScan
from lpr_training.datasets.packed_scans import write_packed
from lpr_training.harness.listener import Listener, wait_for
from lpr_training.harness.processes import Program, ros_arguments
from lpr_training.harness.small_disk import SmallDisk
from lpr_training.simulator import load_sensor, make_drive, make_world, simulate_drive

SEED = 200
SECONDS = 20.0
COLUMNS = 512
PERIOD_S = 0.1
AUTOSAVE_S = 1.0
VERIFICATION_TIMEOUT_S = 5.0
START_TIMEOUT_S = 180.0
TIMEOUT_S = 60.0  # long enough for a busy machine


def simulate() -> list[RecordedScan]:
    """Return the scans of a short drive."""
    world = make_world('city', SEED, size_m=WORLD_M)
    drive = make_drive(world, SPEED_MPS * SECONDS * 1.2, speed_mps=SPEED_MPS, seed=SEED)
    sensor = replace(load_sensor('vlp16'), columns=COLUMNS, rate_hz=1.0 / PERIOD_S)
    simulation = simulate_drive(world, sensor, drive, seed=SEED)
    count = min(len(simulation), round(SECONDS / PERIOD_S))
    return [simulation.scan(index) for index in range(count)]


class Feed:
    """Publishes the drive back and forth forever; attributes may change at any time."""

    def __init__(self, listener: Listener, scans: list[RecordedScan]):
        self.is_publishing = False
        self.is_moving = True
        self.has_odometry = True
        self.stamp_step_s = PERIOD_S
        self.stamp_ns = scans[-1].stamp_ns
        self.sent = 0
        self.T_jump = np.eye(4)  # of the odometry frame
        self.poses = [scan.T_world_sensor for scan in scans]
        self.truth: dict[int, NDArray[np.float64] | None] = {
            scan.stamp_ns: scan.T_world_sensor for scan in scans
        }  # of everything sent, by stamp
        self._scans = scans
        self.clouds = [cloud_message(0, 'lidar', pack_cloud(scan.points)) for scan in scans]
        self.points = listener.create_publisher(PointCloud2, 'points', LIDAR_QOS)
        self.odometry = listener.create_publisher(Odometry, 'odometry', 100)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop publishing."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        number, count = 0, len(self._scans)
        while not self._closed.wait(PERIOD_S):
            if not self.is_publishing:
                continue
            self.stamp_ns += round(self.stamp_step_s * NS_PER_S)
            number += self.is_moving
            place = abs(count - 1 - number % (2 * count - 2))
            if self.has_odometry:
                T = self._scans[place].T_odom_sensor
                assert T is not None
                message = odometry_message(self.stamp_ns, 'odom', 'lidar', self.T_jump @ T)
                self.odometry.publish(message)
            cloud = self.clouds[place]
            cloud.header.stamp = time_message(self.stamp_ns)
            self.truth[self.stamp_ns] = self.poses[place]
            self.points.publish(cloud)
            self.sent += 1


class Robot:
    """lpr_node and pose_graph_node, their input and their output."""

    def __init__(
        self, folder: Path, listener: Listener, environment: Mapping[str, str] | None = None
    ):
        self.listener = listener
        self._environment = environment or {}
        self.disk = SmallDisk(folder / 'disk')
        self.map_path = self.disk.folder / 'places.map'
        self.partial_path = self.disk.folder / '.places.map.partial'
        self._folder = folder
        self._programs: list[Program] = []
        self._fingerprint = load_checkpoint(default_weights()).fingerprint
        scans = simulate()
        self.recording = folder / 'scans_drive.npz'
        write_packed(
            self.recording,
            [scan.points for scan in scans],
            np.array([scan.stamp_ns for scan in scans]),
            np.array([scan.T_odom_sensor for scan in scans]),
        )
        self.keyframes = 0  # published by lpr_node, including those of its map
        listener.subscribe(Float64MultiArray, 'lpr_node/candidates', self._on_keyframe, 100)
        self.feed = Feed(listener, scans)

    def start_all(self) -> None:
        """Start the nodes and the drive."""
        self.start_node()
        self.feed.is_publishing = True
        self.wait_for_keyframes(1)
        self.start_graph()

    def start_node(self) -> None:
        """Start lpr_node, which loads its map, and wait until it is active."""
        self.listener.status = {}
        self.node = self.start('lpr_ros.lpr_node', *self.node_arguments())
        self.wait(
            lambda: self.listener.status.get('state') == 'active',
            'activation of lpr_node',
            START_TIMEOUT_S,
        )
        self.listener.loops.clear()
        self.keyframes = self.listener.count('keyframes')

    def start_graph(self) -> None:
        """Start pose_graph_node and wait until it has received the keyframes."""
        self.listener.corrected = None
        self.graph = self.start(
            'lpr_ros.pose_graph_node', *ros_arguments({'g2o_path': self._folder / 'graph.g2o'})
        )
        self.wait(
            lambda: self.listener.corrected is not None, 'path of pose_graph_node', START_TIMEOUT_S
        )

    def node_arguments(self, *more: str) -> list[str]:
        """Return the command line of lpr_node."""
        parameters = {
            'autostart': True,
            'map_path': self.map_path,
            'load_map': True,
            'autosave_s': AUTOSAVE_S,
            'verification_timeout_s': VERIFICATION_TIMEOUT_S,
            'database.exclude_s': 5.0,
            'database.exclude_m': 30.0,
        }
        return [*ros_arguments(parameters), *more]

    def start(self, module: str, *arguments: str) -> Program:
        """Start a program; it is stopped when the robot is closed, if not before."""
        log = self._folder / f'{len(self._programs)}_{module.rpartition(".")[2]}.log'
        self._programs.append(Program(module, arguments, log, self._environment))
        return self._programs[-1]

    def wait(self, condition: Callable[[], Any], what: str, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until a condition holds; LprError on timeout or if lpr_node exits."""

        def checked() -> Any:
            self.node.check()
            return condition()

        wait_for(checked, what, timeout_s)

    def wait_for_keyframes(self, count: int = 3) -> None:
        """Wait for more keyframes."""
        goal = self.keyframes + count
        self.wait(lambda: self.keyframes >= goal, f'{count} more keyframes')

    def read_map(self) -> int:
        """Load the map and return its number of keyframes; MapError if it is damaged."""
        database = PlaceDatabase.load(
            self.map_path, DatabaseConfig(), fingerprint=self._fingerprint
        )
        return len(database)

    def graph_size(self) -> tuple[int, int]:
        """Return the numbers of keyframes and loops in the pose graph."""
        message = self.listener.call('pose_graph_node/save_g2o').rpartition(': ')[2]
        keyframes, loops = (int(part.split()[0]) for part in message.split(', '))
        return keyframes, loops

    def verifier_pid(self) -> int:
        """Return the process id of the verification process of lpr_node."""
        for folder in Path('/proc').glob('[0-9]*'):
            try:
                parent = int((folder / 'stat').read_text().rpartition(')')[2].split()[1])
                command = (folder / 'cmdline').read_bytes()
            except OSError:
                continue
            if parent == self.node.pid and b'worker_process' in command:
                return int(folder.name)
        raise LprError(f'lpr_node (process {self.node.pid}) has no verification process')

    def close(self) -> None:
        """Stop everything."""
        self.feed.close()
        for program in self._programs:
            if program.is_running:
                program.stop()
        self.disk.close()

    def _on_keyframe(self, message: Float64MultiArray) -> None:
        self.keyframes += 1
