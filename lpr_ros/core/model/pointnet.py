"""PointNet as in PointNetVLAD: two learned alignments and point-wise layers, 1024 channels."""

from collections.abc import Sequence
import itertools

import torch
from torch import Tensor, nn

from lpr_ros.core.sparse import CloudBatch


def _pointwise(widths: Sequence[int], *, last_relu: bool = True) -> nn.Sequential:
    """Return Linear - BatchNorm - ReLU per layer, optionally without the last ReLU."""
    modules: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        modules += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU()]
    return nn.Sequential(*(modules if last_relu else modules[:-1]))


def _plain(widths: Sequence[int]) -> nn.Sequential:
    """Return Linear - ReLU per layer."""
    modules: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        modules += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*modules)


class TransformNet(nn.Module):
    """Predict a k x k matrix per cloud, initially the identity, without batch statistics."""

    def __init__(self, k: int):
        super().__init__()
        self._k = k
        self.points = _plain((k, 64, 128, 1024))
        last = nn.Linear(256, k * k)
        self.cloud = nn.Sequential(_plain((1024, 512, 256)), last)
        nn.init.zeros_(last.weight)
        with torch.no_grad():
            last.bias.copy_(torch.eye(k).flatten())

    def forward(self, x: Tensor, counts: list[int]) -> Tensor:
        """Return the points of every cloud multiplied by its matrix."""
        pooled = torch.stack([part.amax(dim=0) for part in self.points(x).split(counts)])
        matrices = self.cloud(pooled).view(-1, self._k, self._k)
        parts = zip(x.split(counts), matrices.unbind(0), strict=True)
        return torch.cat([part @ matrix for part, matrix in parts])


class PointNet(nn.Module):
    """Per-point features of raw clouds."""

    out_channels = 1024

    def __init__(self) -> None:
        super().__init__()
        self.align_points = TransformNet(3)
        self.low = _pointwise((3, 64, 64))
        self.align_features = TransformNet(64)
        self.high = _pointwise((64, 64, 128, 1024), last_relu=False)

    def forward(self, batch: CloudBatch) -> tuple[Tensor, list[int]]:
        """Return (sum N, 1024) features and their number per cloud."""
        counts = list(batch.counts)
        x = self.low(self.align_points(batch.sites, counts))
        return self.high(self.align_features(x, counts)), counts
