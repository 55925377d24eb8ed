"""The descriptor indexes that the database benchmark compares, behind one interface."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import faiss
import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.database.descriptor_index import DescriptorIndex
from lpr_ros.core.database.faiss_index import KMEANS_ROUNDS, TRAINING_ROWS_PER_CELL, cells_for

PROBES = 64
RERANK_K = 32


class SearchMethod(Protocol):
    """An index that is filled once and searched many times."""

    def add(self, rows: NDArray[np.float32]) -> None:
        """Add (N, D) descriptors."""

    def nearest(self, descriptor: NDArray[np.float32], eligible: NDArray[np.bool_]) -> int:
        """Return the row of the nearest eligible descriptor, -1 if none is found."""

    @property
    def nbytes(self) -> int:
        """Memory including the descriptors."""


class Ours:
    """The index of PlaceDatabase, after its background build."""

    def __init__(self, dim: int, **options: Any):
        self._index = DescriptorIndex(dim, **options)

    def add(self, rows: NDArray[np.float32]) -> None:
        """Add (N, D) descriptors."""
        self._index.extend(rows)
        self._index.build_if_due()
        self._index.wait()

    def nearest(self, descriptor: NDArray[np.float32], eligible: NDArray[np.bool_]) -> int:
        """Return the row of the nearest eligible descriptor, -1 if none is found."""
        ids = self._index.search(descriptor, 1, eligible)[0]
        return int(ids[0]) if len(ids) else -1

    @property
    def nbytes(self) -> int:
        """Memory including the descriptors."""
        return self._index.nbytes


class Faiss:
    """A FAISS index by factory string; quantized codes are re-ranked with the float rows."""

    def __init__(self, dim: int, name: str, bytes_per_row: float, is_exact: bool):
        self._dim, self._name, self._is_exact = dim, name, is_exact
        self._bytes_per_row = bytes_per_row + (0 if is_exact else 4 * dim)

    def add(self, rows: NDArray[np.float32]) -> None:
        """Add (N, D) descriptors."""
        cells = cells_for(len(rows))
        self._rows = rows
        self._index = faiss.index_factory(self._dim, self._name.format(cells=cells))
        if self._name.startswith('IVF'):
            ivf = faiss.extract_index_ivf(self._index)
            ivf.cp.niter = KMEANS_ROUNDS
            ivf.cp.min_points_per_centroid = 1
            ivf.cp.max_points_per_centroid = TRAINING_ROWS_PER_CELL
        sample = np.random.default_rng(0).permutation(len(rows))[: cells * TRAINING_ROWS_PER_CELL]
        self._index.train(rows[np.sort(sample)])
        self._index.add(rows)

    def nearest(self, descriptor: NDArray[np.float32], eligible: NDArray[np.bool_]) -> int:
        """Return the row of the nearest eligible descriptor, -1 if none is found."""
        selector = faiss.IDSelectorBitmap(np.packbits(eligible, bitorder='little'))
        count = 1 if self._is_exact else RERANK_K
        parameters = self._parameters(selector)
        ids = self._index.search(descriptor[None], count, params=parameters)[1][0]
        ids = ids[ids >= 0]
        if len(ids) == 0:
            return -1
        return int(ids[np.argmin(np.square(self._rows[ids] - descriptor).sum(axis=1))])

    def _parameters(self, selector: Any) -> Any:
        if self._name.startswith('IVF'):
            return faiss.SearchParametersIVF(sel=selector, nprobe=PROBES)
        if self._name.startswith('HNSW'):
            return faiss.SearchParametersHNSW(sel=selector, efSearch=PROBES)
        return faiss.SearchParameters(sel=selector)

    @property
    def nbytes(self) -> int:
        """Memory including the descriptors."""
        return int(len(self._rows) * self._bytes_per_row)


@dataclass(frozen=True)
class Method:
    """An index, and the largest input (in floats) that it handles within minutes."""

    name: str
    make: Callable[[int], SearchMethod]
    max_floats: float


LINKS = 2 * 32  # per node on the lowest level of an HNSW graph with M = 32, 4 bytes each
METHODS = (
    Method('exact', lambda d: Ours(d, brute_force_bytes=2**60), np.inf),
    Method('ours, 8 bit', lambda d: Ours(d, brute_force_bytes=0), np.inf),
    Method('ours, 16 bit', lambda d: Ours(d, brute_force_bytes=0, codes='16bit'), np.inf),
    Method('flat, 8 bit', lambda d: Faiss(d, 'SQ8', d, is_exact=False), 3e8),
    Method('IVF, float', lambda d: Faiss(d, 'IVF{cells},Flat', 4 * d + 8, is_exact=True), 1.1e8),
    Method('IVF, 8 bit', lambda d: Faiss(d, 'IVF{cells},SQ8', d + 8, is_exact=False), 1.1e8),
    Method('HNSW', lambda d: Faiss(d, 'HNSW32,Flat', 4 * d + 4 * LINKS, is_exact=True), 1.1e7),
)
