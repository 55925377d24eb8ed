"""Normalize metric points to the clouds of the Oxford benchmark: 4096 points in [-1, 1]."""

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import CloudError

POINTS = 4096
GROUND_BAND_M = 0.5  # maximum distance of ground points from the fitted plane
GROUND_TILT_DEG = 30.0  # steeper planes are facades
PLANE_TRIALS = 200
PLANE_SAMPLE = 4000  # points to score a plane with
VOXEL_STEP_M = 0.025  # voxel sizes are multiples of it
MEAN_DISTANCE = 0.5  # from the center, after scaling


def remove_ground(
    points: NDArray[np.float64], rng: np.random.Generator, band_m: float = GROUND_BAND_M
) -> NDArray[np.float64]:
    """Return the points (N, 3) outside a band around the dominant near-horizontal plane.

    Planes are tilted by at most GROUND_TILT_DEG, with z vertical. Without one, all points stay.
    """
    if len(points) < 3:
        return points
    corners = points[rng.integers(len(points), size=(PLANE_TRIALS, 3))]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    lengths = np.linalg.norm(normals, axis=1)
    upright = np.abs(normals[:, 2]) >= np.cos(np.deg2rad(GROUND_TILT_DEG)) * lengths
    usable = upright & (lengths > 1e-6)
    if not usable.any():
        return points
    normals = normals[usable] / lengths[usable, None]
    offsets = np.einsum('ij,ij->i', normals, corners[usable, 0])
    sample = points[rng.permutation(len(points))[:PLANE_SAMPLE]]
    near = np.abs(sample @ normals.T - offsets) <= band_m
    best = int(near.sum(axis=0).argmax())
    return points[np.abs(points @ normals[best] - offsets[best]) > band_m]


def normalize(
    points: NDArray[np.float64], rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return 4096 points, centered and scaled to [-1, 1], and their center.

    Points are averaged in the finest voxel grid with at most 4096 occupied voxels and completed
    by random ones. The mean distance from the center becomes 0.5, and points outside [-1, 1] are
    replaced by random ones inside.
    """
    if len(points) < POINTS:
        raise CloudError(f'expected at least {POINTS} points, got {len(points)}')
    reduced = voxel_means(points, _grid_size(points))
    drawn = points[rng.permutation(len(points))[: POINTS - len(reduced)]]
    reduced = np.concatenate([reduced, drawn])
    center = reduced.mean(axis=0)
    spread = np.linalg.norm(reduced - center, axis=1).mean()
    if spread < 1e-9:
        raise CloudError(f'expected distinct points, all are at {center}')
    scale = MEAN_DISTANCE / spread
    inside = _inside((reduced - center) * scale)
    if len(inside) < POINTS:
        spare = _inside((points[rng.permutation(len(points))] - center) * scale)
        if len(inside) + len(spare) < POINTS:
            raise CloudError(
                f'expected {POINTS} points within [-1, 1] after scaling, got {len(inside)} and '
                f'{len(spare)} replacements'
            )
        inside = np.concatenate([inside, spare[: POINTS - len(inside)]])
    return inside, center


def voxel_means(points: NDArray[np.float64], voxel_m: float) -> NDArray[np.float64]:
    """Return the mean of the points of each voxel."""
    _, voxel = np.unique(_voxel_keys(points, voxel_m), return_inverse=True)
    counts = np.bincount(voxel)
    return np.column_stack([np.bincount(voxel, points[:, k]) / counts for k in range(3)])


def _grid_size(points: NDArray[np.float64]) -> float:
    """Return the smallest multiple of VOXEL_STEP_M with at most 4096 occupied voxels."""
    low, high = 0, 1
    while len(np.unique(_voxel_keys(points, high * VOXEL_STEP_M))) > POINTS:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if len(np.unique(_voxel_keys(points, middle * VOXEL_STEP_M))) > POINTS:
            low = middle
        else:
            high = middle
    return high * VOXEL_STEP_M


def _voxel_keys(points: NDArray[np.float64], voxel_m: float) -> NDArray[np.int64]:
    cells = np.floor((points - points.min(axis=0)) / voxel_m).astype(np.int64)
    sizes = cells.max(axis=0) + 1
    return (cells[:, 0] * sizes[1] + cells[:, 1]) * sizes[2] + cells[:, 2]


def _inside(points: NDArray[np.float64]) -> NDArray[np.float64]:
    return points[(np.abs(points) <= 1.0).all(axis=1)]
