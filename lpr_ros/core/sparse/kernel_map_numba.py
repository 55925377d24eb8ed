"""Kernel maps on the CPU by merging sorted lists, compiled by numba.

Keys plus a constant are sorted like the keys, so neighbors are found by a linear merge instead of
the searches of kernel_map.py. On 3,996 voxels: 0.7 ms instead of 1.5 ms for the 3x3x3 map, 1.0 ms
instead of 3.5 ms for the 5x5x5 occupancy.
"""

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.sparse.numba_compile import compiled

Rows = NDArray[np.int32]


@compiled
def rows_ahead(keys: NDArray[np.int64], deltas: NDArray[np.int64], radius: int) -> Rows:
    """Return the rows (half kernel, N) of the neighbors ahead, -1 if not occupied.

    `deltas` are the key offsets to the lowest cell of each column ahead. The result is ordered by
    height, then column, then the cells above the center.
    """
    count, columns, side = len(keys), len(deltas), 2 * radius + 1
    ahead = np.full((columns * side + radius, count), -1, np.int32)
    for column in range(columns):
        at = 0
        for row in range(count):
            wanted = keys[row] + deltas[column]
            while at < count and keys[at] < wanted:
                at += 1
            here = at
            for height in range(side):
                if here < count and keys[here] == wanted + height:
                    ahead[height * columns + column, row] = here
                    here += 1
    for row in range(count):
        here = row + 1
        for height in range(1, radius + 1):
            if here < count and keys[here] == keys[row] + height:
                ahead[columns * side + height - 1, row] = here
                here += 1
    return ahead


@compiled
def occupied_cells(ahead: Rows) -> NDArray[np.bool_]:
    """Return the occupied cells (kernel, N): ahead, the center, then behind."""
    half, count = ahead.shape
    occupied = np.zeros((2 * half + 1, count), np.bool_)
    occupied[half] = True
    for group in range(half):
        for row in range(count):
            other = ahead[group, row]
            if other >= 0:
                occupied[group, row] = True
                occupied[half + 1 + group, other] = True
    return occupied


@compiled
def list_pairs(ahead: Rows, tile_rows: int) -> tuple[NDArray[np.int64], Rows, Rows, Rows, Rows]:
    """Return sizes (tiles, groups), inputs, outputs, order and row offsets, tile by tile."""
    half, count = ahead.shape
    behind = np.full((half, count), -1, np.int32)
    total = count
    for group in range(half):
        for row in range(count):
            if ahead[group, row] >= 0:
                behind[group, ahead[group, row]] = row
                total += 2
    tiles = (count + tile_rows - 1) // tile_rows
    sizes = np.zeros((tiles, 2 * half + 1), np.int64)
    inputs, outputs = np.empty(total, np.int32), np.empty(total, np.int32)
    order, offsets = np.empty(total, np.int32), np.empty(count + tiles, np.int32)
    listed = np.empty(tile_rows, np.int32)
    base = 0
    for tile in range(tiles):
        start, stop = tile * tile_rows, min((tile + 1) * tile_rows, count)
        first = start + tile
        offsets[first] = 0
        for row in range(start, stop):
            pairs = 1
            for group in range(half):
                pairs += (ahead[group, row] >= 0) + (behind[group, row] >= 0)
            offsets[first + row - start + 1] = offsets[first + row - start] + pairs
            listed[row - start] = offsets[first + row - start]
        position = 0
        for group in range(2 * half + 1):
            for row in range(start, stop):
                if group < half:
                    other = ahead[group, row]
                elif group == half:
                    other = row
                else:
                    other = behind[group - half - 1, row]
                if other >= 0:
                    inputs[base + position] = other
                    outputs[base + position] = row
                    order[base + listed[row - start]] = position
                    listed[row - start] += 1
                    position += 1
                    sizes[tile, group] += 1
        base += position
    return sizes, inputs, outputs, order, offsets
