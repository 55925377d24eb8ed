"""Nearest descriptors: exhaustive search while that is cheap, then a coarse index.

The index is built in a background thread on rows that never move. Until a new one is complete the
old search answers, so that adding and querying never wait and no descriptor is ever missing.
"""

import logging
import os
import sys
import threading

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.database.append_array import AppendArray
from lpr_ros.core.database.faiss_index import (
    TRAINING_ROWS_PER_CELL,
    CoarseIndex,
    cells_for,
    code_bytes,
    squared_distances,
    use_one_thread,
)

logger = logging.getLogger(__name__)

REBUILD_GROWTH = 4  # an index is still fast with four times the rows it was built for
BATCH_ROWS = 2048
CATCH_UP_ROWS = 64  # rows indexed under the lock at the end of a build: below 1 ms
BACKGROUND_NICENESS = 10
# A few eligible rows may all lie in cells that a query does not visit: compare them all.
EXHAUSTIVE_ROWS = 1024
CLOSE_TIMEOUT_S = 2.0  # FAISS training cannot be interrupted


class DescriptorIndex:
    """Descriptors numbered from 0, with nearest-neighbor search among eligible ones."""

    def __init__(
        self,
        dim: int,
        *,
        brute_force_bytes: int,
        nprobe_fraction: float = 0.4,
        rerank_k: int = 128,
        codes: str = '8bit',
    ):
        self.rows = AppendArray((dim,), np.float32)
        self._brute_force_bytes = brute_force_bytes
        self._nprobe_fraction = nprobe_fraction
        self._rerank_k = rerank_k
        self._codes = codes
        self._coarse: CoarseIndex | None = None
        self._built_for = 0
        self._lock = threading.Lock()  # rows and coarse index grow together
        self._builder: threading.Thread | None = None
        self._closed = threading.Event()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> NDArray[np.float32]:
        return self.rows[number]

    @property
    def is_exact(self) -> bool:
        """Whether search is still exhaustive."""
        return self._coarse is None

    @property
    def nbytes(self) -> int:
        """Bytes of the descriptors and of the coarse index."""
        return self.rows.nbytes + (0 if self._coarse is None else self._coarse.nbytes)

    @property
    def max_bytes_per_row(self) -> int:
        """Maximum bytes per descriptor: code lists double, and a rebuild holds two of them."""
        dim = self.rows.row_bytes // 4
        return self.rows.row_bytes + 4 * code_bytes(dim, self._codes)

    def extend(self, rows: NDArray[np.float32]) -> None:
        """Append (M, D) descriptors."""
        with self._lock:
            if self._coarse is not None:
                self._coarse.add(rows)
            self.rows.extend(rows)

    def build_if_due(self) -> None:
        """Start building a new index in the background if there are enough new rows."""
        is_building = self._builder is not None and self._builder.is_alive()
        is_due = (
            self.rows.nbytes > self._brute_force_bytes
            and len(self.rows) >= REBUILD_GROWTH * self._built_for
        )
        if is_due and not is_building and not self._closed.is_set():
            self._built_for = len(self.rows)
            self._builder = threading.Thread(target=self._build, name='lpr-index', daemon=True)
            self._builder.start()

    def search(
        self, descriptor: NDArray[np.float32], count: int, eligible: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return ids and Euclidean distances of the nearest eligible rows, nearest first.

        `eligible` is (N,) for the first N descriptors; later ones are not eligible.
        """
        ids, squared = self._distances(descriptor, count, eligible)
        if len(ids) > count:  # no argpartition: the lowest id must win ties
            bound = np.partition(squared, count - 1)[count - 1]
            ids, squared = ids[squared <= bound], squared[squared <= bound]
        order = np.lexsort((ids, squared))[:count]
        return ids[order], np.sqrt(squared[order])

    def distances(
        self, descriptor: NDArray[np.float32], ids: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the Euclidean distances to these rows."""
        squared = squared_distances(descriptor, self.rows.take(ids))
        return np.sqrt(squared, dtype=np.float64)

    def _distances(
        self, descriptor: NDArray[np.float32], count: int, eligible: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return ids and squared distances of all eligible rows, or of the likely nearest."""
        if np.count_nonzero(eligible) <= EXHAUSTIVE_ROWS:
            ids = np.flatnonzero(eligible)
            return ids, squared_distances(descriptor, self.rows.take(ids))
        with self._lock:
            coarse = self._coarse
            if coarse is not None:
                wanted = max(count, self._rerank_k)
                ids = coarse.candidates(descriptor, wanted, eligible, self._nprobe_fraction)
        if coarse is not None:
            return ids, squared_distances(descriptor, self.rows.take(ids))
        ids = np.flatnonzero(eligible)
        parts = self.rows.parts(0, len(eligible))
        squared = np.concatenate([squared_distances(descriptor, part) for part in parts])
        return ids, squared[ids]

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a running build; return whether it has finished."""
        if self._builder is not None:
            self._builder.join(timeout_s)
        return self._builder is None or not self._builder.is_alive()

    def close(self) -> None:
        """Cancel a running build."""
        self._closed.set()
        self.wait(CLOSE_TIMEOUT_S)

    def _build(self) -> None:
        try:
            _lower_priority()
            self._fill(self._train(len(self.rows)))
        except Exception:  # the old search still answers
            logger.exception(
                'cannot build an index of %d descriptors; search continues without it', len(self)
            )

    def _train(self, count: int) -> CoarseIndex:
        """Train the cells on rows spread evenly over the drives."""
        cells = cells_for(count)
        stride = max(1, count // (cells * TRAINING_ROWS_PER_CELL))
        sample = np.concatenate([part[::stride] for part in self.rows.parts(0, count)])
        return CoarseIndex(sample, cells, self._codes)

    def _fill(self, coarse: CoarseIndex) -> None:
        """Add all rows, including those appended meanwhile, then switch to the new index."""
        while not self._closed.is_set():
            if len(self.rows) - len(coarse) <= CATCH_UP_ROWS:
                with self._lock:
                    for part in self.rows.parts(len(coarse)):
                        coarse.add(part)
                    self._coarse = coarse
                return
            for part in self.rows.parts(len(coarse), len(coarse) + BATCH_ROWS):
                coarse.add(part)


def _lower_priority() -> None:
    """Limit this thread to one core and lower its priority, where supported."""
    use_one_thread()
    if sys.platform == 'linux':  # elsewhere priorities are per process
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), BACKGROUND_NICENESS)
