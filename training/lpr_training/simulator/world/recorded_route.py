"""Recorded drives to build a world around, from KITTI pose files."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from scipy.spatial import cKDTree

from lpr_ros.core.errors import DatasetError
from lpr_training.simulator.geometry.polylines import Line, resample, smooth

SPACING_M = 0.5


@dataclass(frozen=True, eq=False)
class Trajectory:
    """A recorded path, evenly spaced."""

    xy: Line  # (M, 2)
    z: NDArray[np.float64]  # (M,)
    name: str


def read_trajectory(path: Path, length_m: float | None = None) -> Trajectory:
    """Read a KITTI pose file (N x 12, camera frame: x right, y down, z forward)."""
    try:
        lines = Path(path).read_text(encoding='utf-8').split('\n')
        table = np.array([line.split() for line in lines if line.strip()], np.float64)
    except (OSError, ValueError) as error:
        raise DatasetError(f'{path}: expected rows of numbers: {error}') from error
    if table.ndim != 2 or table.shape[1] != 12 or not np.isfinite(table).all():
        raise DatasetError(
            f'{path}: expected rows of 12 finite numbers, found a table of shape {table.shape}'
        )
    right, down, forward = table[:, 3], table[:, 7], table[:, 11]
    return trajectory_from(np.stack([forward, -right, -down], axis=1), Path(path).stem, length_m)


def trajectory_from(
    positions: NDArray[np.float64], name: str, length_m: float | None = None
) -> Trajectory:
    """Make a trajectory from positions (N, 3), z up; stops are removed."""
    steps = np.linalg.norm(np.diff(positions[:, :2], axis=0), axis=1)
    s = np.concatenate([[0.0], np.cumsum(steps)])
    if s[-1] < 10.0:
        raise DatasetError(f'{name}: expected a drive of at least 10 m, found {s[-1]:.1f} m')
    end = min(float(s[-1]), length_m or np.inf)
    keep = s <= end
    xy = smooth(resample(positions[keep, :2], SPACING_M), SPACING_M, 1.0)
    at = np.linspace(0.0, s[keep][-1], len(xy))
    return Trajectory(xy, np.interp(at, s, positions[:, 2]), name)


def terrain(trajectory: Trajectory, xy: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return heights for a grid (rows, columns, 2), interpolated from the drive."""
    sparse = slice(None, None, 8)
    tree = cKDTree(trajectory.xy[sparse])
    distance, index = tree.query(xy.reshape(-1, 2), k=min(12, tree.n))
    weight = 1.0 / (distance + 6.0) ** 3
    height = (weight * trajectory.z[sparse][index]).sum(axis=1) / weight.sum(axis=1)
    return gaussian_filter(height.reshape(xy.shape[:2]), 3.0, mode='nearest')
