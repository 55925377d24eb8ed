"""Points to what the backbone takes: unique integer cells, or thinned points."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import CloudError
from lpr_ros.core.model.config import InputConfig
from lpr_ros.core.sparse import keys

try:
    from lpr_ros.core.model import lined_up
except ImportError:  # without numba the NumPy code below serves
    lined_up = None  # type: ignore[assignment]

BEV_CELL_M = 0.4  # voxels and columns of the public bird's-eye images
BEV_MAX_COUNT = 10
BEV_HEIGHT_M = 0.01  # unit of heights in a column
BEV_LAYER = 20  # of those units is what the images count in a column ...
BEV_CLEARANCE = 50  # ... from this far above the ground
ALIGN_CELL_M = 0.4  # columns, and bins, of the lines that are looked for
ALIGN_COARSE_DEG, ALIGN_FINE_DEG = 1.5, 0.25  # a wall of 20 m is in one bin within 1.1 degrees

Points = NDArray[np.floating[Any]]
Cells = NDArray[np.int32]


def quantise(points: Points, config: InputConfig) -> NDArray[np.generic]:
    """Return (V, 3) int32 unique cells, or (N, 3) float32 points for the `points` quantiser."""
    points = _select(_checked(points), config)
    if config.quantizer == 'points':
        return points.astype(np.float32, copy=False)
    if config.quantizer == 'bev':
        return quantise(_lifted_columns(points, config), lifted(config))
    if config.quantizer == 'polar':
        points = _to_polar(points)
    if config.align_yaw:
        points = _turned(points, -wall_direction(points))
    return _unique_cells(points, np.asarray(config.step))


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


def wall_direction(points: Points) -> float:
    """Return the angle in [0, pi/2) along and across which the points line up best, in radians.

    The sum of squares of the histograms along x and y is largest when walls, kerbs and rows of
    trees fall into few bins. Where there are such, the angle turns with the cloud: turned back by
    it, the cloud looks the same, up to quarter turns, whatever the heading of the sensor.
    """
    voxels = np.unique(_packed(_cells(points, ALIGN_CELL_M)))
    packed, weights = np.unique(voxels >> 16, return_counts=True)
    # Scattered within their cells: else the grid itself, which is the sensor's, would line up.
    dither = np.random.default_rng(0).uniform(-0.5, 0.5, (len(packed), 2))
    columns = _columns(packed) + dither
    line_up = lined_up.line_up if lined_up else _line_up

    def best(angles_deg: NDArray[np.floating[Any]]) -> float:
        return float(angles_deg[np.argmax(line_up(columns, weights, np.radians(angles_deg)))])

    coarse = best(np.arange(0.0, 90.0, ALIGN_COARSE_DEG))
    fine = best(coarse + np.arange(-ALIGN_COARSE_DEG, ALIGN_COARSE_DEG, ALIGN_FINE_DEG))
    return math.radians(fine) % (math.pi / 2.0)


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
    points: Points, step: NDArray[np.float64] | float, rounded: np.ufunc = np.floor
) -> NDArray[np.int64]:
    with np.errstate(over='ignore'):  # infinite is out of range too
        scaled = rounded(points / step)
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


def _turned(points: Points, angle_rad: float) -> NDArray[np.float64]:
    c, s = np.cos(angle_rad), np.sin(angle_rad)
    turn = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
    turned: NDArray[np.float64] = points.astype(np.float64) @ turn.T
    return turned


def _line_up(
    columns: NDArray[np.float64], weights: NDArray[np.int64], angles: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return, for each angle, the sum of squares of the histograms along it and across it.

    A column is shared by the two bins it lies between: the sum then changes smoothly.
    """
    sums = np.zeros(len(angles))
    for row, angle in enumerate(angles):
        c, s = math.cos(angle), math.sin(angle)
        for axis in ((c, s), (-s, c)):
            offset = columns @ np.array(axis)
            offset -= offset.min()
            lower = offset.astype(np.int64)
            upper = (offset - lower) * weights
            bins = int(lower.max()) + 2
            histogram = np.bincount(lower, weights - upper, bins)
            histogram += np.bincount(lower + 1, upper, bins)
            sums[row] += histogram @ histogram
    return sums


def _columns(packed: NDArray[np.int64]) -> NDArray[np.int64]:
    """Unpack cells without their height: (N, 2)."""
    return np.stack([packed >> 16, packed & 0xFFFF], axis=1) - keys.LIMIT


def _lifted_columns(points: Points, config: InputConfig) -> Points:
    """Count layers per column and stack as many cells: heights are lost, counts are kept."""
    if config.bev_counts == 'published':
        columns, counts = _standing_layers(points)
    else:
        voxels = _unique_cells(points, np.full(3, BEV_CELL_M))
        columns, counts = np.unique(voxels[:, :2], axis=0, return_counts=True)
        counts = np.where(counts > 1, np.minimum(counts, BEV_MAX_COUNT), 0)
    if not counts.any():
        raise CloudError('nothing stands on the ground within range; expected walls, trees, cars')
    cells = lift_columns(columns[counts > 0], counts[counts > 0])
    return (cells + 0.5) * BEV_CELL_M


def _standing_layers(points: Points) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return columns and how many layers above the ground hold points, scaled to 10 in a scan.

    This is how the public images come out when their statistics are taken apart: no ground, even
    lawns a step above the road are one layer; layers half as high as a column is wide; columns
    truncated towards the sensor, so that the middle row and column are of double width.
    """
    cells = np.empty((len(points), 3), np.int64)
    cells[:, :2] = _cells(points[:, :2], BEV_CELL_M, rounded=np.trunc)
    cells[:, 2] = _cells(points[:, 2], BEV_HEIGHT_M)
    packed = np.unique(_packed(cells))  # in order of columns, and of heights in each
    column, height = packed >> 16, packed & 0xFFFF
    begins = np.diff(column, prepend=-1) > 0
    # A low one among the lowest points of the columns: it stays on the road where half of the
    # columns are walls and crowns seen from afar, and where reflections lie under the road.
    ground = np.percentile(height[begins], 25.0)
    layer = np.floor((height - ground - BEV_CLEARANCE) / BEV_LAYER).astype(np.int64)
    standing = layer >= 0
    column, counts = np.unique(
        np.unique(column[standing] << 16 | layer[standing]) >> 16, return_counts=True
    )
    counts = np.minimum(counts, BEV_MAX_COUNT)
    counts = np.rint(BEV_MAX_COUNT * counts / counts.max(initial=1)).astype(np.int64)
    return _columns(column), counts
