"""Ranking losses on a batch of descriptors with masks of positive and negative pairs.

Each loss maps (embeddings (B, D), positives (B, B), negatives (B, B)) to the loss and a dict of
statistics. Pairs in neither mask (self, between the radii) are ignored.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from lpr_ros.core.config import Config, option
from lpr_training.train.pair_distances import batch_statistics, distances, squared_distances

LossOutput: TypeAlias = tuple[Tensor, dict[str, float]]

SIGMOID_LIMIT = 50.0  # exp() is finite in float32, and 1 / (1 + exp(50)) is negligible


@dataclass(frozen=True)
class LossConfig(Config):
    """Ranking loss and its parameters."""

    name: str = option(
        'truncated_smooth_ap',
        'Ranking loss',
        choices=('truncated_smooth_ap', 'batch_hard_triplet', 'lazy_quadruplet'),
    )
    temperature: float = option(0.01, 'Sigmoid temperature of truncated_smooth_ap', low=1e-6)
    positives_per_query: int = option(
        4, 'Number of nearest positives ranked by truncated_smooth_ap', low=1
    )
    margin: float = option(
        0.2,
        'Margin of batch_hard_triplet, or first margin of lazy_quadruplet (squared distance)',
        low=0.0,
    )
    second_margin: float = option(
        0.2, 'Second margin of lazy_quadruplet (squared distance)', low=0.0
    )
    swap: bool = option(
        True,
        'Let batch_hard_triplet use the smaller distance of the negative to anchor or positive',
    )


class TruncatedSmoothAP(nn.Module):
    """Smooth average precision over the k nearest positives of each query.

    Brown et al. 2020, truncated as in MinkLoc3Dv2, with s = -||a - b|| (not squared):
    R_p = 1 + sum_{z in P, z != p} sig(s_z - s_p), R = R_p + sum_{z in N} sig(s_z - s_p),
    AP = mean over the k nearest p of R_p / R, loss = 1 - mean AP over queries with a positive.
    """

    def __init__(self, temperature: float = 0.01, positives_per_query: int = 4) -> None:
        super().__init__()
        self.temperature = temperature
        self.positives_per_query = positives_per_query

    def forward(self, embeddings: Tensor, positives: Tensor, negatives: Tensor) -> LossOutput:
        """Return 1 - mean smooth AP, and batch statistics."""
        similarity = -distances(embeddings)
        statistics = batch_statistics(embeddings, -similarity, positives, negatives)
        queries = positives.any(dim=1).nonzero().flatten()
        if len(queries) == 0:
            return embeddings.sum() * 0.0, statistics | {'ap': 0.0}
        precision = self._average_precision(
            similarity[queries], positives[queries], negatives[queries]
        )
        mean = precision.mean()
        return 1.0 - mean, statistics | {'ap': float(mean.detach())}

    def _average_precision(
        self, similarity: Tensor, positives: Tensor, negatives: Tensor
    ) -> Tensor:
        """Return the smooth AP of each query, (Q, B) -> (Q,)."""
        masked = similarity.detach().masked_fill(~positives, -torch.inf)
        nearest = masked.topk(min(self.positives_per_query, masked.shape[1]), dim=1)
        is_positive = nearest.values.isfinite()
        ahead = similarity[:, None, :] - similarity.gather(1, nearest.indices)[:, :, None]
        limited = (ahead / self.temperature).clamp(-SIGMOID_LIMIT, SIGMOID_LIMIT)
        sigmoid = torch.sigmoid(limited)
        # p itself is among the positives and adds sig(0) = 1/2: 1 + (sum - 1/2).
        rank_positive = 0.5 + (sigmoid * positives[:, None, :]).sum(dim=2)
        rank = rank_positive + (sigmoid * negatives[:, None, :]).sum(dim=2)
        ratio = (rank_positive / rank).masked_fill(~is_positive, 0.0)
        return ratio.sum(dim=1) / is_positive.sum(dim=1)


class BatchHardTriplet(nn.Module):
    """Triplet loss on the farthest positive and the nearest negative (Hermans et al. 2017).

    With `swap`, the distance of the negative is the smaller of those to the anchor and to the
    positive. The mean is over triplets with a loss above zero, as in MinkLoc3D.
    """

    def __init__(self, margin: float = 0.2, swap: bool = True) -> None:
        super().__init__()
        self.margin = margin
        self.swap = swap

    def forward(self, embeddings: Tensor, positives: Tensor, negatives: Tensor) -> LossOutput:
        """Return the mean non-zero triplet loss, and batch statistics."""
        apart = distances(embeddings)
        statistics = batch_statistics(embeddings, apart, positives, negatives)
        anchors = (positives.any(dim=1) & negatives.any(dim=1)).nonzero().flatten()
        if len(anchors) == 0:
            return embeddings.sum() * 0.0, statistics | {'triplets': 0.0, 'active': 0.0}
        fixed = apart.detach()
        positive = fixed.masked_fill(~positives, -torch.inf)[anchors].argmax(dim=1)
        negative = fixed.masked_fill(~negatives, torch.inf)[anchors].argmin(dim=1)
        to_negative = apart[anchors, negative]
        if self.swap:
            to_negative = torch.minimum(to_negative, apart[positive, negative])
        losses = (apart[anchors, positive] - to_negative + self.margin).relu()
        active = int((losses > 0).sum())
        counts = {'triplets': float(len(anchors)), 'active': active / len(anchors)}
        return losses.sum() / max(active, 1), statistics | counts


class LazyQuadruplet(nn.Module):
    """Lazy quadruplet loss of PointNetVLAD, on squared distances (Uy and Lee 2018).

    max_n [m1 + d(a,p) - d(a,n)]+ + max_n [m2 + d(a,p) - d(o,n)]+ with p the nearest positive and
    o another negative that is also a negative of n: the first one after the anchor in batch
    order, which is random because batches are shuffled.
    """

    def __init__(self, margin: float = 0.5, second_margin: float = 0.2) -> None:
        super().__init__()
        self.margin = margin
        self.second_margin = second_margin

    def forward(self, embeddings: Tensor, positives: Tensor, negatives: Tensor) -> LossOutput:
        """Return the mean quadruplet loss over anchors, and batch statistics."""
        apart = squared_distances(embeddings)
        statistics = batch_statistics(embeddings, apart, positives, negatives)
        anchors = (positives.any(dim=1) & negatives.any(dim=1)).nonzero().flatten()
        if len(anchors) == 0:
            return embeddings.sum() * 0.0, statistics | {'anchors': 0.0, 'active': 0.0}
        nearest = apart.masked_fill(~positives, torch.inf)[anchors].amin(dim=1, keepdim=True)
        other = _first_after(anchors, negatives[anchors])
        first = _hardest(self.margin + nearest - apart[anchors], negatives[anchors])
        second = _hardest(
            self.second_margin + nearest - apart[other], negatives[anchors] & negatives[other]
        )
        losses = first + second
        active = float((losses > 0).float().mean())
        return losses.mean(), statistics | {'anchors': float(len(anchors)), 'active': active}


def _hardest(hinge: Tensor, mask: Tensor) -> Tensor:
    """Return the largest positive hinge of the masked entries of each row, 0 without any."""
    return hinge.masked_fill(~mask, 0.0).relu().amax(dim=1)


def _first_after(anchors: Tensor, mask: Tensor) -> Tensor:
    """Return for each anchor the next masked column, cyclically."""
    columns = torch.arange(mask.shape[1], device=mask.device)
    steps = (columns[None, :] - anchors[:, None] - 1) % mask.shape[1]
    return steps.masked_fill(~mask, mask.shape[1]).argmin(dim=1)


LOSSES: dict[str, Callable[[LossConfig], nn.Module]] = {
    'truncated_smooth_ap': lambda c: TruncatedSmoothAP(c.temperature, c.positives_per_query),
    'batch_hard_triplet': lambda c: BatchHardTriplet(c.margin, c.swap),
    'lazy_quadruplet': lambda c: LazyQuadruplet(c.margin, c.second_margin),
}


def build_loss(config: LossConfig) -> nn.Module:
    """Build the configured loss."""
    return LOSSES[config.name](config)
