"""Sparse layers in plain torch with the names, shapes and kernel order of MinkowskiEngine."""

import math
from typing import Any

import torch
from torch import Tensor, nn
import torch.nn.functional as F

from lpr_ros.core.sparse.batch import CloudBatch
from lpr_ros.core.sparse.functional import (
    DownConvolution,
    NeighborConvolution,
    OccupancyConvolution,
    UpConvolution,
)
from lpr_ros.core.sparse.levels import Level, SparseTensor


def _apply(function: type[torch.autograd.Function], *arguments: Any) -> Tensor:
    device = arguments[0].device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        arguments = tuple(a.to(dtype) if isinstance(a, Tensor) else a for a in arguments)
    result: Tensor = function.apply(*arguments)
    return result


class Conv(nn.Module):
    """Bias-free sparse convolution: odd kernel with stride 1, or kernel 2 with stride 2."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1):
        super().__init__()
        if (kernel_size % 2, stride) not in ((1, 1), (0, 2)) or (stride == 2 and kernel_size != 2):
            raise ValueError(
                'expected an odd kernel with stride 1 or kernel 2 with stride 2, '
                f'got kernel {kernel_size} with stride {stride}'
            )
        self.kernel_size, self.stride = kernel_size, stride
        shape = (in_channels, out_channels)
        self.kernel = nn.Parameter(
            torch.empty(shape if kernel_size == 1 else (kernel_size**3, *shape))
        )
        bound = 1.0 / math.sqrt(in_channels * kernel_size**3)
        nn.init.uniform_(self.kernel, -bound, bound)

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Convolve; a strided convolution returns the next coarser level."""
        if self.kernel_size == 1:
            return x.with_features(x.features @ self.kernel)
        if self.stride == 2:
            coarse = x.level.coarser
            return SparseTensor(
                _apply(DownConvolution, x.features, self.kernel, coarse.parents), coarse
            )
        if x.is_occupancy:
            occupancy = x.level.occupancy(self.kernel_size)
            return x.with_features(_apply(OccupancyConvolution, self.kernel, occupancy))
        pairs = x.level.neighbors(self.kernel_size)
        return x.with_features(_apply(NeighborConvolution, x.features, self.kernel, pairs))


class ConvTranspose(nn.Module):
    """Transposed 2x2x2 convolution onto the next finer level of the encoder."""

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(8, in_channels, out_channels))
        bound = 1.0 / math.sqrt(out_channels * 8)
        nn.init.uniform_(self.kernel, -bound, bound)

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Upsample every cell to its children."""
        fine, parents = x.level.finer, x.level.parents
        if fine is None:
            raise ValueError('expected a level that was downsampled, got the finest one')
        return SparseTensor(_apply(UpConvolution, x.features, self.kernel, parents), fine)


class BatchNorm(nn.Module):
    """Batch normalization over all cells of the batch."""

    def __init__(self, channels: int):
        super().__init__()
        self.bn = nn.BatchNorm1d(channels)

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Normalize each channel."""
        return x.with_features(self.bn(x.features))


def tensor(batch: CloudBatch, dtype: torch.dtype = torch.float32) -> SparseTensor:
    """Return feature 1 on every voxel of the batch."""
    level = Level.of(batch)
    ones = torch.ones(len(level.keys), 1, dtype=dtype, device=level.keys.device)
    return SparseTensor(ones, level, is_occupancy=True)


def relu(x: SparseTensor) -> SparseTensor:
    """Clamp negative features to zero."""
    return x.with_features(F.relu(x.features))


def add(x: SparseTensor, y: SparseTensor) -> SparseTensor:
    """Add features on the same cells."""
    return x.with_features(x.features + y.features)


def cloud_mean(x: SparseTensor) -> Tensor:
    """Return the mean feature of each cloud, (clouds, C)."""
    rows = torch.arange(len(x.features), device=x.features.device)
    return F.embedding_bag(
        rows, x.features, x.level.offsets, mode='mean', include_last_offset=True
    )


def scale_clouds(x: SparseTensor, gates: Tensor) -> SparseTensor:
    """Multiply every cell by the (clouds, C) gate of its cloud."""
    return x.with_features(x.features * gates[x.level.cloud_of_row])


def cloud_features(x: SparseTensor) -> tuple[Tensor, list[int]]:
    """Return (N, C) features, cloud after cloud, and the number of cells per cloud."""
    return x.features, x.level.offsets.diff().tolist()
