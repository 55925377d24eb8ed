"""Distances inside one batch of descriptors, with a gradient that is finite everywhere."""

import torch
from torch import Tensor

# Below this share of the squared norms a squared distance is float64 rounding: it is zero.
ROUNDING = 1e-13


def squared_distances(embeddings: Tensor) -> Tensor:
    """Return all squared Euclidean distances, (B, D) -> (B, B), exactly zero for duplicates.

    One float64 matrix product of the centred embeddings; the result has the input's dtype.
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
    # sqrt'(0) is infinite and 0 * inf is NaN, so the root never sees a zero.
    return squared.masked_fill(is_zero, 1.0).sqrt().masked_fill(is_zero, 0.0)


@torch.no_grad()
def batch_statistics(
    embeddings: Tensor, apart: Tensor, positives: Tensor, negatives: Tensor
) -> dict[str, float]:
    """Describe how well a batch is ranked, over its queries with at least one positive.

    `best_positive_rank` is the number of negatives nearer than the nearest positive (0 is right),
    `recall_at_1` the share of queries where that number is 0. Without a query both are 0.
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
