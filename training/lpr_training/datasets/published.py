"""The published pickles of training tuples and evaluation sets, read without running code.

Only builtin containers and NumPy arrays are admitted; any other class is refused by name.
"""

import io
from pathlib import Path
import pickle
from typing import Any

import numpy as np

from lpr_ros.core.errors import DatasetError
from lpr_training.datasets.evaluation_sets import EvaluationSets
from lpr_training.datasets.tuples import Ragged, TrainingTuples

# Old and new NumPy name the same functions differently; a scalar is an array of no dimension.
_ARRAY_MODULES = ('numpy.core', 'numpy._core')
ADMITTED = {
    ('numpy', 'ndarray'),
    ('numpy', 'dtype'),
    *((f'{m}.multiarray', name) for m in _ARRAY_MODULES for name in ('_reconstruct', 'scalar')),
    *((f'{m}.numeric', '_frombuffer') for m in _ARRAY_MODULES),
    *((module, name) for module in ('builtins', '__builtin__') for name in ('set', 'frozenset')),
}


class RestrictedUnpickler(pickle.Unpickler):
    """Refuses every global except those that make plain containers and arrays."""

    def find_class(self, module: str, name: str) -> Any:
        """Return an admitted global; raise UnpicklingError for any other."""
        if (module, name) == ('_codecs', 'encode'):  # how Python 2 bytes were written
            return _latin1_bytes
        if (module, name) not in ADMITTED:
            raise pickle.UnpicklingError(
                f'expected only builtin containers and numpy arrays, got {module}.{name}'
            )
        return super().find_class(module, name)


def _latin1_bytes(text: str, encoding: str) -> bytes:
    if encoding != 'latin1':
        raise pickle.UnpicklingError(f'expected bytes written as latin1, got {encoding!r}')
    return text.encode('latin1')


def read_pickle(path: Path) -> Any:
    """Read a pickle of plain data."""
    try:
        data = Path(path).read_bytes()
        return RestrictedUnpickler(io.BytesIO(data), encoding='latin1').load()
    except OSError as error:
        raise DatasetError(f'{path}: cannot be read: {error.strerror}') from error
    except Exception as error:  # a damaged pickle raises anything
        raise DatasetError(f'{path}: refused: {error}') from error


def import_training(path: Path) -> TrainingTuples:
    """Import training queries {i: {'query', 'positives', 'negatives'}}."""
    queries = read_pickle(path)
    try:
        count = len(queries)
        everything = np.arange(count)
        positives = Ragged.from_rows(queries[i]['positives'] for i in range(count))
        non_negatives = Ragged.from_rows(
            np.setdiff1d(everything, np.asarray(queries[i]['negatives'], dtype=np.int64))
            for i in range(count)
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DatasetError(
            f'{path}: expected {{i: {{query, positives, negatives}}}}: {error!r}'
        ) from error
    return TrainingTuples(positives, non_negatives)


def import_evaluation(database_path: Path, query_path: Path) -> EvaluationSets:
    """Import the evaluation sets: per run {i: {'query', 'northing', 'easting', run: [...]}}.

    Places are numbered through the databases, run by run; a query is found there by its file.
    """
    databases, queries = read_pickle(database_path), read_pickle(query_path)
    try:
        places: dict[str, int] = {}
        database = []
        for run, places_of_run in enumerate(databases):
            for i in range(len(places_of_run)):
                database.append((run, places.setdefault(places_of_run[i]['query'], len(places))))
        asked: list[tuple[int, int]] = []
        rows: list[tuple[int, int, int]] = []
        for run, queries_of_run in enumerate(queries):
            for i in range(len(queries_of_run)):
                entry = queries_of_run[i]
                for other in range(len(databases)):
                    rows += [(len(asked), other, k) for k in sorted(entry.get(other, ()))]
                asked.append((run, places[entry['query']]))
        names = tuple(Path(d[0]['query']).parent.parent.name for d in databases)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise DatasetError(
            f'{query_path}: expected lists of {{i: {{query, <run>: [...]}}}}: {error!r}'
        ) from error
    return EvaluationSets(
        names,
        np.array(database, dtype=np.int64).reshape(-1, 2),
        np.array(asked, dtype=np.int64).reshape(-1, 2),
        np.array(rows, dtype=np.int32).reshape(-1, 3),
    )
