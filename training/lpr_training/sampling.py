"""Batches that hold positives: pairs of places drawn without replacement (MinkLoc3Dv2)."""

from collections.abc import Iterator, Sequence
import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

# A last batch smaller than two pairs has nothing to rank against.
MIN_BATCH = 4


def plan_epoch(
    positives: Sequence[NDArray[np.integer]], batch_size: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Draw one epoch of batches: each unused place with a partner from its positives.

    The partner is taken from the positives still unused, else from all of them (a duplicate).
    Places without positives are left out; a last batch under four elements is dropped.
    """
    unused = np.ones(len(positives), dtype=bool)
    batches: list[list[int]] = [[]]
    for element in rng.permutation(len(positives)):
        if not unused[element]:
            continue
        unused[element] = False
        if len(positives[element]) == 0:
            continue
        fresh = positives[element][unused[positives[element]]]
        partner = rng.choice(fresh if len(fresh) else positives[element])
        unused[partner] = False
        if len(batches[-1]) >= batch_size:
            batches.append([])
        batches[-1] += [int(element), int(partner)]
    return [np.array(batch, dtype=np.int64) for batch in batches if len(batch) >= MIN_BATCH]


class PairBatchSampler:
    """Iterate over the index batches of one epoch after another, resumable at any batch.

    Iterating runs one epoch; iterating again runs the next. `state_dict` counts the batches
    handed out, so take it where no worker has prefetched further, e.g. between epochs.
    """

    def __init__(
        self,
        positives: Sequence[NDArray[np.integer]],
        batch_size: int,
        rng: np.random.Generator,
    ) -> None:
        if batch_size < MIN_BATCH:
            raise ValueError(f'batch_size must be at least {MIN_BATCH}, got {batch_size}')
        self._positives = [np.asarray(p, dtype=np.int64) for p in positives]
        if not any(len(p) for p in self._positives):
            raise ValueError(f'none of the {len(self._positives)} places has a positive')
        self._batch_size = batch_size
        self._rng = rng
        self._start: dict[str, Any] = {}
        self._plan: list[NDArray[np.int64]] | None = None
        self._epoch = 0
        self._done = 0

    @property
    def batch_size(self) -> int:
        """Return the number of elements a full batch holds."""
        return self._batch_size

    def set_batch_size(self, batch_size: int) -> None:
        """Change the batch size from the next epoch on (batch expansion of MinkLoc3D)."""
        if self._done:
            raise ValueError(f'batch size changed {self._done} batches into an epoch')
        if self._plan is not None:
            self._rng.bit_generator.state = self._start
        self._plan = None
        self._batch_size = batch_size

    def __len__(self) -> int:
        """Return the exact number of batches of the epoch that is running or comes next."""
        return len(self._planned())

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the remaining batches of this epoch, then move on to the next one."""
        if self._done == len(self._planned()):  # the loop before left after the last batch
            self._advance()
        plan = self._planned()
        while self._done < len(plan):
            self._done += 1
            yield plan[self._done - 1].tolist()
        self._advance()

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs to continue exactly here; plain values only."""
        self._planned()
        return {
            'rng': copy.deepcopy(self._start),
            'epoch': self._epoch,
            'done': self._done,
            'batch_size': self._batch_size,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self._rng.bit_generator.state = copy.deepcopy(state['rng'])
        self._epoch = state['epoch']
        self._batch_size = state['batch_size']
        self._plan = None
        self._planned()
        self._done = state['done']

    def _advance(self) -> None:
        self._plan = None
        self._epoch += 1
        self._done = 0

    def _planned(self) -> list[NDArray[np.int64]]:
        if self._plan is None:
            self._start = copy.deepcopy(dict(self._rng.bit_generator.state))
            self._plan = plan_epoch(self._positives, self._batch_size, self._rng)
        return self._plan
