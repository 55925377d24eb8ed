"""Voxel coordinates packed into one sortable int64: cloud | x | y | z, z in the lowest bits.

Each axis has 17 bits for 2^16 values, so a neighbor offset is an addition to the key that cannot
carry into the next field. All functions work on any device without synchronizing.
"""

import torch
from torch import Tensor

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
