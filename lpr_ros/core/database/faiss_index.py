"""The only module that uses FAISS: exact distances, and a coarse index for many descriptors.

The coarse index returns candidates that the caller re-ranks by exact distance. The design was
chosen by measurement (training/benchmark.py database). A random projection preserves distances
within a few percent, needs no training, and reduces the cost of clustering, adding and searching
in proportion to the dimensions it drops; the cells of an inverted file then skip most codes.
Visiting few of many cells costs recall, above all at a million descriptors: hence a large fraction
of few cells. A graph (HNSW) is as fast to search but takes hours to fill after loading a large
map.
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
# Future descriptors can lie outside the range of the training rows.
RANGE_MARGIN = 0.25
# Up to this many codes all cells are visited, which takes two to three milliseconds.
EXHAUSTIVE_CODES = 100_000


def code_bytes(dim: int, codes: str) -> int:
    """Return the bytes of one descriptor in a coarse index: its code and id."""
    return min(dim, PROJECTED_DIM) * (1 if codes == '8bit' else 2) + 8


def squared_distances(
    descriptor: NDArray[np.float32], rows: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the squared Euclidean distances of (D,) to (N, D) rows, both contiguous."""
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
    """Return the number of cells for this many descriptors: the square root."""
    return max(1, math.isqrt(count))


def use_one_thread() -> None:
    """Limit FAISS to one core in the calling thread."""
    faiss.omp_set_num_threads(1)


class CoarseIndex:
    """An inverted file of quantized, projected descriptors with ids in order of adding."""

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
        """Bytes of codes, ids, centers and projection."""
        per_row = self._index.code_size + 8
        centers = self._index.nlist * self._index.d * 4
        return int(len(self) * per_row + centers + self._projection.nbytes)

    def add(self, rows: NDArray[np.float32]) -> None:
        """Add (N, D) descriptors."""
        self._index.add(self._project(rows))

    def candidates(
        self,
        descriptor: NDArray[np.float32],
        count: int,
        eligible: NDArray[np.bool_],
        nprobe_fraction: float,
    ) -> NDArray[np.int64]:
        """Return the ids of up to `count` likely nearest eligible descriptors."""
        allowed = np.packbits(eligible, bitorder='little')
        selector = faiss.IDSelectorBitmap(allowed)
        fraction = min(1.0, max(nprobe_fraction, EXHAUSTIVE_CODES / max(1, len(self))))
        probes = max(1, math.ceil(fraction * self._index.nlist))
        parameters = faiss.SearchParametersIVF(sel=selector, nprobe=probes)
        _, ids = self._index.search(self._project(descriptor[None]), count, params=parameters)
        valid: NDArray[np.int64] = ids[0][ids[0] >= 0]  # FAISS pads with -1
        return valid

    def _project(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.ascontiguousarray(rows @ self._projection, dtype=np.float32)


def projection(dim: int, projected_dim: int) -> NDArray[np.float32]:
    """Return (dim, projected_dim) orthonormal columns, identical in every run."""
    if projected_dim == dim:
        return np.eye(dim, dtype=np.float32)
    normal = np.random.default_rng(0).normal(size=(dim, projected_dim))
    return np.ascontiguousarray(np.linalg.qr(normal)[0], dtype=np.float32)
