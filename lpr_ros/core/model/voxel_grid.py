"""Voxel grid: cells of points, packed into sortable keys."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import CloudError
from lpr_ros.core.sparse.kernel_map import LIMIT

Points = NDArray[np.floating[Any]]
Cells = NDArray[np.int32]


def cells_of(
    points: Points, step: NDArray[np.float64] | float, rounding: np.ufunc = np.floor
) -> NDArray[np.int64]:
    """Return the cell of every point; CloudError if one is outside the grid."""
    with np.errstate(over='ignore'):  # infinity is reported below
        scaled = rounding(points / step)
    if scaled.size:
        low, high = float(scaled.min()), float(scaled.max())
        if low < -LIMIT or high >= LIMIT:
            raise CloudError(
                f'cells {low:.6g}..{high:.6g} leave the grid [{-LIMIT}, {LIMIT}); '
                f'use a larger step than {np.asarray(step).tolist()} or a shorter range'
            )
    cells: NDArray[np.int64] = scaled.astype(np.int64)
    return cells


def packed_keys(cells: NDArray[np.int64]) -> NDArray[np.int64]:
    """Pack x, y and z into one integer, 16 bits each, z lowest."""
    biased = cells + LIMIT
    return biased[:, 0] << 32 | biased[:, 1] << 16 | biased[:, 2]


def unique_cells(points: Points, step: NDArray[np.float64]) -> Cells:
    """Return the sorted occupied cells (V, 3)."""
    packed = np.unique(packed_keys(cells_of(points, step)))
    unpacked = np.stack([packed >> 32, packed >> 16 & 0xFFFF, packed & 0xFFFF], axis=1)
    return (unpacked - LIMIT).astype(np.int32)


def columns_of(packed: NDArray[np.int64]) -> NDArray[np.int64]:
    """Unpack x and y, (N, 2)."""
    return np.stack([packed >> 16, packed & 0xFFFF], axis=1) - LIMIT
