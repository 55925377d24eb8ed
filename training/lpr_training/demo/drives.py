"""The drives of the demo: simulated, or a real recording with drift added to its odometry.

Both are written as scans_*.npz for the player, with a ground-truth trajectory.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from tqdm import tqdm

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.geometry.trajectory import Trajectory
from lpr_ros.core.io.pose_files import read_tum, write_tum
from lpr_ros.core.recordings.open import open_recording
from lpr_training.datasets.packed_scans import write_packed
from lpr_training.evaluation.reference_poses import scan_to_map_poses
from lpr_training.simulator import (
    OdometryConfig,
    SimulationConfig,
    load_sensor,
    make_drive,
    make_world,
    simulate_drive,
)
from lpr_training.simulator.drive.odometry import drifting

# Visible drift, like that of a car without an IMU. The nodes get the matching noise parameters.
DRIFT = OdometryConfig(
    scale_sigma=0.01, heading_bias_deg=0.8, heading_walk_deg=1.0, position_walk_m=0.3
)
EXPECTED = {'position_fraction': 0.02, 'heading_deg': 1.0, 'tilt_deg': 0.4}
SEED = 200  # two minutes, with two revisits in the same direction and two in the opposite
DRIFT_SEED = 8  # drifts by 5 m
LENGTH_M = 960.0
WORLD_M = 200.0
COLUMNS = 512  # per beam
RATE_HZ = 10.0
ODOMETRY = 'odometry_noise.'


@dataclass(frozen=True, eq=False)
class DemoDrive:
    """A recording to play, its ground truth, and the parameters it needs."""

    title: str
    path: Path
    truth: Trajectory  # T_world_sensor
    scans: int
    parameters: dict[str, object] = field(default_factory=dict)  # of lpr_node
    rate: float = 1.0  # of playback

    @property
    def graph_parameters(self) -> dict[str, object]:
        """Return the odometry noise for pose_graph_node, the same as for lpr_node."""
        return {
            f'odometry_noise.{name.removeprefix(ODOMETRY)}': value
            for name, value in self.parameters.items()
            if name.startswith(ODOMETRY)
        }


def simulated_drive(folder: Path) -> DemoDrive:
    """Return the simulated drive; reuse the one in the folder if there is one."""
    path, truth = folder / f'scans_city_{SEED}.npz', folder / f'truth_city_{SEED}.tum'
    if not (path.is_file() and truth.is_file()):
        world = make_world('city', SEED, size_m=WORLD_M)
        drive = make_drive(world, LENGTH_M, seed=SEED)
        sensor = replace(load_sensor('hdl64'), columns=COLUMNS, rate_hz=RATE_HZ)
        simulation = simulate_drive(
            world, sensor, drive, SimulationConfig(odometry=DRIFT), seed=DRIFT_SEED
        )
        scans = list(tqdm(simulation, desc='simulate', unit='scan'))
        stamps = np.array([scan.stamp_ns for scan in scans])
        T_odom = np.stack([scan.T_odom_sensor for scan in scans])
        write_tum(truth, Trajectory(stamps, simulation.T_world_sensor))
        write_packed(path, [scan.points for scan in scans], stamps, T_odom)
    return _open(f'simulated city {SEED}', path, truth)


def real_drive(data: Path, folder: Path) -> DemoDrive:
    """Return a 75 m walk with a spinning LiDAR; the ground truth is computed from its scans.

    The recorded poses slip by meters. Its stamps are 0.1 s apart whatever the true times were, so
    only the traveled distance tells what is recent. It plays at half speed.
    """
    recorded = data / 'scans_balm.npz'
    if not recorded.is_file():
        raise DatasetError(f'{recorded}: not found; expected the real scans, set --data')
    source = open_recording(recorded)
    path, truth = folder / 'scans_balm.npz', folder / 'truth_balm.tum'
    if not (path.is_file() and truth.is_file()):
        clouds = [source.points(i) for i in range(len(source))]
        T_world = scan_to_map_poses(clouds)
        T_odom = drifting(T_world, DRIFT, np.random.default_rng(0))
        write_packed(path, clouds, source.stamps_ns, T_odom)
        write_tum(truth, Trajectory(source.stamps_ns, T_world))
    drive = _open('real walk (BALM) with added odometry drift', path, truth)
    parameters = drive.parameters | {
        'keyframes.distance_m': 0.5,
        'database.exclude_s': 0.0,
        'database.exclude_m': 25.0,
    }
    return replace(drive, parameters=parameters, rate=0.5)


def _open(title: str, path: Path, truth: Path) -> DemoDrive:
    expected = {f'{ODOMETRY}{name}': value for name, value in EXPECTED.items()}
    return DemoDrive(title, path, read_tum(truth), len(open_recording(path)), expected)
