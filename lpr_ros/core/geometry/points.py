"""Point clouds as (N, 3) arrays: the finite-point rule and voxel downsampling."""

from collections.abc import Sequence
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import CloudError, DatasetError

MAX_RANGE_M = 1e4  # beyond any LiDAR; farther points overflow the voxel indices of small_gicp


def finite_rows(points: NDArray[np.floating[Any]]) -> NDArray[np.bool_]:
    """Return the mask (N,) of points whose x, y and z are all finite."""
    # Column by column: three times faster than isfinite(points).all(axis=1).
    finite: NDArray[np.bool_] = np.isfinite(points[:, 0])
    finite &= np.isfinite(points[:, 1])
    finite &= np.isfinite(points[:, 2])
    return finite


def check_points(points: NDArray[np.floating[Any]]) -> None:
    """Raise CloudError unless the points are (N, 3) and finite."""
    _check_shape(points)
    finite = finite_rows(points)
    if not finite.all():
        row = int(np.argmin(finite))
        raise CloudError(
            f'expected finite points, got {points[row].tolist()} at row {row} '
            f'({len(points) - int(finite.sum())} of {len(points)} points are not finite)'
        )


def finite_xyz(path: Path, table: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Return the finite rows of the first three columns as float32; DatasetError if none."""
    with np.errstate(over='ignore'):
        points = np.ascontiguousarray(table[:, :3], dtype=np.float32)
    keep = finite_rows(points)
    if not keep.any():
        raise DatasetError(f'{path}: expected a finite point, got none among {len(points)}')
    return points if keep.all() else points[keep]


def points_in_range(points: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Return the points with coordinates below MAX_RANGE_M as float32; NaN is out of range."""
    _check_shape(points)
    with np.errstate(invalid='ignore', over='ignore'):
        converted: NDArray[np.float32] = points.astype(np.float32, copy=False)
        near = np.abs(converted[:, 0]) < MAX_RANGE_M  # column by column, as in finite_rows
        near &= np.abs(converted[:, 1]) < MAX_RANGE_M
        near &= np.abs(converted[:, 2]) < MAX_RANGE_M
    return converted if near.all() else converted[near]


def _check_shape(points: NDArray[Any]) -> None:
    if points.ndim != 2 or points.shape[1] != 3:
        raise CloudError(f'expected points of shape (N, 3), got {points.shape}')


def voxel_downsample(points: NDArray[np.float32], voxel_m: float) -> NDArray[np.float32]:
    """Keep the first point of each voxel in input order; 0 keeps all points."""
    if voxel_m <= 0.0:
        return points
    kept: NDArray[np.float32] = points[first_in_voxels(points, voxel_m)]
    return kept


def first_in_voxels(points: NDArray[np.float32], voxel_m: float) -> NDArray[np.bool_]:
    """Return the mask (N,) of the points that are the first of their voxel."""
    if len(points) == 0:
        return np.zeros(0, dtype=bool)
    cells = [np.floor(points[:, k] / np.float64(voxel_m)).astype(np.int64) for k in range(3)]
    return _first_occurrences([c - c.min() for c in cells])


def _first_occurrences(columns: Sequence[NDArray[np.int64]]) -> NDArray[np.bool_]:
    """Return the mask (N,) of rows that occur for the first time; values are non-negative."""
    count = len(columns[0])
    is_first = np.zeros(count, dtype=bool)
    spans = [int(column.max()) + 1 for column in columns]
    if math.prod(spans) * count >= 2**63:
        is_first[np.unique(np.stack(columns), axis=1, return_index=True)[1]] = True
        return is_first
    # Cell and row packed into one integer: a plain sort, three times faster than np.unique.
    keys = np.zeros(count, dtype=np.int64)
    for column, span in zip(columns, spans, strict=True):
        keys *= span
        keys += column
    keys *= count
    keys += np.arange(count)
    keys.sort()
    rows = keys % count
    keys //= count
    is_first[rows[np.concatenate([[True], keys[1:] != keys[:-1]])]] = True
    return is_first
