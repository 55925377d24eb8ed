"""The nearest descriptors: measured one by one while that is cheap, then by a coarse index.

Building and rebuilding happen in a background thread on rows that never move. Until a new index
is complete the old search answers, so adding and querying go on and nothing is ever missing.
"""

import logging
import os
import sys
import threading

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.coarse_index import (
    TRAINING_ROWS_PER_CELL,
    CoarseIndex,
    cells_for,
    code_bytes,
    squared_distances,
    use_one_thread,
)
from lpr_ros.core.row_blocks import RowBlocks

logger = logging.getLogger(__name__)

REBUILD_GROWTH = 4  # cells of four times the rows they were made for are still quick to search
BATCH_ROWS = 2048
CATCH_UP_ROWS = 64  # the last rows are added while adding waits: below a millisecond
BACKGROUND_NICENESS = 10
# So few eligible ones may all lie in cells that a query does not look into: measure them all.
FEW_ROWS = 1024
CLOSE_TIMEOUT_S = 2.0  # a build in the middle of its training cannot be told to stop


class DescriptorIndex:
    """Descriptors numbered from 0, and the nearest of them to a query among the eligible."""

    def __init__(
        self,
        dim: int,
        *,
        exact_bytes: int = 32 * 2**20,
        probe_share: float = 0.4,
        refined: int = 128,
        codes: str = '8bit',
    ):
        self.rows = RowBlocks((dim,), np.float32)
        self._exact_bytes = exact_bytes
        self._probe_share = probe_share
        self._refined = refined
        self._codes = codes
        self._coarse: CoarseIndex | None = None
        self._built_for = 0
        self._lock = threading.Lock()  # the rows' end and the coarse index move together
        self._builder: threading.Thread | None = None
        self._closed = threading.Event()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def is_exact(self) -> bool:
        """Whether every descriptor is still measured one by one."""
        return self._coarse is None

    @property
    def nbytes(self) -> int:
        """Bytes of the descriptors and of the coarse index."""
        return self.rows.nbytes + (0 if self._coarse is None else self._coarse.nbytes)

    @property
    def most_bytes_per_row(self) -> int:
        """Bytes of a descriptor and its codes: lists double, and a rebuild holds two of each."""
        dim = self.rows.row_bytes // 4
        return self.rows.row_bytes + 4 * code_bytes(dim, self._codes)

    def extend(self, rows: NDArray[np.float32]) -> None:
        """Add (M, D) descriptors."""
        with self._lock:
            if self._coarse is not None:
                self._coarse.add(rows)
            self.rows.extend(rows)

    def build_if_due(self) -> None:
        """Start to build a new index in the background, where there are enough new rows."""
        is_building = self._builder is not None and self._builder.is_alive()
        is_due = (
            self.rows.nbytes > self._exact_bytes
            and len(self.rows) >= REBUILD_GROWTH * self._built_for
        )
        if is_due and not is_building and not self._closed.is_set():
            self._built_for = len(self.rows)
            self._builder = threading.Thread(target=self._build, name='lpr-index', daemon=True)
            self._builder.start()

    def search(
        self, descriptor: NDArray[np.float32], count: int, eligible: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return numbers and Euclidean distances of the nearest eligible ones, nearest first.

        `eligible` is (N,) for the first N descriptors; what came later is not eligible.
        """
        ids, squared = self._measured(descriptor, count, eligible)
        if len(ids) > count:  # of equal distances, the lowest number wins: no argpartition
            bound = np.partition(squared, count - 1)[count - 1]
            ids, squared = ids[squared <= bound], squared[squared <= bound]
        order = np.lexsort((ids, squared))[:count]
        return ids[order], np.sqrt(squared[order])

    def _measured(
        self, descriptor: NDArray[np.float32], count: int, eligible: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return numbers and squared distances of all eligible, or of the likely nearest."""
        if np.count_nonzero(eligible) <= FEW_ROWS:
            ids = np.flatnonzero(eligible)
            return ids, squared_distances(descriptor, self.rows.take(ids))
        with self._lock:
            coarse = self._coarse
            if coarse is not None:
                wanted = max(count, self._refined)
                ids = coarse.candidates(descriptor, wanted, eligible, self._probe_share)
        if coarse is not None:
            return ids, squared_distances(descriptor, self.rows.take(ids))
        ids = np.flatnonzero(eligible)
        parts = self.rows.parts(0, len(eligible))
        squared = np.concatenate([squared_distances(descriptor, part) for part in parts])
        return ids, squared[ids]

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a build under way; return whether none is left."""
        if self._builder is not None:
            self._builder.join(timeout_s)
        return self._builder is None or not self._builder.is_alive()

    def close(self) -> None:
        """Give up a build under way."""
        self._closed.set()
        self.wait(CLOSE_TIMEOUT_S)

    def _build(self) -> None:
        try:
            _yield_to_others()
            self._fill(self._train(len(self.rows)))
        except Exception:  # the old search still answers; without this the thread dies unseen
            logger.exception('index of %d descriptors not built; searching as before', len(self))

    def _train(self, count: int) -> CoarseIndex:
        """Make the cells from rows evenly along the drives; copied in C, not row by row."""
        cells = cells_for(count)
        stride = max(1, count // (cells * TRAINING_ROWS_PER_CELL))
        sample = np.concatenate([part[::stride] for part in self.rows.parts(0, count)])
        return CoarseIndex(sample, cells, self._codes)

    def _fill(self, coarse: CoarseIndex) -> None:
        """Add all rows, those that arrive meanwhile too, then put the new index in place."""
        while not self._closed.is_set():
            if len(self.rows) - len(coarse) <= CATCH_UP_ROWS:
                with self._lock:
                    for part in self.rows.parts(len(coarse)):
                        coarse.add(part)
                    self._coarse = coarse
                return
            for part in self.rows.parts(len(coarse), len(coarse) + BATCH_ROWS):
                coarse.add(part)


def _yield_to_others() -> None:
    """Run this thread on one core and behind all others, where the system knows how."""
    use_one_thread()
    if sys.platform == 'linux':  # elsewhere priorities are of processes, not of threads
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), BACKGROUND_NICENESS)
