"""Bird's-eye-view counts: occupied height layers per ground column, as stacks of voxels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import CloudError
from lpr_ros.core.model.voxel_grid import (
    Cells,
    Points,
    cells_of,
    columns_of,
    packed_keys,
    unique_cells,
)
from lpr_ros.core.sparse.kernel_map import LIMIT

BEV_CELL_M = 0.4  # cell size of the public KITTI bird's-eye images
BEV_MAX_COUNT = 10
BEV_HEIGHT_M = 0.01  # resolution of heights
BEV_LAYER = 20  # height of a counted layer, in BEV_HEIGHT_M
BEV_CLEARANCE = 50  # height above ground of the first layer, in BEV_HEIGHT_M
MAX_HEIGHT_M = 300.0  # above and below the sensor
NO_OBSTACLES = 'no obstacles above the ground within range; expected walls, trees or cars'


def lift_columns(columns: NDArray[np.integer[Any]], counts: NDArray[np.integer[Any]]) -> Cells:
    """Stack counts[i] cells on each (x, y) column: the voxels of a bird's-eye image."""
    total = int(counts.sum())
    cells = np.empty((total, 3), np.int32)
    cells[:, :2] = np.repeat(columns, counts, axis=0)
    cells[:, 2] = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    return cells


def lift_column_counts(points: Points, *, published: bool) -> Points:
    """Count layers per column and stack as many cells; counts are kept, heights are not."""
    if published:
        columns, counts = _layers_above_ground(points)
    else:
        voxels = unique_cells(points, np.full(3, BEV_CELL_M))
        columns, counts = np.unique(voxels[:, :2], axis=0, return_counts=True)
        counts = np.where(counts > 1, np.minimum(counts, BEV_MAX_COUNT), 0)
    if not counts.any():
        raise CloudError(NO_OBSTACLES)
    cells = lift_columns(columns[counts > 0], counts[counts > 0])
    return (cells + 0.5) * BEV_CELL_M


def _layers_above_ground(points: Points) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return columns and their occupied layers above ground, scaled to at most 10 per scan.

    Reproduces the statistics of the public images: no ground; layers half as high as a column is
    wide; columns truncated toward the sensor, so that the middle row and column are twice as wide.
    """
    column, height = _fine_heights(points, rounding=np.trunc)
    ground = _ground(column, height)
    layer = np.floor((height - ground - BEV_CLEARANCE) / BEV_LAYER).astype(np.int64)
    is_above = layer >= 0
    column, counts = np.unique(
        np.unique(column[is_above] << 16 | layer[is_above]) >> 16, return_counts=True
    )
    counts = np.minimum(counts, BEV_MAX_COUNT)
    counts = np.rint(BEV_MAX_COUNT * counts / counts.max(initial=1)).astype(np.int64)
    return columns_of(column), counts


def points_above_ground(points: Points, above_m: float) -> Points:
    """Return the points at least this far above the ground, with heights above the ground."""
    # Stray points far above or below would leave the grid.
    near = points[np.abs(points[:, 2]) < MAX_HEIGHT_M]
    if len(near) == 0:
        raise CloudError(
            f'no point within {MAX_HEIGHT_M} m above or below the sensor; expected some'
        )
    ground_m = (_ground(*_fine_heights(near)) - LIMIT) * BEV_HEIGHT_M
    leveled: Points = near - np.array([0.0, 0.0, ground_m])
    leveled = leveled[leveled[:, 2] >= above_m]
    if len(leveled) == 0:
        raise CloudError(NO_OBSTACLES)
    return leveled


def _fine_heights(
    points: Points, rounding: np.ufunc = np.floor
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the sorted columns and heights of occupied cells of BEV_HEIGHT_M height."""
    cells = np.empty((len(points), 3), np.int64)
    cells[:, :2] = cells_of(points[:, :2], BEV_CELL_M, rounding)
    cells[:, 2] = cells_of(points[:, 2], BEV_HEIGHT_M)
    packed = np.unique(packed_keys(cells))
    return packed >> 16, packed & 0xFFFF


def _ground(column: NDArray[np.int64], height: NDArray[np.int64]) -> float:
    """Return the ground height: the lower quartile of the lowest points of the columns.

    Robust to distant walls and tree crowns in half of the columns, and to reflections below the
    road.
    """
    starts = np.diff(column, prepend=-1) > 0
    return float(np.percentile(height[starts], 25.0))
