"""Which places of a batch are positives and negatives of each other."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def batch_masks(
    indices: Sequence[int] | NDArray[np.integer],
    positives: Sequence[NDArray[np.integer]],
    non_negatives: Sequence[NDArray[np.integer]],
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return positives and negatives (B, B) of a batch of place indices.

    A place that is in the batch twice is neither positive nor negative to itself.
    """
    batch = np.asarray(indices, dtype=np.int64)
    is_positive = np.stack([np.isin(batch, positives[i]) for i in batch])
    is_negative = np.stack([~np.isin(batch, non_negatives[i]) for i in batch])
    return is_positive, is_negative


def masks_by_distance(
    spots: NDArray[np.floating], positive_m: float, non_negative_m: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return positives and negatives (B, B) of clouds seen from these spots (B, 2)."""
    apart = np.linalg.norm(spots[:, None] - spots[None], axis=2)
    is_self = np.eye(len(spots), dtype=bool)
    return (apart <= positive_m) & ~is_self, apart > non_negative_m
