"""Batches of clouds, checked on the host before they are moved to a device."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
import torch
from torch import Tensor

from lpr_ros.core.errors import CloudError
from lpr_ros.core.sparse.kernel_map import LIMIT, MAX_CLOUDS


@dataclass(frozen=True, eq=False)
class CloudBatch:
    """The concatenated clouds of a batch."""

    sites: Tensor  # (sum N, 3): int64 voxel coordinates, or float32 points for a point backbone
    counts: tuple[int, ...]  # sites per cloud

    def to(self, device: torch.device) -> 'CloudBatch':
        """Move the batch to a device."""
        return CloudBatch(self.sites.to(device, non_blocking=True), self.counts)


def collate(clouds: Sequence[NDArray[np.generic]]) -> CloudBatch:
    """Concatenate quantized clouds, each (N, 3): integer voxel coordinates or float points."""
    if not 0 < len(clouds) <= MAX_CLOUDS:
        raise CloudError(f'expected a batch of 1 to {MAX_CLOUDS} clouds, got {len(clouds)}')
    for index, cloud in enumerate(clouds):
        _check_cloud(index, cloud)
    is_voxels = [np.issubdtype(cloud.dtype, np.integer) for cloud in clouds]
    if any(is_voxels) != all(is_voxels):
        raise CloudError('expected either integer voxels or float points in a batch, got both')
    dtype = np.int64 if is_voxels[0] else np.float32
    sites = torch.from_numpy(np.concatenate([cloud.astype(dtype, copy=False) for cloud in clouds]))
    return CloudBatch(sites, tuple(len(cloud) for cloud in clouds))


def _check_cloud(index: int, cloud: NDArray[np.generic]) -> None:
    if cloud.ndim != 2 or cloud.shape[1] != 3:
        raise CloudError(f'cloud {index}: expected shape (N, 3), got {cloud.shape}')
    if len(cloud) == 0:
        raise CloudError(f'cloud {index}: no voxels left; expected at least one point in range')
    if np.issubdtype(cloud.dtype, np.integer):
        low, high = int(cloud.min()), int(cloud.max())
        if low < -LIMIT or high >= LIMIT:
            raise CloudError(
                f'cloud {index}: voxel coordinates {low}..{high} leave the grid '
                f'[{-LIMIT}, {LIMIT}); use a larger step or a shorter range'
            )
    elif not np.isfinite(cloud).all():
        raise CloudError(f'cloud {index}: expected finite points, got NaN or infinity')
