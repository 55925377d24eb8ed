"""Which training places are positives and negatives of each other, by distance on the ground."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree


def neighbours_within(
    positions: NDArray[np.floating], radius_m: float, *, include_self: bool
) -> list[NDArray[np.int64]]:
    """Return the sorted indices of the places within the radius (inclusive, x-y) of each place.

    Positives are the neighbours within the small radius without the place itself; places that
    must not be negatives are those within the large radius with it.
    """
    xy = np.asarray(positions, dtype=np.float64)[:, :2]
    found = cKDTree(xy).query_ball_point(xy, radius_m, return_sorted=True) if len(xy) else []
    lists = [np.asarray(near, dtype=np.int64) for near in found]
    if include_self:
        return lists
    return [near[near != i] for i, near in enumerate(lists)]


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
