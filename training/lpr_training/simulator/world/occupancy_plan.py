"""Plan view of a world: distance to roads, and occupied area."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import distance_transform_edt

from lpr_training.simulator.geometry.polylines import Line, resample

CELL_M = 0.5


class Plan:
    """A raster of the distance to the nearest road center line and of occupied cells."""

    def __init__(self, lines: Sequence[Line], margin_m: float) -> None:
        points = np.concatenate([resample(line, 0.5 * CELL_M) for line in lines])
        low = np.floor(points.min(axis=0) - margin_m)
        high = np.ceil(points.max(axis=0) + margin_m)
        self.origin: tuple[float, float] = (float(low[0]), float(low[1]))
        columns, rows = np.ceil((high - low) / CELL_M).astype(int) + 1
        off_road = np.ones((rows, columns), bool)
        j, i = np.round((points - low) / CELL_M).astype(int).T
        off_road[i, j] = False
        self._distance = (distance_transform_edt(off_road) * CELL_M).astype(np.float32)
        self._occupied = np.zeros((rows, columns), bool)

    @property
    def size_m(self) -> tuple[float, float]:
        """Return the extent in x and y."""
        rows, columns = self._occupied.shape
        return (columns - 1) * CELL_M, (rows - 1) * CELL_M

    def road_distance(self, xy: ArrayLike) -> NDArray[np.float32]:
        """Return the distance of points (..., 2) to the nearest road center line."""
        i, j = self._index(np.asarray(xy, np.float64))
        return self._distance[i, j]

    def is_occupied(self, xy: ArrayLike) -> NDArray[np.bool_]:
        """Return whether points (..., 2) are occupied by permanent objects."""
        i, j = self._index(np.asarray(xy, np.float64))
        return self._occupied[i, j]

    def contains(self, xy: ArrayLike) -> NDArray[np.bool_]:
        """Return whether points (..., 2) are inside the plan."""
        at = np.asarray(xy, np.float64) - self.origin
        return np.all((at >= 0.0) & (at <= self.size_m), axis=-1)

    def claim(self, area: NDArray[np.float64], from_road_m: float) -> bool:
        """Occupy an area (points) if it is free, inside, and far enough from any road."""
        if not self.contains(area).all() or self.is_occupied(area).any():
            return False
        if self.road_distance(area).min() < from_road_m:
            return False
        i, j = self._index(area)
        self._occupied[i, j] = True
        return True

    def _index(self, xy: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        at = np.round((xy - self.origin) / CELL_M).astype(np.intp)
        rows, columns = self._occupied.shape
        return np.clip(at[..., 1], 0, rows - 1), np.clip(at[..., 0], 0, columns - 1)


def rectangle(center: ArrayLike, yaw: float, length_m: float, width_m: float) -> Line:
    """Return points that cover a rotated rectangle at the resolution of the raster."""
    x = np.linspace(-length_m / 2, length_m / 2, max(2, int(length_m / (0.7 * CELL_M)) + 1))
    y = np.linspace(-width_m / 2, width_m / 2, max(2, int(width_m / (0.7 * CELL_M)) + 1))
    u, v = (a.ravel() for a in np.meshgrid(x, y))
    c, s = np.cos(yaw), np.sin(yaw)
    return np.stack([c * u - s * v, s * u + c * v], axis=1) + np.asarray(center)
