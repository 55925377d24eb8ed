"""The ground: heights on a regular grid, linear on the triangles that rays hit."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lpr_training.simulator.geometry.mesh import Mesh


@dataclass(frozen=True, eq=False)
class Ground:
    """Heights at origin + cell * (column, row)."""

    heights: NDArray[np.float64]  # (rows, columns), meters
    origin: tuple[float, float]
    cell_m: float

    def grid_xy(self) -> NDArray[np.float64]:
        """Return the coordinates of the grid points, (rows, columns, 2)."""
        rows, columns = self.heights.shape
        x, y = np.meshgrid(np.arange(columns), np.arange(rows))
        return np.stack([x, y], axis=-1) * self.cell_m + np.asarray(self.origin)

    def height(self, xy: ArrayLike) -> NDArray[np.float64]:
        """Return the heights at points (..., 2), clamped to the grid."""
        rows, columns = self.heights.shape
        at = (np.asarray(xy, np.float64) - self.origin) / self.cell_m
        x = np.clip(at[..., 0], 0.0, columns - 1.0001)
        y = np.clip(at[..., 1], 0.0, rows - 1.0001)
        i, j = y.astype(int), x.astype(int)
        u, v = x - j, y - i
        z00, z10 = self.heights[i, j], self.heights[i, j + 1]
        z01, z11 = self.heights[i + 1, j], self.heights[i + 1, j + 1]
        below = z00 + u * (z10 - z00) + v * (z11 - z10)
        above = z00 + v * (z01 - z00) + u * (z11 - z01)
        return np.where(u >= v, below, above)

    def mesh(self, material: NDArray[np.uint8], lift: NDArray[np.float64] | float = 0.0) -> Mesh:
        """Return a mesh; `material` is per cell (rows - 1, columns - 1), `lift` per vertex."""
        rows, columns = self.heights.shape
        xyz = np.concatenate([self.grid_xy(), (self.heights + lift)[..., None]], axis=-1)
        index = np.arange(rows * columns, dtype=np.int32).reshape(rows, columns)
        a, b = index[:-1, :-1], index[:-1, 1:]
        c, d = index[1:, 1:], index[1:, :-1]
        faces = np.stack([a, b, c, a, c, d], axis=-1).reshape(-1, 3)
        return Mesh(xyz.reshape(-1, 3).astype(np.float32), faces, np.repeat(material.ravel(), 2))


def waves(
    xy: NDArray[np.float64], wavelength_m: float, rng: np.random.Generator, count: int = 16
) -> NDArray[np.float64]:
    """Return smooth noise of unit variance: a sum of random plane waves."""
    total = np.zeros(xy.shape[:-1])
    for _ in range(count):
        angle, phase = rng.uniform(0.0, 2.0 * np.pi, 2)
        k = 2.0 * np.pi / (wavelength_m * rng.uniform(0.7, 1.6))
        total += np.sin(k * (xy[..., 0] * np.cos(angle) + xy[..., 1] * np.sin(angle)) + phase)
    return total * np.sqrt(2.0 / count)
