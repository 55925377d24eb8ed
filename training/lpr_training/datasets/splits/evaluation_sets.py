"""Evaluation sets between runs: databases, queries and true neighbors."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.files import atomic_file
from lpr_ros.core.io.npz_reader import Expected, NpzFile, check_indices

ARRAYS = {
    'runs': Expected('U', (None,)),
    'database': Expected('i', (None, 2)),
    'queries': Expected('i', (None, 2)),
    'true_neighbors': Expected('i', (None, 3)),
}


@dataclass(frozen=True, eq=False)
class EvaluationSets:
    """Every run is a database, searched with the queries of every other run.

    Places are indices into the dataset that the sets were made from.
    """

    runs: tuple[str, ...]
    database: NDArray[np.int64]  # (D, 2) rows: run, place; ordered by run
    queries: NDArray[np.int64]  # (Q, 2) rows: run, place
    true_neighbors: NDArray[np.int32]  # (K, 3) sorted rows: query, run, index in its database

    def database_of(self, run: int) -> NDArray[np.int64]:
        """Return the database places of a run, in order."""
        return self.database[self.database[:, 0] == run, 1]

    def queries_of(self, run: int) -> NDArray[np.int64]:
        """Return the rows of `queries` that belong to a run."""
        return np.flatnonzero(self.queries[:, 0] == run)

    def true_of(self, query: int, run: int) -> NDArray[np.int32]:
        """Return the true neighbors of a query in the database of a run."""
        low, high = np.searchsorted(self.true_neighbors[:, 0], [query, query + 1])
        rows = self.true_neighbors[low:high]
        return rows[rows[:, 1] == run, 2]

    def save(self, path: Path) -> None:
        """Write an npz file."""
        with atomic_file(Path(path)) as partial, partial.open('wb') as stream:
            np.savez_compressed(
                stream,
                runs=np.array(self.runs, dtype=np.str_),
                database=self.database,
                queries=self.queries,
                true_neighbors=self.true_neighbors,
            )

    @classmethod
    def load(cls, path: Path) -> 'EvaluationSets':
        """Read a file written by `save`."""
        file = NpzFile(Path(path), ARRAYS)
        runs, *tables = (file[name] for name in ARRAYS)
        for name, table in zip(('database', 'queries'), tables, strict=False):
            check_indices(file, f'run of {name}', table[:, 0], len(runs))
        check_indices(file, 'query of true_neighbors', tables[2][:, 0], len(tables[1]))
        return cls(tuple(map(str, runs)), *tables)


def make_evaluation_sets(
    runs: Sequence[str],
    positions_xy: NDArray[np.float64],
    is_query: NDArray[np.bool_],
    radius_m: float,
) -> EvaluationSets:
    """Make sets from runs and positions; places within radius_m are true neighbors."""
    if not len(runs) == len(positions_xy) == len(is_query):
        raise DatasetError(
            f'expected one run, position and query flag per place, got {len(runs)}, '
            f'{len(positions_xy)} and {len(is_query)}'
        )
    names, run_of = np.unique(np.array(runs), return_inverse=True)
    places = np.argsort(run_of, kind='stable')
    queries = places[is_query[places]]
    rows = [np.empty((0, 3), dtype=np.int64)]
    for run in range(len(names)):
        database = places[run_of[places] == run]
        others = np.flatnonzero(run_of[queries] != run)
        tree = cKDTree(positions_xy[database])
        found = tree.query_ball_point(positions_xy[queries[others]], radius_m)
        lengths = [len(f) for f in found]
        neighbors = np.concatenate([np.empty(0, np.int64), *(np.asarray(f, int) for f in found)])
        numbers = np.repeat(others, lengths)
        rows.append(np.column_stack([numbers, np.full(len(numbers), run), neighbors]))
    table = np.concatenate(rows)
    table = table[np.lexsort(table.T[::-1])].astype(np.int32)
    return EvaluationSets(
        tuple(map(str, names)),
        np.column_stack([run_of[places], places]),
        np.column_stack([run_of[queries], queries]),
        table,
    )
