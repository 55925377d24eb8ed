"""The masks of a batch agree with the distances between its places."""

import numpy as np

from lpr_training.datasets.tuples import make_tuples
from lpr_training.pairs import batch_masks

POSITIVE_M, NON_NEGATIVE_M = 10.0, 50.0


def test_masks_equal_the_distances(rng):
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
