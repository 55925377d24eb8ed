"""Pair masks of a batch agree with the distances between its places."""

import numpy as np

from lpr_training.datasets.splits.tuples import make_tuples
from lpr_training.train.pair_distances import batch_masks, masks_by_distance

POSITIVE_M, NON_NEGATIVE_M = 10.0, 50.0


def test_batch_masks_follow_the_distances(rng):
    positions = rng.uniform(0.0, 80.0, (80, 2))
    tuples = make_tuples(positions, POSITIVE_M, NON_NEGATIVE_M)
    batch = np.array([3, 7, 7, *rng.choice(80, 30)])  # a place may be drawn twice
    positives, negatives = batch_masks(batch, tuples.positives, tuples.non_negatives)
    apart = np.linalg.norm(positions[batch][:, None] - positions[batch], axis=2)
    is_same = batch[:, None] == batch
    assert np.array_equal(positives, (apart <= POSITIVE_M) & ~is_same)
    assert np.array_equal(negatives, apart > NON_NEGATIVE_M)
    assert positives.any()
    assert not (positives | negatives)[1, 2]


def test_masks_by_distance_equal_batch_masks(rng):
    positions = rng.uniform(0.0, 80.0, (60, 2))
    tuples = make_tuples(positions, POSITIVE_M, NON_NEGATIVE_M)
    by_place = batch_masks(np.arange(60), tuples.positives, tuples.non_negatives)
    by_distance = masks_by_distance(positions, POSITIVE_M, NON_NEGATIVE_M)
    for one, other in zip(by_place, by_distance, strict=True):
        assert one.any()
        assert np.array_equal(one, other)


def test_a_place_at_two_positions_is_its_own_positive():
    positives, negatives = masks_by_distance(np.array([[0.0, 0.0], [3.0, 0.0]]), 5.0, 6.0)
    assert np.array_equal(positives, [[False, True], [True, False]])
    assert not negatives.any()
