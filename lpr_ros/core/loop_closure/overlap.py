"""Whether two registered clouds show one place: what overlaps, and what one sees through.

Both are shares of the voxels that stand upright. Ground overlaps with ground anywhere, and is left
out. A cloud sees through a point when it measured something well behind it in that direction: a
wall cannot be there. This tells apart what overlap alone does not: a house that has a gap where
the other has none.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from lpr_ros.core.geometry import invert, transform_points
from lpr_ros.core.registration import Prepared

BIN_RAD = np.radians(2.0)  # of a direction: coarser than the gap between two beams of most sensors
BINS = (180, 90)  # azimuth, elevation
MARGIN_M = 1.0  # by how much a measurement must lie behind a point,
MARGIN_SHARE = 0.05  # and by how much more of its range: surfaces at a flat angle fill a bin


@dataclass(frozen=True)
class Agreement:
    """How well two clouds agree after registration; all are shares in [0, 1]."""

    overlap_source: float  # of the source, explained by the target
    overlap_target: float  # of the target, explained by the source
    seen_through: float  # of what one shows, the other saw through; the worse of both ways

    @property
    def overlap(self) -> float:
        """The smaller of the two directions."""
        return min(self.overlap_source, self.overlap_target)


def measure_agreement(
    target: Prepared, source: Prepared, T_target_source: NDArray[np.float64], near_m: float
) -> Agreement:
    """Compare two clouds after registration; a point is explained by another within near_m."""
    source_in_target = transform_points(T_target_source, source.upright)
    target_in_source = transform_points(invert(T_target_source), target.upright)
    overlap_source, through_target = _compare(target, source_in_target, near_m)
    overlap_target, through_source = _compare(source, target_in_source, near_m)
    return Agreement(overlap_source, overlap_target, max(through_target, through_source))


def _compare(
    reference: Prepared, points: NDArray[np.float32], near_m: float
) -> tuple[float, float]:
    """Return the shares of points that the reference explains, and that it saw through."""
    if len(reference.upright) == 0 or len(points) == 0:
        return 0.0, 0.0
    distance, _ = cKDTree(reference.upright).query(points, distance_upper_bound=near_m)
    explained = np.isfinite(distance)
    # Leaves are both: beams pass between them. Only what is not explained speaks against.
    contradicted = _seen_through(reference.points, points) & ~explained
    against = contradicted.sum() / max(1, (contradicted | explained).sum())
    return float(explained.mean()), float(against)


def _seen_through(
    scan: NDArray[np.float32], points: NDArray[np.float32]
) -> NDArray[np.bool_]:
    """Mark the points in front of everything that the scan measured in their direction."""
    nearest_m = np.full(BINS, np.inf, np.float32)  # infinite: nothing measured, nothing claimed
    bins, range_m = _directions(scan)
    np.minimum.at(nearest_m, bins, range_m)
    bins, range_m = _directions(points)
    behind_m = nearest_m[bins]
    through: NDArray[np.bool_] = range_m < (1.0 - MARGIN_SHARE) * behind_m - MARGIN_M
    through &= np.isfinite(behind_m)
    return through


def _directions(
    points: NDArray[np.float32],
) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float32]]:
    """Return the bin of azimuth and elevation that each point is seen in, and its range."""
    flat = np.hypot(points[:, 0], points[:, 1])
    azimuth = np.arctan2(points[:, 1], points[:, 0])
    elevation = np.arctan2(points[:, 2], flat)
    columns = np.floor((azimuth + np.pi) / BIN_RAD).astype(np.int64) % BINS[0]
    rows = np.floor((elevation + np.pi / 2) / BIN_RAD).astype(np.int64).clip(0, BINS[1] - 1)
    return (columns, rows), np.hypot(flat, points[:, 2])
