"""Poolings: the features of each cloud to one descriptor.

`POOLINGS` lists them; a new one is a subclass of `Pooling` and one line there. Clouds are never
padded, and in eval mode the descriptor of a cloud does not depend on the others of its batch.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
import torch.nn.functional as F

from lpr_ros.core.model.whitening import whiten

if TYPE_CHECKING:
    from lpr_ros.core.model.config import PoolingConfig


class Pooling(nn.Module):
    """Map features (sum N, D), cloud after cloud, and the N of each cloud to (B, out_dim)."""

    out_dim: int

    def __init__(self, width: int, config: 'PoolingConfig'):
        super().__init__()


def pointwise_mlp(width: int, hidden: int, out: int) -> nn.Sequential:
    """Return Linear - BatchNorm - GELU - Linear, applied to every voxel."""
    return nn.Sequential(
        nn.Linear(width, hidden), nn.BatchNorm1d(hidden), nn.GELU(), nn.Linear(hidden, out)
    )


class WhitenedSecondOrderPooling(Pooling):
    """The second-order descriptor of the paper: soft Voronoi cells, then ZCA (Algorithm 1).

    The scores are normalized by softmax over the voxels of a cloud, which removes the centroids of
    NetVLAD. Forward and backward are finite for features of any rank from 0 to 1e30, also with one
    voxel; the baselines are as published and overflow earlier (powers of GeM near 1e13).
    """

    def __init__(self, width: int, config: 'PoolingConfig'):
        super().__init__(width, config)
        self._config = config
        self.out_dim = config.channels * config.clusters
        self.project = pointwise_mlp(width, config.hidden, config.channels)
        self.score = pointwise_mlp(width, config.hidden, config.clusters)

    def forward(self, features: Tensor, counts: Sequence[int]) -> Tensor:
        """Return vec(Z) / sigma, row-major over (channels, clusters)."""
        return self.whiten(self.second_order(features, counts)).flatten(1) / self._config.sigma

    def second_order(self, features: Tensor, counts: Sequence[int]) -> Tensor:
        """Return (B, C, M): column m is the mean of the projected features under cluster m."""
        projected = self.project(features).split(list(counts))
        scores = self.score(features).split(list(counts))
        return torch.stack(
            [f.T @ s.softmax(dim=0) for f, s in zip(projected, scores, strict=True)]
        )

    def whiten(self, x: Tensor) -> Tensor:
        """Return Z (B, C, M) of the second-order matrices, as configured."""
        return whiten(x, gradient=self._config.gradient, shrinkage=self._config.shrinkage)


class GeneralizedMeanPooling(Pooling):
    """GeM: the mean of p-th powers, p learned (MinkLoc3D, MinkLoc3Dv2)."""

    def __init__(self, width: int, config: 'PoolingConfig'):
        super().__init__(width, config)
        self.out_dim = width
        self.p = nn.Parameter(torch.full((1,), 3.0))

    def forward(self, features: Tensor, counts: Sequence[int]) -> Tensor:
        """Return the generalized mean of every channel."""
        powers = features.clamp(min=1e-6).pow(self.p).split(list(counts))
        return torch.stack([power.mean(dim=0) for power in powers]).pow(1.0 / self.p)


class NetVLADPooling(Pooling):
    """NetVLAD with context gating: residuals to learned centers, reduced to `output_dim`."""

    def __init__(self, width: int, config: 'PoolingConfig'):
        super().__init__(width, config)
        clusters = config.clusters
        self.out_dim = config.output_dim
        scale = width**-0.5
        self.assign = nn.Sequential(
            nn.Linear(width, clusters, bias=False), nn.BatchNorm1d(clusters), nn.Softmax(dim=1)
        )
        self.centers = nn.Parameter(torch.randn(clusters, width) * scale)
        self.reduce = nn.Linear(clusters * width, config.output_dim, bias=False)
        self.norm = nn.BatchNorm1d(config.output_dim)
        self.gate = nn.Sequential(
            nn.Linear(config.output_dim, config.output_dim, bias=False),
            nn.BatchNorm1d(config.output_dim),
            nn.Sigmoid(),
        )

    def forward(self, features: Tensor, counts: Sequence[int]) -> Tensor:
        """Return gated descriptors of unit length."""
        assigned = self.assign(features).split(list(counts))
        residuals = torch.stack(
            [
                a.T @ f - a.sum(dim=0)[:, None] * self.centers
                for a, f in zip(assigned, features.split(list(counts)), strict=True)
            ]
        )
        vlad = F.normalize(F.normalize(residuals, dim=2).flatten(1), dim=1)
        reduced = self.norm(self.reduce(vlad))
        return F.normalize(reduced * self.gate(reduced), dim=1)


class EigenRootPooling(Pooling):
    """O2P as in LoGG3D-Net: mean outer product, square root of its eigenvalues, unit length."""

    def __init__(self, width: int, config: 'PoolingConfig'):
        super().__init__(width, config)
        self.out_dim = config.channels**2
        self.project = pointwise_mlp(width, config.hidden, config.channels)

    def forward(self, features: Tensor, counts: Sequence[int]) -> Tensor:
        """Return vec(M^(1/2)) of unit length, M the second moment of the projected features."""
        projected = self.project(features).to(torch.float64).split(list(counts))
        moments = torch.stack([f.T @ f / len(f) for f in projected])
        left, values, right = torch.linalg.svd(moments)
        root = left * values.clamp(min=1e-12).sqrt()[:, None] @ right
        return F.normalize(root.flatten(1), dim=1).to(features.dtype)


POOLINGS: dict[str, type[Pooling]] = {
    'whitened': WhitenedSecondOrderPooling,
    'gem': GeneralizedMeanPooling,
    'netvlad': NetVLADPooling,
    'o2p': EigenRootPooling,
}
