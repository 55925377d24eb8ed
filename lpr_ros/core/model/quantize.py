"""Quantizers: points to the input of a backbone, unique integer cells or float points.

`QUANTIZERS` lists them; a new one is a function and one line there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import CloudError
from lpr_ros.core.geometry.points import check_points
from lpr_ros.core.model.bev_counts import lift_column_counts, points_above_ground
from lpr_ros.core.model.voxel_grid import Cells, Points, unique_cells
from lpr_ros.core.model.wall_alignment import rotate_z, wall_direction

if TYPE_CHECKING:
    from lpr_ros.core.model.config import InputConfig


def quantize(points: Points, config: 'InputConfig') -> NDArray[np.generic]:
    """Return (V, 3) int32 unique cells, or (N, 3) float32 points for a point backbone."""
    points = np.asarray(points)
    check_points(points)
    if not np.issubdtype(points.dtype, np.floating):
        raise CloudError(f'expected floating-point coordinates, got {points.dtype}')
    return QUANTIZERS[config.quantizer].quantize(_select(points, config), config)


def lifted(config: 'InputConfig') -> 'InputConfig':
    """Return how to quantize points that are lifted bird's-eye-view counts already.

    Only a disc looks the same from every heading, so an image that will be rotated loses its
    corners.
    """
    return type(config)(
        quantizer='cartesian',
        step=config.step,
        align_yaw=config.align_yaw,
        max_range_m=config.max_range_m if config.align_yaw else 0.0,
    )


def _cartesian(points: Points, config: 'InputConfig') -> Cells:
    if config.above_ground_m > 0.0:
        points = points_above_ground(points, config.above_ground_m)
    if config.align_yaw:
        points = rotate_z(points, -wall_direction(points))
    return unique_cells(points, np.asarray(config.step))


def _polar(points: Points, config: 'InputConfig') -> Cells:
    x, y, z = points.astype(np.float64).T
    polar = np.stack([180.0 + np.degrees(np.arctan2(y, x)), np.hypot(x, y), z], axis=1)
    return unique_cells(polar, np.asarray(config.step))


def _bev(points: Points, config: 'InputConfig') -> Cells:
    columns = lift_column_counts(points, published=config.bev_counts == 'published')
    return _cartesian(_select(columns, lifted(config)), lifted(config))


def _float_points(points: Points, config: 'InputConfig') -> NDArray[np.float32]:
    return points.astype(np.float32, copy=False)


@dataclass(frozen=True)
class Quantizer:
    """One quantizer; `quantize` receives checked points, cropped and limited in number."""

    quantize: Callable[[Points, 'InputConfig'], NDArray[np.generic]]
    gives_voxels: bool = True  # False: float points
    is_cartesian: bool = False  # cells along x and y, which can be rotated by quarter turns


QUANTIZERS: dict[str, Quantizer] = {
    'cartesian': Quantizer(_cartesian, is_cartesian=True),
    'polar': Quantizer(_polar),
    'bev': Quantizer(_bev, is_cartesian=True),
    'points': Quantizer(_float_points, gives_voxels=False),
}


def _select(points: Points, config: 'InputConfig') -> Points:
    """Crop to the configured range and thin to the configured number of points."""
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
