"""Dominant wall direction of a cloud, to remove the heading of the sensor."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.model.voxel_grid import Points, cells_of, columns_of, packed_keys

try:
    from lpr_ros.core.model import wall_alignment_numba
except (ImportError, RuntimeError):  # no numba, or no writable cache folder
    wall_alignment_numba = None  # type: ignore[assignment]

ALIGN_CELL_M = 0.4  # columns and histogram bins
ALIGN_COARSE_DEG, ALIGN_FINE_DEG = 1.5, 0.25  # a 20 m wall fills one bin within 1.1 degrees


def wall_direction(points: Points) -> float:
    """Return the rotation in [0, pi/2), radians, at which walls are parallel to x and y.

    The sum of squared histograms along both axes peaks when walls, curbs and rows of trees fall
    into few bins. The angle follows the heading of the sensor, so a cloud rotated back by it looks
    the same from every heading, up to quarter turns.
    """
    voxels = np.unique(packed_keys(cells_of(points, ALIGN_CELL_M)))
    packed, weights = np.unique(voxels >> 16, return_counts=True)
    # Dithered within the cells, or the grid itself, which turns with the sensor, would align.
    dither = np.random.default_rng(0).uniform(-0.5, 0.5, (len(packed), 2))
    columns = columns_of(packed) + dither
    alignment = wall_alignment_numba.alignment if wall_alignment_numba else _alignment

    def best(angles_deg: NDArray[np.floating[Any]]) -> float:
        return float(angles_deg[np.argmax(alignment(columns, weights, np.radians(angles_deg)))])

    coarse = best(np.arange(0.0, 90.0, ALIGN_COARSE_DEG))
    fine = best(coarse + np.arange(-ALIGN_COARSE_DEG, ALIGN_COARSE_DEG, ALIGN_FINE_DEG))
    return math.radians(fine) % (math.pi / 2.0)


def rotate_z(points: Points, angle_rad: float) -> NDArray[np.float64]:
    """Rotate points about z."""
    c, s = np.cos(angle_rad), np.sin(angle_rad)
    R = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
    result: NDArray[np.float64] = points.astype(np.float64) @ R.T
    return result


def _alignment(
    columns: NDArray[np.float64], weights: NDArray[np.int64], angles: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return for each angle the sum of squared histograms along and across it.

    A column is split between its two nearest bins, so that the sum changes smoothly.
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
