"""Points to what the backbone takes: unique integer cells, or thinned points."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import CloudError
from lpr_ros.core.model.alignment import turned, wall_direction
from lpr_ros.core.model.config import InputConfig
from lpr_ros.core.model.grid import Cells, Points, cells_of, columns_of, packed_keys, unique_cells
from lpr_ros.core.sparse import keys

BEV_CELL_M = 0.4  # voxels and columns of the public bird's-eye images
BEV_MAX_COUNT = 10
BEV_HEIGHT_M = 0.01  # unit of heights in a column
BEV_LAYER = 20  # of those units is what the images count in a column ...
BEV_CLEARANCE = 50  # ... from this far above the ground
HIGHEST_M = 300.0  # above and below the sensor
NOTHING_STANDS = 'nothing stands on the ground within range; expected walls, trees, cars'


def quantise(points: Points, config: InputConfig) -> NDArray[np.generic]:
    """Return (V, 3) int32 unique cells, or (N, 3) float32 points for the `points` quantiser."""
    points = _select(_checked(points), config)
    if config.quantizer == 'points':
        return points.astype(np.float32, copy=False)
    if config.quantizer == 'bev':
        return quantise(_lifted_columns(points, config), lifted(config))
    if config.quantizer == 'polar':
        points = _to_polar(points)
    if config.above_ground_m > 0.0:
        points = _standing(points, config.above_ground_m)
    if config.align_yaw:
        points = turned(points, -wall_direction(points))
    return unique_cells(points, np.asarray(config.step))


def lifted(config: InputConfig) -> InputConfig:
    """Return how to quantise points that are lifted bird's-eye counts already.

    Only a disc looks the same from every heading, so an image that is to be turned loses its
    corners.
    """
    return InputConfig(
        quantizer='cartesian',
        step=config.step,
        align_yaw=config.align_yaw,
        max_range_m=config.max_range_m if config.align_yaw else 0.0,
    )


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


def _lifted_columns(points: Points, config: InputConfig) -> Points:
    """Count layers per column and stack as many cells: heights are lost, counts are kept."""
    if config.bev_counts == 'published':
        columns, counts = _standing_layers(points)
    else:
        voxels = unique_cells(points, np.full(3, BEV_CELL_M))
        columns, counts = np.unique(voxels[:, :2], axis=0, return_counts=True)
        counts = np.where(counts > 1, np.minimum(counts, BEV_MAX_COUNT), 0)
    if not counts.any():
        raise CloudError(NOTHING_STANDS)
    cells = lift_columns(columns[counts > 0], counts[counts > 0])
    return (cells + 0.5) * BEV_CELL_M


def _standing_layers(points: Points) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return columns and how many layers above the ground hold points, scaled to 10 in a scan.

    This is how the public images come out when their statistics are taken apart: no ground, even
    lawns a step above the road are one layer; layers half as high as a column is wide; columns
    truncated towards the sensor, so that the middle row and column are of double width.
    """
    column, height = _fine_heights(points, rounded=np.trunc)
    ground = _ground(column, height)
    layer = np.floor((height - ground - BEV_CLEARANCE) / BEV_LAYER).astype(np.int64)
    standing = layer >= 0
    column, counts = np.unique(
        np.unique(column[standing] << 16 | layer[standing]) >> 16, return_counts=True
    )
    counts = np.minimum(counts, BEV_MAX_COUNT)
    counts = np.rint(BEV_MAX_COUNT * counts / counts.max(initial=1)).astype(np.int64)
    return columns_of(column), counts


def _standing(points: Points, above_m: float) -> Points:
    """Keep what stands at least so high above the ground; heights are from the ground then."""
    # A stray point far above or below must not cost the scan.
    near = points[np.abs(points[:, 2]) < HIGHEST_M]
    if len(near) == 0:
        raise CloudError(f'no point within {HIGHEST_M} m of the height of the sensor')
    ground_m = (_ground(*_fine_heights(near)) - keys.LIMIT) * BEV_HEIGHT_M
    standing: Points = near - np.array([0.0, 0.0, ground_m])
    standing = standing[standing[:, 2] >= above_m]
    if len(standing) == 0:
        raise CloudError(NOTHING_STANDS)
    return standing


def _fine_heights(
    points: Points, rounded: np.ufunc = np.floor
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (column, height) of each centimetre that holds points, in that order, packed."""
    cells = np.empty((len(points), 3), np.int64)
    cells[:, :2] = cells_of(points[:, :2], BEV_CELL_M, rounded)
    cells[:, 2] = cells_of(points[:, 2], BEV_HEIGHT_M)
    packed = np.unique(packed_keys(cells))
    return packed >> 16, packed & 0xFFFF


def _ground(column: NDArray[np.int64], height: NDArray[np.int64]) -> float:
    """Return a low one among the lowest points of the columns.

    It stays on the road where half of the columns are walls and crowns seen from afar, and where
    reflections lie under the road.
    """
    begins = np.diff(column, prepend=-1) > 0
    return float(np.percentile(height[begins], 25.0))
