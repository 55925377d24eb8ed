"""The sparse layers on MinkowskiEngine (the optional `minkowski` extra)."""

import collections
import collections.abc
from typing import Any

import torch
from torch import Tensor

from lpr_ros.core.errors import BackendError
from lpr_ros.core.sparse.batch import CloudBatch

# MinkowskiEngine 0.5.4 uses an alias that Python 3.10 removed.
if not hasattr(collections, 'Sequence'):
    collections.Sequence = collections.abc.Sequence  # type: ignore[attr-defined]

try:
    import MinkowskiEngine as ME
except ImportError as error:
    raise BackendError(f'backend minkowski: cannot import MinkowskiEngine: {error}') from error

BatchNorm = ME.MinkowskiBatchNorm


class Conv(ME.MinkowskiConvolution):  # type: ignore[misc]
    """Bias-free sparse convolution."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1):
        super().__init__(
            in_channels, out_channels, kernel_size=kernel_size, stride=stride, dimension=3
        )


class ConvTranspose(ME.MinkowskiConvolutionTranspose):  # type: ignore[misc]
    """Transposed 2x2x2 convolution onto the coordinates of the encoder."""

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__(in_channels, out_channels, kernel_size=2, stride=2, dimension=3)


def tensor(batch: CloudBatch, dtype: torch.dtype = torch.float32) -> Any:
    """Return feature 1 on every voxel of the batch."""
    counts = torch.tensor(batch.counts)
    clouds = torch.arange(len(counts)).repeat_interleave(counts).to(batch.sites.device)
    coordinates = torch.cat([clouds[:, None], batch.sites], dim=1).to(torch.int32)
    coordinates = torch.unique(coordinates, dim=0)
    features = torch.ones(len(coordinates), 1, dtype=dtype, device=coordinates.device)
    return ME.SparseTensor(features, coordinates=coordinates)


def relu(x: Any) -> Any:
    """Clamp negative features to zero."""
    return ME.MinkowskiFunctional.relu(x)


def add(x: Any, y: Any) -> Any:
    """Add features on the same cells."""
    return x + y


def cloud_mean(x: Any) -> Tensor:
    """Return the mean feature of each cloud, (clouds, C)."""
    # Not ME global pooling: version 0.5.4 mixes up the rows of three or more clouds on the CPU.
    clouds = x.C[:, 0].long()
    counts = torch.bincount(clouds)
    sums: Tensor = x.F.new_zeros(len(counts), x.F.shape[1]).index_add(0, clouds, x.F)
    return sums / counts[:, None]


def scale_clouds(x: Any, gates: Tensor) -> Any:
    """Multiply every cell by the (clouds, C) gate of its cloud."""
    cloud_of_row = x.C[:, 0].long()
    return ME.SparseTensor(
        x.F * gates[cloud_of_row],
        coordinate_map_key=x.coordinate_map_key,
        coordinate_manager=x.coordinate_manager,
    )


def cloud_features(x: Any) -> tuple[Tensor, list[int]]:
    """Return (N, C) features, cloud after cloud, and the number of cells per cloud."""
    clouds = x.C[:, 0].long()
    order = torch.argsort(clouds, stable=True)
    return x.F[order], torch.bincount(clouds).tolist()
