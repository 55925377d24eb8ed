"""The drives of the demonstration: simulated, or a real recording with drift put on it.

Both become one scans_*.npz, as the player reads it, and the truth beside it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.files import whole_file
from lpr_ros.core.geometry import Trajectory
from lpr_ros.core.poses import read_tum, write_tum
from lpr_ros.core.scan_sources import open_source
from lpr_training.settled import settled_poses
from lpr_training.simulator import (
    OdometryConfig,
    SimulationConfig,
    load_sensor,
    make_drive,
    make_world,
    simulate_drive,
)
from lpr_training.simulator.odometry import drifting

# As a car without inertial sensors: it drifts so that one sees it. The nodes are told.
DRIFT = OdometryConfig(
    scale_sigma=0.01, heading_bias_deg=0.8, heading_walk_deg=1.0, position_walk_m=0.3
)
EXPECTED = {'position_share': 0.02, 'heading_deg': 1.0, 'tilt_deg': 0.4}
SEED = 200  # of a drive of two minutes with two stretches driven again and two driven back
DRIFT_SEED = 8  # of a drift of 5 m
LENGTH_M = 960.0
WORLD_M = 200.0
COLUMNS = 512  # shots of a beam per sweep
RATE_HZ = 10.0
ODOMETRY = 'pairwise.odometry.'


@dataclass(frozen=True, eq=False)
class DemoDrive:
    """What is played, the truth about it, and the parameters it needs."""

    title: str
    path: Path
    truth: Trajectory  # T_world_sensor
    scans: int
    parameters: dict[str, object] = field(default_factory=dict)  # of lpr_node
    rate: float = 1.0  # of playing

    @property
    def graph_parameters(self) -> dict[str, object]:
        """What pose_graph_node is to know of it: the odometry as lpr_node expects it."""
        return {
            f'back_end.odometry.{name.removeprefix(ODOMETRY)}': value
            for name, value in self.parameters.items()
            if name.startswith(ODOMETRY)
        }


def simulated_drive(folder: Path) -> DemoDrive:
    """Return the simulated drive, from the folder where it is there already."""
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
    return _opened(f'simulated city {SEED}', path, truth)


def real_drive(data: Path, folder: Path) -> DemoDrive:
    """Return a walk of 75 m with a spinning LiDAR; the truth is made from its scans.

    The poses that come with it slip by metres. Its scans are 0.1 s apart by their stamps,
    whatever they were: only the way tells what is recent. It plays at half its speed.
    """
    recorded = data / 'scans_balm.npz'
    if not recorded.is_file():
        raise DatasetError(f'{recorded}: expected the real scans, there are none on this machine')
    source = open_source(recorded)
    path, truth = folder / 'scans_balm.npz', folder / 'truth_balm.tum'
    if not (path.is_file() and truth.is_file()):
        clouds = [source.points(i) for i in range(len(source))]
        T_world = settled_poses(clouds)
        T_odom = drifting(T_world, DRIFT, np.random.default_rng(0))
        write_packed(path, clouds, source.stamps_ns, T_odom)
        write_tum(truth, Trajectory(source.stamps_ns, T_world))
    drive = _opened('real walk (BALM), with drift put on its odometry', path, truth)
    parameters = drive.parameters | {
        'keyframes.distance_m': 0.5,
        'database.exclude_s': 0.0,
        'database.exclude_m': 25.0,
    }
    return replace(drive, parameters=parameters, rate=0.5)


def write_packed(
    path: Path,
    clouds: Iterable[NDArray[np.float32]],
    stamps_ns: NDArray[np.int64],
    T_odom_sensor: NDArray[np.float64],
) -> None:
    """Write scans as int16 centimetres into one file."""
    packed = [np.round(points * 100.0).astype(np.int16) for points in clouds]
    offsets = np.concatenate([[0], np.cumsum([len(points) for points in packed])])
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial, partial.open('wb') as stream:
        np.savez(
            stream,
            points_cm=np.concatenate(packed),
            offsets=offsets,
            stamps_ns=stamps_ns,
            T_odom_sensor=T_odom_sensor,
        )


def _opened(title: str, path: Path, truth: Path) -> DemoDrive:
    expected = {f'{ODOMETRY}{name}': value for name, value in EXPECTED.items()}
    return DemoDrive(title, path, read_tum(truth), len(open_source(path)), expected)
