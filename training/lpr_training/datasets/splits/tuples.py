"""Training tuples: the positives and non-negatives of every place."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from lpr_ros.core.files import atomic_file
from lpr_ros.core.io.npz_reader import Expected, NpzFile, check_indices, check_offsets


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of varying length: row i is indices[offsets[i]:offsets[i + 1]], ascending."""

    offsets: NDArray[np.int64]  # (N + 1,)
    indices: NDArray[np.int32]

    @classmethod
    def from_pairs(cls, rows: NDArray[np.int64], values: NDArray[np.int64], n: int) -> 'Ragged':
        """Group (row, value) pairs by row."""
        order = np.lexsort((values, rows))
        offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
        return cls(offsets.astype(np.int64), values[order].astype(np.int32))

    @classmethod
    def from_rows(cls, rows: Iterable[ArrayLike]) -> 'Ragged':
        """Concatenate rows."""
        arrays = [np.sort(np.asarray(row, dtype=np.int32)) for row in rows]
        offsets = np.cumsum([0, *(len(a) for a in arrays)]).astype(np.int64)
        empty = np.empty(0, dtype=np.int32)
        return cls(offsets, np.concatenate([empty, *arrays]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        return self.indices[self.offsets[row] : self.offsets[row + 1]]


@dataclass(frozen=True, eq=False)
class TrainingTuples:
    """For each of N places, `positives` without itself and `non_negatives` with itself."""

    positives: Ragged
    non_negatives: Ragged

    def __len__(self) -> int:
        return len(self.positives)

    def save(self, path: Path) -> None:
        """Write an npz file."""
        with atomic_file(Path(path)) as partial, partial.open('wb') as stream:
            np.savez_compressed(
                stream,
                positives_offsets=self.positives.offsets,
                positives_indices=self.positives.indices,
                non_negatives_offsets=self.non_negatives.offsets,
                non_negatives_indices=self.non_negatives.indices,
            )

    @classmethod
    def load(cls, path: Path) -> 'TrainingTuples':
        """Read a file written by `save`."""
        sides, parts = ('positives', 'non_negatives'), ('offsets', 'indices')
        names = [f'{side}_{part}' for side in sides for part in parts]
        file = NpzFile(Path(path), dict.fromkeys(names, Expected('i', (None,))))
        count = len(file['positives_offsets']) - 1
        for side in sides:
            indices = file[f'{side}_indices']
            check_offsets(file, f'{side}_offsets', count, len(indices))
            check_indices(file, f'{side}_indices', indices, count)
        return cls(*(Ragged(*(file[f'{side}_{part}'] for part in parts)) for side in sides))


def make_tuples(
    positions_xy: NDArray[np.float64], positive_m: float, non_negative_m: float
) -> TrainingTuples:
    """Return tuples with positives within positive_m and negatives beyond non_negative_m."""
    return TrainingTuples(
        neighbors_within(positions_xy, positive_m, include_self=False),
        neighbors_within(positions_xy, non_negative_m, include_self=True),
    )


def neighbors_within(
    positions_xy: NDArray[np.float64], radius_m: float, *, include_self: bool
) -> Ragged:
    """Return for each position (N, 2) the others within radius_m."""
    n = len(positions_xy)
    pairs = cKDTree(positions_xy).query_pairs(radius_m, output_type='ndarray')
    own = np.arange(n if include_self else 0)
    rows = np.concatenate([pairs[:, 0], pairs[:, 1], own])
    values = np.concatenate([pairs[:, 1], pairs[:, 0], own])
    return Ragged.from_pairs(rows, values, n)
