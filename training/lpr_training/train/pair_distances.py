"""Pair masks, distances with finite gradients, and statistics of a batch."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
import torch
from torch import Tensor

ROUNDING = 1e-13  # relative to the squared norms, below it a squared distance is zero


def batch_masks(
    indices: Sequence[int] | NDArray[np.integer],
    positives: Sequence[NDArray[np.integer]],
    non_negatives: Sequence[NDArray[np.integer]],
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the masks of positives and negatives (B, B) of a batch of place indices.

    Duplicates of a place are neither positive nor negative to each other.
    """
    batch = np.asarray(indices, dtype=np.int64)
    is_positive = np.stack([np.isin(batch, positives[i]) for i in batch])
    is_negative = np.stack([~np.isin(batch, non_negatives[i]) for i in batch])
    return is_positive, is_negative


def masks_by_distance(
    positions: NDArray[np.floating], positive_m: float, non_negative_m: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the masks of positives and negatives (B, B) of clouds at positions (B, 2)."""
    apart = np.linalg.norm(positions[:, None] - positions[None], axis=2)
    is_self = np.eye(len(positions), dtype=bool)
    return (apart <= positive_m) & ~is_self, apart > non_negative_m


def squared_distances(embeddings: Tensor) -> Tensor:
    """Return all squared Euclidean distances, (B, D) -> (B, B), exactly zero for duplicates.

    One float64 matrix product of the centered embeddings, returned in the dtype of the input.
    """
    with torch.autocast(embeddings.device.type, enabled=False):
        x = embeddings.double()
        x = x - x.detach().mean(dim=0)
        norms = x.square().sum(dim=1)
        scale = norms[:, None] + norms[None, :]
        squared = scale - 2.0 * (x @ x.T)
        return squared.masked_fill(squared.detach() <= ROUNDING * scale.detach(), 0.0).to(
            embeddings.dtype if embeddings.dtype.itemsize >= 4 else torch.float32
        )


def distances(embeddings: Tensor) -> Tensor:
    """Return all Euclidean distances, (B, D) -> (B, B); the gradient at zero distance is zero."""
    squared = squared_distances(embeddings)
    is_zero = squared.detach() == 0
    # The derivative of sqrt at 0 is infinite, and 0 * inf is NaN.
    return squared.masked_fill(is_zero, 1.0).sqrt().masked_fill(is_zero, 0.0)


@torch.no_grad()
def batch_statistics(
    embeddings: Tensor, apart: Tensor, positives: Tensor, negatives: Tensor
) -> dict[str, float]:
    """Return ranking statistics over the queries with at least one positive.

    `best_positive_rank` is the mean number of negatives nearer than the nearest positive, and
    `recall_at_1` the fraction of queries without any. Both are 0 without queries.
    """
    queries = positives.any(dim=1)
    count = int(queries.sum())
    statistics = {
        'queries': float(count),
        'embedding_norm': float(embeddings.norm(dim=1).mean()),
        'positives_per_query': 0.0,
        'best_positive_rank': 0.0,
        'recall_at_1': 0.0,
    }
    if count == 0:
        return statistics
    nearest = apart.masked_fill(~positives, torch.inf)[queries].amin(dim=1, keepdim=True)
    ahead = ((apart[queries] < nearest) & negatives[queries]).sum(dim=1)
    return statistics | {
        'positives_per_query': float(positives[queries].sum(dim=1).float().mean()),
        'best_positive_rank': float(ahead.float().mean()),
        'recall_at_1': float((ahead == 0).float().mean()),
    }
