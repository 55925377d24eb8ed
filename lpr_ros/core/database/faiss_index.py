"""The only file that knows FAISS: distances one by one, and a coarse index for many.

The coarse index names candidates, whose true distances its user then measures. It was chosen by
measurement (training/benchmark.py database): a random projection keeps distances of descriptors
of any kind within some percent, needs no training, and makes clustering, adding and searching as
many times cheaper as it leaves out dimensions; the cells of an inverted file then skip most of
the codes. Looking into few of many cells is what costs recall, at a million above all: hence a
large share of few cells. A graph (HNSW) is as good to search but takes hours to fill after
loading a large map.
"""

import math

import faiss
import numpy as np
from numpy.typing import NDArray

PROJECTED_DIM = 96
CODES = {
    '8bit': faiss.ScalarQuantizer.QT_8bit,
    '16bit': faiss.ScalarQuantizer.QT_fp16,
}
TRAINING_ROWS_PER_CELL = 64
KMEANS_ROUNDS = 4
# Descriptors of places yet to come may lie outside the range of those trained on.
RANGE_MARGIN = 0.25
# Up to so many codes every cell is looked into: it takes two or three milliseconds.
CHEAP_CODES = 100_000


def code_bytes(dim: int, codes: str) -> int:
    """Return what one descriptor costs in a coarse index: its code and its number."""
    return min(dim, PROJECTED_DIM) * (1 if codes == '8bit' else 2) + 8


def squared_distances(
    descriptor: NDArray[np.float32], rows: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the squared Euclidean distance of (D,) to each of (N, D), both contiguous."""
    distances = np.empty(len(rows), dtype=np.float32)
    faiss.fvec_L2sqr_ny(
        faiss.swig_ptr(distances),
        faiss.swig_ptr(descriptor),
        faiss.swig_ptr(rows),
        len(descriptor),
        len(rows),
    )
    return distances


def cells_for(count: int) -> int:
    """Return how many cells suit this many descriptors: the square root."""
    return max(1, math.isqrt(count))


def use_one_thread() -> None:
    """Keep FAISS to one core in the calling thread, as a build in the background should."""
    faiss.omp_set_num_threads(1)


class CoarseIndex:
    """Cells of quantised, projected descriptors; numbers count up from 0 in order of adding."""

    def __init__(self, sample: NDArray[np.float32], cells: int, codes: str = '8bit'):
        dim = sample.shape[1]
        self._projection = projection(dim, min(dim, PROJECTED_DIM))
        projected = self._project(sample)
        quantizer = faiss.IndexFlatL2(projected.shape[1])
        self._index = faiss.IndexIVFScalarQuantizer(
            quantizer, projected.shape[1], cells, CODES[codes], faiss.METRIC_L2, False
        )
        self._quantizer = quantizer  # FAISS keeps a bare pointer to it
        self._index.sq.rangestat_arg = RANGE_MARGIN
        self._index.cp.niter = KMEANS_ROUNDS
        self._index.cp.min_points_per_centroid = 1
        self._index.cp.max_points_per_centroid = TRAINING_ROWS_PER_CELL
        self._index.train(projected)

    def __len__(self) -> int:
        return int(self._index.ntotal)

    @property
    def nbytes(self) -> int:
        """Bytes of codes, numbers, centres and projection."""
        per_row = self._index.code_size + 8
        centres = self._index.nlist * self._index.d * 4
        return int(len(self) * per_row + centres + self._projection.nbytes)

    def add(self, rows: NDArray[np.float32]) -> None:
        """Add (N, D) descriptors."""
        self._index.add(self._project(rows))

    def candidates(
        self,
        descriptor: NDArray[np.float32],
        count: int,
        eligible: NDArray[np.bool_],
        probe_share: float,
    ) -> NDArray[np.int64]:
        """Return the numbers of up to `count` likely nearest among the eligible."""
        allowed = np.packbits(eligible, bitorder='little')
        selector = faiss.IDSelectorBitmap(allowed)
        share = min(1.0, max(probe_share, CHEAP_CODES / max(1, len(self))))
        probes = max(1, math.ceil(share * self._index.nlist))
        parameters = faiss.SearchParametersIVF(sel=selector, nprobe=probes)
        _, ids = self._index.search(self._project(descriptor[None]), count, params=parameters)
        found: NDArray[np.int64] = ids[0][ids[0] >= 0]  # FAISS pads with -1
        return found

    def _project(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.ascontiguousarray(rows @ self._projection, dtype=np.float32)


def projection(dim: int, projected_dim: int) -> NDArray[np.float32]:
    """Return (dim, projected_dim) orthonormal columns, the same in every run."""
    if projected_dim == dim:
        return np.eye(dim, dtype=np.float32)
    normal = np.random.default_rng(0).normal(size=(dim, projected_dim))
    return np.ascontiguousarray(np.linalg.qr(normal)[0], dtype=np.float32)
