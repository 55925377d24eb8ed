"""An append-only array whose rows never move.

A doubling array would block for seconds at a gigabyte, and rows that stay in place can be read by
another thread (an index build, a save) while this one appends.
"""

from collections.abc import Iterator
import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

BLOCK_BYTES = 4 * 2**20


class AppendArray:
    """An array of shape (N, *row_shape), stored in blocks of a fixed number of rows."""

    def __init__(self, row_shape: tuple[int, ...], dtype: DTypeLike):
        self._row_shape = row_shape
        self._dtype = np.dtype(dtype)
        self.row_bytes = self._dtype.itemsize * math.prod(row_shape)
        self._block_rows = max(1, BLOCK_BYTES // self.row_bytes)
        self._blocks: list[NDArray[Any]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes of the rows; up to one more block is reserved but untouched."""
        return self._count * self.row_bytes

    def append(self, row: ArrayLike) -> None:
        """Append one row."""
        self.extend(np.asarray(row, dtype=self._dtype)[None])

    def extend(self, rows: NDArray[Any]) -> None:
        """Append (M, *row_shape) rows."""
        done = 0
        while done < len(rows):
            block, start = divmod(self._count, self._block_rows)
            if block == len(self._blocks):
                shape = (self._block_rows, *self._row_shape)
                self._blocks.append(np.empty(shape, dtype=self._dtype))
            taken = min(len(rows) - done, self._block_rows - start)
            self._blocks[block][start : start + taken] = rows[done : done + taken]
            done += taken
            self._count += taken  # last: a reader never sees an unwritten row

    def __getitem__(self, index: int) -> NDArray[Any]:
        if not 0 <= index < self._count:
            raise IndexError(f'row {index}, expected 0 to {self._count - 1}')
        block, row = divmod(index, self._block_rows)
        view: NDArray[Any] = np.asarray(self._blocks[block][row])
        view.flags.writeable = False
        return view

    def take(self, indices: NDArray[np.int64]) -> NDArray[Any]:
        """Return a copy of the rows with these indices, in this order."""
        taken = np.empty((len(indices), *self._row_shape), dtype=self._dtype)
        blocks, rows = np.divmod(indices, self._block_rows)
        for block in np.unique(blocks).tolist():
            chosen = blocks == block
            taken[chosen] = self._blocks[block][rows[chosen]]
        return taken

    def parts(self, start: int = 0, stop: int | None = None) -> Iterator[NDArray[Any]]:
        """Yield the rows from start to stop as views, one per block."""
        stop = self._count if stop is None else min(stop, self._count)
        while start < stop:
            block, row = divmod(start, self._block_rows)
            taken = min(stop - start, self._block_rows - row)
            yield self._blocks[block][row : row + taken]
            start += taken
