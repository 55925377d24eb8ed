"""Batches of positive pairs, drawn without replacement (MinkLoc3Dv2)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MIN_BATCH = 4  # two pairs: a single pair has no negatives


def plan_epoch(
    positives: Sequence[NDArray[np.integer]],
    batch_size: int,
    rng: np.random.Generator,
    order: NDArray[np.int64] | None = None,
    preferred: Sequence[NDArray[np.integer]] | None = None,
) -> list[NDArray[np.int64]]:
    """Draw the batches of one epoch: every place, paired with one of its positives.

    The positive is drawn from the preferred unused ones, else from the unused ones, else from all
    (a duplicate). Places without positives are skipped, and a last batch of fewer than MIN_BATCH
    places is dropped. Places are taken in the given order, by default at random.
    """
    unused = np.ones(len(positives), dtype=bool)
    batches: list[list[int]] = [[]]
    for element in rng.permutation(len(positives)) if order is None else order:
        if not unused[element]:
            continue
        unused[element] = False
        if len(positives[element]) == 0:
            continue
        candidates = positives[element][unused[positives[element]]]
        if preferred is not None:
            better = preferred[element][unused[preferred[element]]]
            candidates = better if len(better) else candidates
        partner = rng.choice(candidates if len(candidates) else positives[element])
        unused[partner] = False
        if len(batches[-1]) >= batch_size:
            batches.append([])
        batches[-1] += [int(element), int(partner)]
    return [np.array(batch, dtype=np.int64) for batch in batches if len(batch) >= MIN_BATCH]


def order_by_world_groups(
    worlds: Sequence[str], group_size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return a random order of places that visits the worlds in groups of `group_size`.

    Batches then have harder negatives, because most come from the same few worlds.
    """
    names, world = np.unique(worlds, return_inverse=True)
    group = rng.permutation(len(names)) // group_size
    shuffled = rng.permutation(len(world))
    return shuffled[np.argsort(group[world[shuffled]], kind='stable')]


def insert_neighbors(
    order: NDArray[np.int64], neighbors: Sequence[NDArray[np.integer]], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Insert a random neighbor after every place of an order.

    Most wrong matches are a few meters off, and random batches rarely contain such pairs. Places
    may repeat; `plan_epoch` uses the first occurrence.
    """
    extended: list[int] = []
    for place in order:
        extended.append(int(place))
        if len(neighbors[place]):
            extended.append(int(rng.choice(neighbors[place])))
    return np.array(extended, dtype=np.int64)
