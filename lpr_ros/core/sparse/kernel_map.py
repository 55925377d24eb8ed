"""Voxel keys, and kernel maps: pairs of input and output rows for each kernel weight.

A key is the coordinates of a voxel packed into one sortable int64: cloud | x | y | z, z in the
lowest bits. Each axis has 17 bits for 2^16 values, so a neighbor offset is an addition to the key
that cannot carry into the next field. No function on keys synchronizes with the device.

A map is built once per coordinate set and kernel size and shared by all layers. Pairs are grouped
by kernel weight, so that a layer gathers and multiplies group by group; the products of each
output are then summed from one list, without atomics or scatter.
"""

from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import torch
from torch import Tensor

try:
    from lpr_ros.core.sparse import kernel_map_numba
except (ImportError, RuntimeError):  # no numba, or no writable cache folder
    kernel_map_numba = None  # type: ignore[assignment]

Columns: TypeAlias = tuple[tuple[int, int], ...]  # (dx, dy)

# The products of a tile should fit in the CPU cache; matrices of smaller tiles are too thin for
# GEMM. Forward pass of 58,294 voxels on 2 cores with tiles of 1024, 2048, 4096, 8192, 16384, 32767
# rows: 282, 255, 246, 295, 324, 368 ms. Row numbers within a tile must fit int16 for the sort.
TILE_ROWS = 4096

AXIS_BITS = 17
LIMIT = 1 << 15  # coordinates lie in [-LIMIT, LIMIT)
MAX_CLOUDS = (1 << (63 - 3 * AXIS_BITS)) - 1  # the end of the last cloud must fit

_BIAS = 1 << (AXIS_BITS - 1)
_SPACE_MASK = (1 << (3 * AXIS_BITS)) - 1
_HALVED_AXIS = (1 << (AXIS_BITS - 1)) - 1
_HALVED_MASK = _HALVED_AXIS | _HALVED_AXIS << AXIS_BITS | _HALVED_AXIS << (2 * AXIS_BITS)


def pack(coordinates: Tensor, clouds: Tensor) -> Tensor:
    """Pack (N, 3) coordinates within the limits and (N,) cloud indices into (N,) keys."""
    x, y, z = (coordinates.to(torch.int64) + _BIAS).unbind(1)
    return clouds << (3 * AXIS_BITS) | x << (2 * AXIS_BITS) | y << AXIS_BITS | z


def offset(dx: int, dy: int, dz: int) -> int:
    """Return the key offset of a move by whole cells."""
    return (dx << (2 * AXIS_BITS)) + (dy << AXIS_BITS) + dz


def parent(keys: Tensor) -> Tensor:
    """Return the keys of the parent cells: every axis floor-divided by two."""
    return (keys & ~_SPACE_MASK) | (keys >> 1 & _HALVED_MASK)


def child_index(keys: Tensor) -> Tensor:
    """Return the index of each cell in its parent, 0..7, first axis fastest."""
    return (keys >> (2 * AXIS_BITS) & 1) + (keys >> AXIS_BITS & 1) * 2 + (keys & 1) * 4


def cloud_offsets(keys: Tensor, clouds: int) -> Tensor:
    """Return the (clouds + 1,) row offsets of the clouds in sorted keys."""
    bounds = torch.arange(clouds + 1, device=keys.device) << (3 * AXIS_BITS)
    return torch.searchsorted(keys, bounds)


@dataclass(frozen=True, eq=False)
class Tile:
    """The pairs of one range of output rows, grouped by kernel weight."""

    start: int
    stop: int
    sizes: list[int]  # pairs per group
    inputs: Tensor  # (P,) input row of each pair
    outputs: Tensor  # (P,) output row of each pair
    order: Tensor  # (P,) pairs listed output by output
    row_offsets: Tensor  # (stop - start + 1,) where the list of each output starts in `order`


@dataclass(frozen=True, eq=False)
class NeighborMap:
    """Pairs of an odd stride-1 kernel; for each (i, o, k) there is (o, i, K - 1 - k)."""

    tiles: list[Tile]
    weights: tuple[int, ...]  # kernel index of each group


@dataclass(frozen=True, eq=False)
class OccupancyMap:
    """Occupied neighbors of each row, for the first layer, whose input is occupancy only."""

    tiles: list[Tensor]  # (K, rows) bool each, over ranges of output rows
    weights: Tensor  # (K,) kernel index of each matrix row


@dataclass(frozen=True, eq=False)
class ParentMap:
    """Pairs of the 2x2x2 stride-2 kernel: every fine row has exactly one parent."""

    parents: Tensor  # (N,) coarse row of each fine row
    sizes: list[int]  # fine rows per child index
    order: Tensor  # (N,) fine rows grouped by child index
    rank: Tensor  # (N,) position of each fine row in `order`
    by_parent: Tensor  # (N,) positions in `order`, listed parent by parent
    row_offsets: Tensor  # (coarse rows + 1,) where the list of each parent starts in `by_parent`


def build_neighbor_map(keys: Tensor, kernel_size: int) -> NeighborMap:
    """Pair every row of the sorted keys with its neighbors in a centered cube."""
    columns, weights = _half_kernel(kernel_size)
    if _can_merge(keys):
        return NeighborMap(_merged_tiles(keys, columns, kernel_size // 2), weights)
    rows = torch.arange(len(keys), device=keys.device)
    ahead = _rows_ahead(keys, columns, kernel_size // 2)
    group, row = (ahead >= 0).nonzero(as_tuple=True)
    neighbor = ahead[group, row]
    # Adding a constant keeps keys sorted, so both directions are sorted by output row.
    inputs = torch.cat([neighbor, rows, row])
    outputs = torch.cat([row, rows, neighbor])
    groups = torch.cat([group, torch.full_like(rows, len(ahead)), group + len(ahead) + 1])
    return NeighborMap(_split_tiles(len(keys), len(weights), groups, inputs, outputs), weights)


def build_occupancy_map(keys: Tensor, kernel_size: int) -> OccupancyMap:
    """Mark for every row of the sorted keys which cells of a centered cube are occupied."""
    columns, weights = _half_kernel(kernel_size)
    if _can_merge(keys):
        ahead = kernel_map_numba.rows_ahead(
            keys.numpy(), _lowest_cells(columns, kernel_size // 2).numpy(), kernel_size // 2
        )
        occupied = torch.from_numpy(kernel_map_numba.occupied_cells(ahead))
    else:
        occupied = _occupied_cells(_rows_ahead(keys, columns, kernel_size // 2))
    order = torch.tensor(weights).to(keys.device, non_blocking=True)
    return OccupancyMap(list(occupied.split(TILE_ROWS, dim=1)), order)


def build_parent_map(keys: Tensor) -> tuple[Tensor, ParentMap]:
    """Return the sorted keys of the next coarser level and the map to it."""
    coarse, parents, counts = torch.unique(parent(keys), return_inverse=True, return_counts=True)
    child = child_index(keys)
    order = torch.argsort(child.to(torch.int16), stable=True)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=keys.device)
    by_parent = rank[torch.argsort(parents, stable=True)]
    sizes = torch.bincount(child, minlength=8).tolist()
    return coarse, ParentMap(parents, sizes, order, rank, by_parent, _offsets(counts))


@cache
def _half_kernel(kernel_size: int) -> tuple[Columns, tuple[int, ...]]:
    """Return the (dx, dy) columns ahead of the center and the kernel index of every group.

    Groups: the cells of the columns ahead (dz outermost), the cells above the center, the center,
    then the mirror images of all of them.
    """
    radius = kernel_size // 2
    reach = range(-radius, radius + 1)
    columns = tuple((dx, dy) for dx in reach for dy in reach if (dx, dy) > (0, 0))
    cells = [(dx, dy, dz) for dz in reach for dx, dy in columns]
    cells += [(0, 0, dz) for dz in range(1, radius + 1)]
    center = kernel_size**3 // 2
    half = [center + dx + dy * kernel_size + dz * kernel_size**2 for dx, dy, dz in cells]
    return columns, (*half, center, *(kernel_size**3 - 1 - k for k in half))


def _lowest_cells(columns: Columns, radius: int) -> Tensor:
    """Return the key offsets to the lowest cell of each column."""
    return torch.tensor([offset(dx, dy, -radius) for dx, dy in columns])


def _rows_ahead(keys: Tensor, columns: Columns, radius: int) -> Tensor:
    """Return the rows (half kernel, N) of the neighbors ahead, -1 if not occupied.

    A column is searched once, at its lowest z; the cells above follow in sorted order.
    """
    padded = torch.cat([keys, keys.new_full((1,), torch.iinfo(torch.int64).max)])
    ahead = keys.new_empty(len(columns) * (2 * radius + 1) + radius, len(keys))
    deltas = _lowest_cells(columns, radius).to(keys.device, non_blocking=True)
    wanted = keys + deltas[:, None]
    at = torch.searchsorted(keys, wanted)
    for found in ahead[:-radius].split(len(columns)):
        hit = torch.take(padded, at) == wanted
        found.copy_(torch.where(hit, at, -1))
        at += hit
        wanted += 1
    above = torch.arange(1, len(keys) + 1, device=keys.device)
    for dz, found in enumerate(ahead[-radius:].unbind(0), start=1):
        hit = torch.take(padded, above) == keys + dz
        found.copy_(torch.where(hit, above, -1))
        above += hit
    return ahead


def _occupied_cells(ahead: Tensor) -> Tensor:
    """Return the occupied cells (kernel, N): ahead, the center, then behind."""
    half, rows = ahead.shape
    occupied = torch.zeros(2 * half + 1, rows + 1, dtype=torch.bool, device=ahead.device)
    torch.ge(ahead, 0, out=occupied[:half, :rows])
    occupied[half] = True
    # A neighbor ahead has this row behind it; missing neighbors write to the spare column.
    spare = torch.full_like(ahead[0, :1], rows)
    occupied[half + 1 :].scatter_(1, torch.where(ahead >= 0, ahead, spare), True)
    return occupied[:, :rows]


def _can_merge(keys: Tensor) -> bool:
    return kernel_map_numba is not None and keys.is_cpu


def _merged_tiles(keys: Tensor, columns: Columns, radius: int) -> list[Tile]:
    """Build all tiles with numba (CPU only)."""
    lowest = _lowest_cells(columns, radius).numpy()
    ahead = kernel_map_numba.rows_ahead(keys.numpy(), lowest, radius)
    sizes, *lists = kernel_map_numba.list_pairs(ahead, TILE_ROWS)
    inputs, outputs, order, row_offsets = (torch.from_numpy(array) for array in lists)
    tiles, begin = [], 0
    for number, tile_sizes in enumerate(sizes.tolist()):
        start = number * TILE_ROWS
        stop = min(start + TILE_ROWS, len(keys))
        pairs = slice(begin, begin + sum(tile_sizes))
        offsets = row_offsets[start + number : stop + number + 1]
        tiles.append(
            Tile(start, stop, tile_sizes, inputs[pairs], outputs[pairs], order[pairs], offsets)
        )
        begin = pairs.stop
    return tiles


def _split_tiles(
    rows: int, group_count: int, groups: Tensor, inputs: Tensor, outputs: Tensor
) -> list[Tile]:
    """Split pairs sorted by (group, output) into tiles of output rows."""
    starts = list(range(0, rows, TILE_ROWS))
    device = groups.device
    edges = torch.arange(group_count, device=device)[:, None] * rows
    edges = edges + torch.tensor([*starts, rows]).to(device, non_blocking=True)
    cuts = torch.searchsorted(groups * rows + outputs, edges).T.tolist()
    tiles = []
    for start, begins, ends in zip(starts, cuts[:-1], cuts[1:], strict=True):
        spans = list(zip(begins, ends, strict=True))
        sizes = [end - begin for begin, end in spans]
        if len(starts) == 1:
            tiles.append(_tile(start, rows, sizes, inputs, outputs))
        else:
            own_inputs = torch.cat([inputs[begin:end] for begin, end in spans])
            own_outputs = torch.cat([outputs[begin:end] for begin, end in spans])
            stop = min(start + TILE_ROWS, rows)
            tiles.append(_tile(start, stop, sizes, own_inputs, own_outputs))
    return tiles


def _tile(start: int, stop: int, sizes: list[int], inputs: Tensor, outputs: Tensor) -> Tile:
    """Build a tile with its pairs ordered by output."""
    local = outputs - start
    order = torch.argsort(local.to(torch.int16), stable=True)
    counts = torch.bincount(local, minlength=stop - start)
    return Tile(start, stop, sizes, inputs, outputs, order, _offsets(counts))


def _offsets(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])
