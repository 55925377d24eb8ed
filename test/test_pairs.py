"""Positives and negatives by radius, and the masks of a batch."""

import numpy as np

from lpr_training.pairs import batch_masks, neighbours_within


def test_neighbours_by_hand():
    positions = np.array([[0.0, 0, 9], [3, 4, -9], [3.1, 4, 0], [100, 0, 0]])
    near = neighbours_within(positions, 5.0, include_self=False)
    assert [n.tolist() for n in near] == [[1], [0, 2], [1], []]
    near = neighbours_within(positions, 5.0, include_self=True)
    assert [n.tolist() for n in near] == [[0, 1], [0, 1, 2], [1, 2], [3]]
    assert neighbours_within(np.zeros((0, 2)), 5.0, include_self=True) == []


def test_masks_equal_the_distances():
    rng = np.random.default_rng(0)
    positions = rng.uniform(0, 200, (150, 2))
    positives = neighbours_within(positions, 10.0, include_self=False)
    non_negatives = neighbours_within(positions, 50.0, include_self=True)
    batch = rng.integers(0, 150, 64)  # some twice
    is_positive, is_negative = batch_masks(batch, positives, non_negatives)
    apart = np.linalg.norm(positions[batch][:, None] - positions[batch][None], axis=2)
    different = batch[:, None] != batch[None, :]
    np.testing.assert_array_equal(is_positive, (apart <= 10) & different)
    np.testing.assert_array_equal(is_negative, apart > 50)
    assert len(np.unique(batch)) < 64
