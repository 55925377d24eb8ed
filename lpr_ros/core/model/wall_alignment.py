"""The direction of the walls of a cloud, which does not depend on the heading of the sensor."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.model.grid import Points, cells_of, columns_of, packed_keys

try:
    from lpr_ros.core.model import lined_up
except (ImportError, RuntimeError):  # without numba or a place for its cache: NumPy serves
    lined_up = None  # type: ignore[assignment]

ALIGN_CELL_M = 0.4  # columns, and bins, of the lines that are looked for
ALIGN_COARSE_DEG, ALIGN_FINE_DEG = 1.5, 0.25  # a wall of 20 m is in one bin within 1.1 degrees


def wall_direction(points: Points) -> float:
    """Return the angle in [0, pi/2) along and across which the points line up best, in radians.

    The sum of squares of the histograms along x and y is largest when walls, kerbs and rows of
    trees fall into few bins. Where there are such, the angle turns with the cloud: turned back by
    it, the cloud looks the same, up to quarter turns, whatever the heading of the sensor.
    """
    voxels = np.unique(packed_keys(cells_of(points, ALIGN_CELL_M)))
    packed, weights = np.unique(voxels >> 16, return_counts=True)
    # Scattered within their cells: else the grid itself, which is the sensor's, would line up.
    dither = np.random.default_rng(0).uniform(-0.5, 0.5, (len(packed), 2))
    columns = columns_of(packed) + dither
    line_up = lined_up.line_up if lined_up else _line_up

    def best(angles_deg: NDArray[np.floating[Any]]) -> float:
        return float(angles_deg[np.argmax(line_up(columns, weights, np.radians(angles_deg)))])

    coarse = best(np.arange(0.0, 90.0, ALIGN_COARSE_DEG))
    fine = best(coarse + np.arange(-ALIGN_COARSE_DEG, ALIGN_COARSE_DEG, ALIGN_FINE_DEG))
    return math.radians(fine) % (math.pi / 2.0)


def turned(points: Points, angle_rad: float) -> NDArray[np.float64]:
    """Turn points about z."""
    c, s = np.cos(angle_rad), np.sin(angle_rad)
    turn = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
    result: NDArray[np.float64] = points.astype(np.float64) @ turn.T
    return result


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
