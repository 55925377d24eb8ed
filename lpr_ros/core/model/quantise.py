"""Points to what the backbone takes: unique integer cells, or thinned points."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import CloudError
from lpr_ros.core.model.config import InputConfig
from lpr_ros.core.sparse import keys

BEV_CELL_M = 0.4  # voxels and columns of the public bird's-eye images
BEV_MAX_COUNT = 10

Points = NDArray[np.floating[Any]]
Cells = NDArray[np.int32]


def quantise(points: Points, config: InputConfig) -> NDArray[np.generic]:
    """Return (V, 3) int32 unique cells, or (N, 3) float32 points for the `points` quantiser."""
    points = _select(_checked(points), config)
    if config.quantizer == 'points':
        return points.astype(np.float32, copy=False)
    if config.quantizer == 'bev':
        return _column_cells(points, config)
    if config.quantizer == 'polar':
        points = _to_polar(points)
    return _unique_cells(points, np.asarray(config.step))


def lifted(config: InputConfig) -> InputConfig:
    """Return how to quantise points that are lifted bird's-eye counts already."""
    return InputConfig(quantizer='cartesian', step=config.step)


def lift_columns(columns: NDArray[np.integer[Any]], counts: NDArray[np.integer[Any]]) -> Cells:
    """Stack counts[i] cells upwards on each (x, y) column: the voxels of a bird's-eye image."""
    total = int(counts.sum())
    cells = np.empty((total, 3), np.int32)
    cells[:, :2] = np.repeat(columns, counts, axis=0)
    cells[:, 2] = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    return cells


def _checked(points: Points) -> Points:
    points = np.asarray(points)
    if points.ndim != 2 or points.shape[1] != 3:
        raise CloudError(f'expected points of shape (N, 3), got {points.shape}')
    if not np.issubdtype(points.dtype, np.floating):
        raise CloudError(f'expected floating-point coordinates, got {points.dtype}')
    is_finite = np.isfinite(points).all(axis=1)
    if not is_finite.all():
        first = int(np.argmin(is_finite))
        raise CloudError(
            f'expected finite points, got {points[first].tolist()} at row {first} '
            f'({int((~is_finite).sum())} such rows)'
        )
    return points


def _select(points: Points, config: InputConfig) -> Points:
    """Crop to the configured range and thin to the configured number."""
    if config.min_range_m > 0.0 or config.max_range_m > 0.0:
        x, y = points[:, 0], points[:, 1]
        kept = np.ones(len(points), bool)
        squared = x * x + y * y
        if config.min_range_m > 0.0:
            kept &= squared >= config.min_range_m**2
        if config.max_range_m > 0.0:
            kept &= (
                (np.abs(points) < config.max_range_m).all(axis=1)
                if config.quantizer == 'bev'
                else squared <= config.max_range_m**2
            )
        points = points[kept]
    if 0 < config.max_points < len(points):
        points = points[np.linspace(0, len(points) - 1, config.max_points).astype(np.int64)]
    if len(points) == 0:
        raise CloudError(
            f'no point within {config.min_range_m} to {config.max_range_m or "any"} m; '
            'expected at least one'
        )
    return points


def _to_polar(points: Points) -> Points:
    x, y, z = points.astype(np.float64).T
    return np.stack([180.0 + np.degrees(np.arctan2(y, x)), np.hypot(x, y), z], axis=1)


def _cells(
    points: Points, step: NDArray[np.float64] | float, origin: NDArray[np.float64] | float = 0.0
) -> NDArray[np.int64]:
    scaled = np.floor((points - origin) / step)
    if scaled.size:
        low, high = float(scaled.min()), float(scaled.max())
        if low < -keys.LIMIT or high >= keys.LIMIT:
            raise CloudError(
                f'cells {low:.6g}..{high:.6g} leave the grid [{-keys.LIMIT}, {keys.LIMIT}); '
                f'use a larger step than {np.asarray(step).tolist()} or a shorter range'
            )
    cells: NDArray[np.int64] = scaled.astype(np.int64)
    return cells


def _packed(cells: NDArray[np.int64]) -> NDArray[np.int64]:
    biased = cells + keys.LIMIT
    return biased[:, 0] << 32 | biased[:, 1] << 16 | biased[:, 2]


def _unique_cells(points: Points, step: NDArray[np.float64]) -> Cells:
    packed = np.unique(_packed(_cells(points, step)))
    unpacked = np.stack([packed >> 32, packed >> 16 & 0xFFFF, packed & 0xFFFF], axis=1)
    return (unpacked - keys.LIMIT).astype(np.int32)


def _column_cells(points: Points, config: InputConfig) -> Cells:
    """Count voxels per column and stack as many cells: heights are lost, counts are kept."""
    is_published = config.bev_counts == 'published'
    if is_published:
        per_voxel: NDArray[np.integer[Any]] = _centroid_columns(points, BEV_CELL_M)
    else:
        per_voxel = _unique_cells(points, np.full(3, BEV_CELL_M))[:, :2]
    columns, counts = np.unique(per_voxel, axis=0, return_counts=True)
    if is_published:
        counts = np.minimum(counts - 1, BEV_MAX_COUNT)
        counts = np.rint(BEV_MAX_COUNT * counts / max(int(counts.max()), 1)).astype(np.int64)
    else:
        counts = np.where(counts > 1, np.minimum(counts, BEV_MAX_COUNT), 0)
    if not counts.any():
        raise CloudError('no column with two occupied voxels; expected standing objects')
    cells = lift_columns(columns[counts > 0], counts[counts > 0])
    return _unique_cells((cells + 0.5) * BEV_CELL_M, np.asarray(config.step))


def _centroid_columns(points: Points, step: float) -> NDArray[np.int64]:
    """Return the (x, y) column of each voxel's centroid, voxels anchored at the lowest corner.

    That is how the public images were thinned; a column then holds the centroids of up to four
    voxel columns, which is why their counts exceed the number of voxels a sensor can see upwards.
    """
    wide = points.astype(np.float64)
    packed = _packed(_cells(wide, step, wide.min(axis=0) - step / 2.0))
    _, voxel, counts = np.unique(packed, return_inverse=True, return_counts=True)
    sums = [np.bincount(voxel, weights=wide[:, axis]) for axis in (0, 1)]
    return _cells(np.stack(sums, axis=1) / counts[:, None], step)
