"""Pairs of scans with the poses that were recorded with them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.database.cloud_store import pack
from lpr_ros.core.database.place_database import DatabaseConfig
from lpr_ros.core.geometry.se3 import invert
from lpr_ros.core.io.npz_reader import Expected, NpzFile
from lpr_ros.core.types import Keyframe
from lpr_training.benchmarks.registration.pairs import simulated_pairs
from lpr_training.datasets.kitti_bev import CENTER, PIXEL_M, KittiBevDataset
from lpr_training.datasets.registry import make_dataset
from lpr_training.evaluation.reference_poses import scan_to_map_poses, settle_poses

DISTANCES_M = (2.0, 20.0)  # between the scans of a pair along a drive
REVISIT_M = 8.0  # between those of two visits
MIN_WAY_M = 25.0  # traveled between two visits
KEYFRAME_M = 2.0
SCANS_M = 1.0  # between the scans that pairs are drawn from
LIFT_STEP_M = 0.2  # between the points of a column
LIFT_FROM_M = 0.6  # above the ground
SENSOR_HEIGHT_M = 1.73
GROUND_REACH_M = 30
GROUND_NOISE_M = 0.02
WORLDS = ('city', 'suburb', 'forest', 'car_park', 'identical_houses')
SENSORS = ('hdl64', 'vlp16')
WORLD_M = {'car_park': 120.0}  # side; others 300
SEED = 400  # unseen by training and tuning

Poses = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CovariancePair:
    """Two keyframes and their true relative pose."""

    match: Keyframe
    query: Keyframe
    T_match_query: Poses


def along_a_drive(data: Path, run: str, pairs: int) -> list[CovariancePair]:
    """Return pairs 2 to 20 m apart of a drive, evenly over the distances."""
    dataset = make_dataset('scans', data, runs=[run])
    T = _recorded_poses(data / f'scans_{run}.npz', dataset.T_world_sensor)
    rows = _every(T, SCANS_M)
    T = T[rows]
    rng = np.random.default_rng(0)
    distance_m = _distances_m(T)
    chosen = []
    for target_m in np.linspace(*DISTANCES_M, pairs):
        a = int(rng.integers(len(rows) - 1))
        later = distance_m[a, a + 1 :]
        b = a + 1 + int(np.argmin(np.abs(later - target_m)))
        if DISTANCES_M[0] <= distance_m[a, b] <= DISTANCES_M[1]:
            clouds = (dataset.points(rows[i]) for i in (a, b))
            chosen.append(_pair(a, b, *clouds, invert(T[a]) @ T[b]))
    return chosen


def walked_twice(data: Path, run: str, pairs: int) -> list[CovariancePair]:
    """Return revisits of a walk in one place; its recorded poses slip, so they are settled."""
    dataset = make_dataset('scans', data, runs=[run])
    points = [dataset.points(i) for i in range(len(dataset))]
    T = settle_poses(points, scan_to_map_poses(points))
    return [_pair(a, b, points[a], points[b], invert(T[a]) @ T[b]) for a, b in _revisits(T, pairs)]


def lifted_revisits(data: Path, sequence: str, pairs: int) -> list[CovariancePair]:
    """Return revisits of a KITTI drive whose bird's-eye images are lifted to clouds.

    Lifted ground is level in every scan: the height, roll and pitch of the recorded poses are not
    in the clouds.
    """
    dataset = KittiBevDataset(data, sequences=[sequence])
    rows = _every(dataset.T_world_sensor, KEYFRAME_M)
    T = dataset.T_world_sensor[rows]
    chosen = []
    for a, b in _revisits(T, pairs):
        clouds = (lift(dataset.counts(i), np.random.default_rng(i)) for i in (rows[a], rows[b]))
        chosen.append(_pair(a, b, *clouds, invert(T[a]) @ T[b]))
    return chosen


def simulated(world: str, sensor: str, pairs: int) -> list[CovariancePair]:
    """Return revisits of a simulated drive, half of them in the opposite direction."""
    true, _ = simulated_pairs(world, sensor, pairs, SEED, WORLD_M.get(world, 300.0))
    return [
        _pair(p.match.id, p.query.id, p.match.points, p.query.points, p.T_match_query)
        for p in true
    ]


Loader = Callable[[int], list[CovariancePair]]


def pair_sets(data: Path) -> dict[str, Loader]:
    """Return the available sets: functions of the number of pairs."""
    real: dict[str, tuple[str, Loader]] = {
        'kitti 00 3d': ('scans_kitti_00_3d', partial(along_a_drive, data, 'kitti_00_3d')),
        'kitti raw 0005': ('scans_kitti_raw_0005', partial(along_a_drive, data, 'kitti_raw_0005')),
        'nuscenes 0001': ('scans_nuscenes_0001', partial(along_a_drive, data, 'nuscenes_0001')),
        'balm': ('scans_balm', partial(walked_twice, data, 'balm')),
        'kitti 00 lifted': ('kitti_bev_00', partial(lifted_revisits, data, '00')),
        'kitti 05 lifted': ('kitti_bev_05', partial(lifted_revisits, data, '05')),
    }
    sets = {name: load for name, (file, load) in real.items() if (data / f'{file}.npz').is_file()}
    return sets | {f'{w} {s}': partial(simulated, w, s) for w in WORLDS for s in SENSORS}


def keyframe(index: int, points: NDArray[np.float32]) -> Keyframe:
    """Return a keyframe that has only a cloud, as the database stores it."""
    database = DatabaseConfig()
    stored = pack(points, database.cloud_voxel_m, database.max_cloud_points).points
    return Keyframe(index, 'benchmark', index, np.zeros(1, np.float32), stored, None, 0.0)


def lift(counts: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.float32]:
    """Return a cloud of a count image: columns spread inside their pixels, and level ground."""
    rows, columns = np.nonzero(counts)
    heights = counts[rows, columns].astype(np.int64)
    level = np.arange(heights.sum()) - np.repeat(np.cumsum(heights) - heights, heights)
    inside = rng.uniform(-0.5, 0.5, (2, len(level)))
    x = (CENTER - np.repeat(rows, heights) + inside[0]) * PIXEL_M
    y = (CENTER - np.repeat(columns, heights) + inside[1]) * PIXEL_M
    z = LIFT_FROM_M - SENSOR_HEIGHT_M + LIFT_STEP_M * level
    grid = np.arange(-GROUND_REACH_M, GROUND_REACH_M + 1.0)
    ground_x, ground_y = (axis.ravel() for axis in np.meshgrid(grid, grid))
    ground_z = GROUND_NOISE_M * rng.standard_normal(len(ground_x)) - SENSOR_HEIGHT_M
    ground = np.stack([ground_x, ground_y, ground_z], axis=1)
    return np.concatenate([np.stack([x, y, z], axis=1), ground]).astype(np.float32)


def _recorded_poses(path: Path, T_odom_sensor: Poses) -> Poses:
    """Return GNSS/INS poses if the file has them, else its odometry."""
    with np.load(path, allow_pickle=False) as file:
        if 'T_world_sensor' not in file.files:
            return T_odom_sensor
    poses = NpzFile(path, {'T_world_sensor': Expected('f', (None, 4, 4))})['T_world_sensor']
    return np.asarray(poses, np.float64)


def _pair(
    a: int,
    b: int,
    points_a: NDArray[np.float32],
    points_b: NDArray[np.float32],
    T_a_b: Poses,
) -> CovariancePair:
    return CovariancePair(keyframe(a, points_a), keyframe(b, points_b), T_a_b)


def _revisits(T: Poses, pairs: int) -> list[tuple[int, int]]:
    """Draw pairs of two visits."""
    found = np.argwhere((_distances_m(T) < REVISIT_M) & (_ways_m(T) > MIN_WAY_M))
    order = np.random.default_rng(0).permutation(len(found))[:pairs]
    return [(int(a), int(b)) for a, b in found[order]]


def _every(T: Poses, spacing_m: float) -> NDArray[np.int64]:
    """Return rows at least this far of the way apart."""
    traveled_m = _traveled_m(T)
    return np.unique(np.searchsorted(traveled_m, np.arange(0.0, traveled_m[-1], spacing_m)))


def _traveled_m(T: Poses) -> NDArray[np.float64]:
    steps = np.linalg.norm(np.diff(T[:, :3, 3], axis=0), axis=1)
    return np.concatenate([[0.0], np.cumsum(steps)])


def _ways_m(T: Poses) -> NDArray[np.float64]:
    """Return the way from each pose (rows) to each later one (columns)."""
    traveled_m = _traveled_m(T)
    return traveled_m[None] - traveled_m[:, None]


def _distances_m(T: Poses) -> NDArray[np.float64]:
    return np.linalg.norm(T[:, None, :3, 3] - T[None, :, :3, 3], axis=2)
