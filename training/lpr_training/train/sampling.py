"""Batches that hold positives: pairs of places drawn without replacement (MinkLoc3Dv2)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# A last batch smaller than two pairs has nothing to rank against.
MIN_BATCH = 4


def plan_epoch(
    positives: Sequence[NDArray[np.integer]],
    batch_size: int,
    rng: np.random.Generator,
    order: NDArray[np.int64] | None = None,
    preferred: Sequence[NDArray[np.integer]] | None = None,
) -> list[NDArray[np.int64]]:
    """Draw one epoch of batches: each unused place with a partner from its positives.

    The partner is taken from the positives still unused, of these from the preferred ones where
    there are any, else from all positives (a duplicate). Places without positives are left out; a
    last batch under four elements is dropped. The order in which places are taken is random unless
    it is given.
    """
    unused = np.ones(len(positives), dtype=bool)
    batches: list[list[int]] = [[]]
    for element in rng.permutation(len(positives)) if order is None else order:
        if not unused[element]:
            continue
        unused[element] = False
        if len(positives[element]) == 0:
            continue
        fresh = positives[element][unused[positives[element]]]
        if preferred is not None:
            wished = preferred[element][unused[preferred[element]]]
            fresh = wished if len(wished) else fresh
        partner = rng.choice(fresh if len(fresh) else positives[element])
        unused[partner] = False
        if len(batches[-1]) >= batch_size:
            batches.append([])
        batches[-1] += [int(element), int(partner)]
    return [np.array(batch, dtype=np.int64) for batch in batches if len(batch) >= MIN_BATCH]


def few_worlds_at_a_time(
    worlds: Sequence[str], together: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return a random order of places that goes through the worlds in groups of `together`.

    The places of a batch then look alike: most negatives come from the same few worlds.
    """
    names, world = np.unique(worlds, return_inverse=True)
    group = rng.permutation(len(names)) // together
    shuffled = rng.permutation(len(world))
    return shuffled[np.argsort(group[world[shuffled]], kind='stable')]


def each_with_a_neighbour(
    order: NDArray[np.int64], neighbours: Sequence[NDArray[np.integer]], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return the order with one of its neighbours, chosen at random, after every place.

    Most mistakes are a few metres beside the truth, and a random batch hardly ever asks for the
    difference. Places come more than once: `plan_epoch` takes each where it first comes.
    """
    extended: list[int] = []
    for place in order:
        extended.append(int(place))
        if len(neighbours[place]):
            extended.append(int(rng.choice(neighbours[place])))
    return np.array(extended, dtype=np.int64)
