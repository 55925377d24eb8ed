"""The robot that faults are tried on: a drive without end, and the nodes in their processes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
import threading
from typing import Any

from nav_msgs.msg import Odometry
import numpy as np
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Float64MultiArray

from lpr_ros.cloud_messages import cloud_message
from lpr_ros.core.clock import NS_PER_S
from lpr_ros.core.database import PlaceDatabase
from lpr_ros.core.database_config import DatabaseConfig
from lpr_ros.core.errors import LprError
from lpr_ros.core.model.checkpoint import load_checkpoint
from lpr_ros.core.pointcloud2 import pack_cloud
from lpr_ros.core.records import Scan
from lpr_ros.core.resources import default_weights
from lpr_ros.pose_messages import odometry_message, time_message
from lpr_training.benchmarks.faults_disk import SmallDisk
from lpr_training.benchmarks.node import CLOUDS, SPEED_MPS, WORLD_M
from lpr_training.demo.drives import write_packed
from lpr_training.demo.listener import Listener, wait_for
from lpr_training.demo.processes import Program, ros_arguments
from lpr_training.simulator import load_sensor, make_drive, make_world, simulate_drive

SEED = 200
SECONDS = 20.0
COLUMNS = 512
PERIOD_S = 0.1
AUTOSAVE_S = 1.0
TIMEOUT_S = 5.0  # of verification
START_S = 180.0
REACT_S = 60.0  # that a node may take for anything else, on a busy machine


def simulate() -> list[Scan]:
    """Return the scans of a short drive."""
    world = make_world('city', SEED, size_m=WORLD_M)
    drive = make_drive(world, SPEED_MPS * SECONDS * 1.2, speed_mps=SPEED_MPS, seed=SEED)
    sensor = replace(load_sensor('vlp16'), columns=COLUMNS, rate_hz=1.0 / PERIOD_S)
    simulation = simulate_drive(world, sensor, drive, seed=SEED)
    count = min(len(simulation), round(SECONDS / PERIOD_S))
    return [simulation.scan(index) for index in range(count)]


class Feed:
    """Sends the drive forth and back for ever; its fields may be changed at any time."""

    def __init__(self, listener: Listener, scans: list[Scan]):
        self.is_on = False
        self.is_moving = True
        self.has_odometry = True
        self.stamp_step_s = PERIOD_S
        self.stamp_ns = scans[-1].stamp_ns
        self._scans = scans
        self._clouds = [cloud_message(0, 'lidar', pack_cloud(scan.points)) for scan in scans]
        self._points = listener.publisher(PointCloud2, 'points', CLOUDS)
        self._odometry = listener.publisher(Odometry, 'odometry', 100)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Send no more."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        number, count = 0, len(self._scans)
        while not self._closed.wait(PERIOD_S):
            if not self.is_on:
                continue
            self.stamp_ns += round(self.stamp_step_s * NS_PER_S)
            number += self.is_moving
            place = abs(count - 1 - number % (2 * count - 2))
            if self.has_odometry:
                T = self._scans[place].T_odom_sensor
                assert T is not None
                self._odometry.publish(odometry_message(self.stamp_ns, 'odom', 'lidar', T))
            cloud = self._clouds[place]
            cloud.header.stamp = time_message(self.stamp_ns)
            self._points.publish(cloud)


class Robot:
    """lpr_node and pose_graph_node, what feeds them, and what is heard of them."""

    def __init__(self, folder: Path, listener: Listener):
        self.listener = listener
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
        self.seen = 0  # keyframes that the node has told of, with those of its map
        listener.listen(Float64MultiArray, 'lpr_node/candidates', self._on_keyframe, 100)
        self.feed = Feed(listener, scans)

    def start_all(self) -> None:
        """Start the nodes and drive."""
        self.start_node()
        self.feed.is_on = True
        self.wait_for_keyframes(1)
        self.start_graph()

    def start_node(self) -> None:
        """Start lpr_node, which loads its map, and wait until it listens."""
        self.listener.status = {}
        self.node = self.start('lpr_ros.node', *self.node_arguments())
        self.wait(lambda: 'listening to' in self.node.output, 'start of lpr_node', START_S)
        self.listener.loops.clear()
        self.wait(lambda: self.listener.status, 'diagnostics')
        self.seen = self.listener.count('keyframes')

    def start_graph(self) -> None:
        """Start pose_graph_node and wait until it has the keyframes of lpr_node."""
        self.listener.corrected = None
        self.graph = self.start(
            'lpr_ros.pose_graph_node', *ros_arguments({'g2o_path': self._folder / 'graph.g2o'})
        )
        self.wait(lambda: self.listener.corrected is not None, 'path of pose_graph_node', START_S)

    def node_arguments(self, *more: str) -> list[str]:
        """Return the command line of lpr_node."""
        parameters = {
            'autostart': True,
            'map_path': self.map_path,
            'load_map': True,
            'autosave_s': AUTOSAVE_S,
            'verification_timeout_s': TIMEOUT_S,
            'database.exclude_s': 5.0,
            'database.exclude_m': 30.0,
        }
        return [*ros_arguments(parameters), *more]

    def start(self, module: str, *arguments: str) -> Program:
        """Start a program that ends with the robot at the latest."""
        log = self._folder / f'{len(self._programs)}_{module.rpartition(".")[2]}.log'
        self._programs.append(Program(module, arguments, log))
        return self._programs[-1]

    def wait(self, is_true: Callable[[], Any], what: str, timeout_s: float = REACT_S) -> None:
        """Wait until something is true; LprError where it is not, or where lpr_node ended."""

        def checked() -> Any:
            self.node.check()
            return is_true()

        wait_for(checked, what, timeout_s)

    def wait_for_keyframes(self, number: int = 3) -> None:
        """Wait until the node has described so many more."""
        goal = self.seen + number
        self.wait(lambda: self.seen >= goal, f'{number} more keyframes')

    def read_map(self) -> int:
        """Read the map to the last byte and return its keyframes; MapError where it is damaged."""
        database = PlaceDatabase.load(
            self.map_path, DatabaseConfig(), fingerprint=self._fingerprint
        )
        return len(database)

    def graph_size(self) -> tuple[int, int]:
        """Return the keyframes and loops in the pose graph."""
        said = self.listener.call('pose_graph_node/save_g2o').rpartition(': ')[2]
        keyframes, loops = (int(part.split()[0]) for part in said.split(', '))
        return keyframes, loops

    def verifier_pid(self) -> int:
        """Return the process in which lpr_node verifies."""
        for folder in Path('/proc').glob('[0-9]*'):
            try:
                parent = int((folder / 'stat').read_text().rpartition(')')[2].split()[1])
                command = (folder / 'cmdline').read_bytes()
            except OSError:
                continue
            if parent == self.node.pid and b'closer_process' in command:
                return int(folder.name)
        raise LprError(f'process {self.node.pid} has none that verifies')

    def close(self) -> None:
        """End everything."""
        self.feed.close()
        for program in self._programs:
            if program.is_running:
                program.stop()
        self.disk.close()

    def _on_keyframe(self, message: Float64MultiArray) -> None:
        self.seen += 1
