"""The batch sampler: positive pairs, with as few repetitions as possible."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lpr_training.train.sampling import insert_neighbors, order_by_world_groups, plan_epoch


def line_positives(count, reach=2):
    places = np.arange(count)
    return [places[(np.abs(places - i) <= reach) & (places != i)] for i in places]


def test_batches_consist_of_positive_pairs():
    positives = line_positives(101)
    for batch in plan_epoch(positives, 16, np.random.default_rng(0)):
        assert 4 <= len(batch) <= 16
        for element, partner in batch.reshape(-1, 2):
            assert partner in positives[element]


def test_every_place_is_used_and_few_repeat():
    positives = line_positives(101)
    batches = plan_epoch(positives, 16, np.random.default_rng(0))
    assert [len(b) for b in batches[:-1]] == [16] * (len(batches) - 1)
    used, counts = np.unique(np.concatenate(batches), return_counts=True)
    assert len(used) >= 101 - 3  # a last batch of fewer than four is dropped
    firsts = np.concatenate(batches)[0::2]
    assert len(np.unique(firsts)) == len(firsts)
    assert (counts > 1).sum() < 30


def test_positive_repeats_if_all_are_used():
    positives = [np.array([1]), np.array([0]), np.array([0]), np.array([0])]
    flat = np.concatenate(plan_epoch(positives, 8, np.random.default_rng(0)))
    assert sorted(set(flat)) == [0, 1, 2, 3]
    assert (flat == 0).sum() >= 2


def test_places_without_positives_are_skipped():
    positives = [*line_positives(20), *[np.array([], dtype=int)] * 5]
    used = np.concatenate(plan_epoch(positives, 8, np.random.default_rng(0)))
    assert used.max() < 20


def test_last_batch_of_fewer_than_four_is_dropped():
    positives = [np.array([i ^ 1]) for i in range(10)]  # five disjoint pairs
    sizes = [len(b) for b in plan_epoch(positives, 4, np.random.default_rng(0))]
    assert sizes == [4, 4]
    sizes = [len(b) for b in plan_epoch(positives, 6, np.random.default_rng(0))]
    assert sizes == [6, 4]


def test_unused_positives_are_preferred():
    """In cliques of four, a partition into pairs exists, so no place repeats."""
    cliques = np.arange(80).reshape(20, 4)
    positives = [clique[clique != i] for clique in cliques for i in clique]
    for seed in range(5):
        flat = np.concatenate(plan_epoch(positives, 16, np.random.default_rng(seed)))
        assert sorted(flat) == list(range(80))


def test_order_by_world_groups_completes_each_group(rng):
    worlds = np.array(['a', 'b', 'c', 'd', 'e'])[rng.integers(5, size=200)]
    order = order_by_world_groups(worlds.tolist(), 2, rng)
    assert sorted(order) == list(range(200))
    first_seen = dict.fromkeys(worlds[order])  # worlds in order of appearance
    changes = np.flatnonzero(worlds[order][1:] != worlds[order][:-1])
    assert len(changes) > 20  # shuffled within a group
    for pair in (list(first_seen)[:2], list(first_seen)[2:4]):
        at = np.flatnonzero(np.isin(worlds[order], pair))
        assert at[-1] - at[0] + 1 == len(at)
    assert not np.array_equal(order, order_by_world_groups(worlds.tolist(), 2, rng))


def test_preferred_positives_are_used_first() -> None:
    positives = [np.setdiff1d(np.arange(i // 4 * 4, i // 4 * 4 + 4), [i]) for i in range(40)]
    preferred = [np.array([i ^ 2]) if i < 20 else np.array([], np.int64) for i in range(40)]
    flat = np.concatenate(plan_epoch(positives, 8, np.random.default_rng(0), preferred=preferred))
    pairs = flat.reshape(-1, 2)
    assert sorted(flat) == list(range(40))
    assert all(second == first ^ 2 for first, second in pairs if first < 20)
    assert all(second in positives[first] for first, second in pairs)


def test_insert_neighbors_adds_one_after_every_place() -> None:
    neighbors = [np.array([j for j in (i - 2, i + 2) if 0 <= j < 30]) for i in range(30)]
    neighbors[7] = np.array([], dtype=np.int64)
    order = insert_neighbors(np.arange(30), neighbors, np.random.default_rng(0)).tolist()
    assert set(order) == set(range(30))
    pairs = pairwise(order)
    assert sum(after in neighbors[place] for place, after in pairs) >= 29  # all but place 7


def test_insert_neighbors_puts_nearby_places_into_one_batch() -> None:
    positives = [np.array([i ^ 1]) for i in range(400)]
    neighbors = [np.array([(i + 2) % 400, (i - 2) % 400]) for i in range(400)]
    rng = np.random.default_rng(0)

    def count_neighbors(order: NDArray[np.int64] | None) -> int:
        batches = plan_epoch(positives, 16, rng, order)
        return sum(np.isin(neighbors[i], batch).any() for batch in batches for i in batch)

    order = insert_neighbors(rng.permutation(400), neighbors, rng)
    assert count_neighbors(order) > 3 * count_neighbors(None)
