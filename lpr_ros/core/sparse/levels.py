"""Resolution levels of a batch and the kernel maps within and between them."""

from dataclasses import dataclass, field
from functools import cached_property
import weakref

import numpy as np
import torch
from torch import Tensor

from lpr_ros.core.sparse import kernel_map as key_ops
from lpr_ros.core.sparse.batch import CloudBatch
from lpr_ros.core.sparse.kernel_map import (
    NeighborMap,
    OccupancyMap,
    ParentMap,
    build_neighbor_map,
    build_occupancy_map,
    build_parent_map,
)


@dataclass(eq=False)
class Level:
    """The occupied cells of one resolution; kernel maps are built on first use."""

    keys: Tensor  # (N,) sorted, unique
    clouds: int
    finer: 'Level | None' = None
    parents: ParentMap | None = None  # from the finer level to this one
    _coarser: 'weakref.ref[Level] | None' = None
    _neighbors: dict[int, NeighborMap] = field(default_factory=dict)
    _occupancy: dict[int, OccupancyMap] = field(default_factory=dict)

    @classmethod
    def of(cls, batch: CloudBatch) -> 'Level':
        """Return the finest level: the sorted unique voxels of a batch."""
        clouds = torch.from_numpy(np.repeat(np.arange(len(batch.counts)), batch.counts))
        clouds = clouds.to(batch.sites.device, non_blocking=True)
        return cls(torch.unique(key_ops.pack(batch.sites, clouds)), len(batch.counts))

    def neighbors(self, kernel_size: int) -> NeighborMap:
        """Return the neighbor map of an odd kernel."""
        if kernel_size not in self._neighbors:
            self._neighbors[kernel_size] = build_neighbor_map(self.keys, kernel_size)
        return self._neighbors[kernel_size]

    def occupancy(self, kernel_size: int) -> OccupancyMap:
        """Return the occupancy map of an odd kernel."""
        if kernel_size not in self._occupancy:
            self._occupancy[kernel_size] = build_occupancy_map(self.keys, kernel_size)
        return self._occupancy[kernel_size]

    @property
    def coarser(self) -> 'Level':
        """The level of twice the cell size, shared while it is in use.

        Only a weak reference is kept: the coarse level references this one, and a cycle would
        keep megabytes of maps alive until the garbage collector runs.
        """
        coarse = None if self._coarser is None else self._coarser()
        if coarse is None:
            coarse_keys, parents = build_parent_map(self.keys)
            coarse = Level(coarse_keys, self.clouds, self, parents)
            self._coarser = weakref.ref(coarse)
        return coarse

    @cached_property
    def offsets(self) -> Tensor:
        """Row offsets of the clouds, (clouds + 1,)."""
        return key_ops.cloud_offsets(self.keys, self.clouds)

    @cached_property
    def cloud_of_row(self) -> Tensor:
        """Cloud of each row, (N,)."""
        return self.keys >> (3 * key_ops.AXIS_BITS)


@dataclass(frozen=True, eq=False)
class SparseTensor:
    """Features on the cells of a level."""

    features: Tensor  # (N, C)
    level: Level
    is_occupancy: bool = False  # one feature, 1 everywhere

    def with_features(self, features: Tensor) -> 'SparseTensor':
        """Return a tensor with other features on the same cells."""
        return SparseTensor(features, self.level)
