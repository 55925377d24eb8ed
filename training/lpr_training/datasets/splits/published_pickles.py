"""Read the published pickles of training tuples and evaluation sets without running code.

Only builtin containers and arrays are accepted. NumPy classes are replaced by stand-ins too,
because a crafted dtype state can make NumPy interpret bytes as pointers.
"""

from collections.abc import Iterator
from contextlib import contextmanager
import io
from pathlib import Path
import pickle
import resource
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.files import wrap_read_errors
from lpr_training.datasets.splits.evaluation_sets import EvaluationSets
from lpr_training.datasets.splits.tuples import Ragged, TrainingTuples

MIB = 2**20
MEMORY_PER_BYTE = 100  # of the pickle; a list of small integers needs a tenth
BASE_MEMORY = 32 * MIB  # allocated by the interpreter for a pickle of any size

PLAIN_DTYPES = 'biufUS'  # numbers and text; an object dtype would contain pointers


class _Dtype:
    """Replaces numpy.dtype, whose pickled state is not validated."""

    def __init__(self, name: str, *_: object):
        self.name = name

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order, self.name = str(state[1]), self.name.lstrip('<>|=')
        self.name = (order if order in '<>' else '|') + self.name

    @property
    def checked(self) -> np.dtype[Any]:
        dtype = np.dtype(self.name)
        if dtype.kind not in PLAIN_DTYPES:
            raise pickle.UnpicklingError(f'expected numbers or text, got dtype {self.name!r}')
        return dtype


class _Array:
    """Replaces numpy.ndarray; the array is built from bytes with a checked dtype."""

    def __init__(self, *_: object):
        self._values: NDArray[Any] = np.empty(0)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, is_fortran, data = state
        self._values = _from_bytes(data, dtype, shape, 'F' if is_fortran else 'C')

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self._values, dtype=dtype)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def _from_bytes(data: Any, dtype: Any, shape: Any, order: Any = 'C') -> NDArray[Any]:
    if not isinstance(dtype, _Dtype) or order not in ('C', 'F'):
        raise pickle.UnpicklingError(f'expected an array, got dtype {dtype!r}, order {order!r}')
    raw = data.encode('latin1') if isinstance(data, str) else bytes(memoryview(data))
    return np.frombuffer(raw, dtype=dtype.checked).reshape(shape, order=order)


def _scalar(dtype: Any, data: Any) -> Any:
    return _from_bytes(data, dtype, ())[()]


def _latin1_bytes(text: str, encoding: str) -> bytes:
    if encoding != 'latin1':
        raise pickle.UnpicklingError(f'expected bytes encoded as latin1, got {encoding!r}')
    return text.encode('latin1')


# NumPy 1 and 2 use different module names.
_ARRAY_MODULES = ('numpy.core', 'numpy._core')
STAND_INS: dict[tuple[str, str], Any] = {
    ('numpy', 'ndarray'): _Array,
    ('numpy', 'dtype'): _Dtype,
    ('_codecs', 'encode'): _latin1_bytes,  # bytes of Python 2
    **{(f'{m}.multiarray', '_reconstruct'): _Array for m in _ARRAY_MODULES},
    **{(f'{m}.multiarray', 'scalar'): _scalar for m in _ARRAY_MODULES},
    **{(f'{m}.numeric', '_frombuffer'): _from_bytes for m in _ARRAY_MODULES},
    **{(m, kind.__name__): kind for m in ('builtins', '__builtin__') for kind in (set, frozenset)},
}


class RestrictedUnpickler(pickle.Unpickler):
    """Resolves only the names in STAND_INS."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in of a name; UnpicklingError for any other."""
        if (module, name) not in STAND_INS:
            raise pickle.UnpicklingError(
                f'expected only builtin containers and numpy arrays, got {module}.{name}'
            )
        return STAND_INS[module, name]


def read_pickle(path: Path) -> Any:
    """Read a pickle of plain data; arrays are returned as array-likes."""
    with wrap_read_errors(path, 'a pickle of plain data'):
        data = Path(path).read_bytes()
        with _memory_limit(BASE_MEMORY + MEMORY_PER_BYTE * len(data)):
            return RestrictedUnpickler(io.BytesIO(data), encoding='latin1').load()


@contextmanager
def _memory_limit(more_bytes: int) -> Iterator[None]:
    """Limit memory growth: one damaged byte can request a pickle memo of 64 GB."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path('/proc/self/statm').read_text(encoding='ascii').split()[0])
    soft = pages * resource.getpagesize() + more_bytes
    if before[0] != resource.RLIM_INFINITY:
        soft = min(soft, before[0])
    resource.setrlimit(resource.RLIMIT_AS, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def import_training(path: Path) -> TrainingTuples:
    """Import training queries {i: {'query', 'positives', 'negatives'}}."""
    queries = read_pickle(path)
    try:
        count = len(queries)
        all_places = np.arange(count)
        positives = Ragged.from_rows(queries[i]['positives'] for i in range(count))
        non_negatives = Ragged.from_rows(
            np.setdiff1d(all_places, np.asarray(queries[i]['negatives'], dtype=np.int64))
            for i in range(count)
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DatasetError(
            f'{path}: expected {{i: {{query, positives, negatives}}}}: {error!r}'
        ) from error
    return TrainingTuples(positives, non_negatives)


def import_evaluation(database_path: Path, query_path: Path) -> EvaluationSets:
    """Import the evaluation sets: per run {i: {'query', 'northing', 'easting', run: [...]}}.

    Places are numbered in database order; a query is identified by its file.
    """
    databases, queries = read_pickle(database_path), read_pickle(query_path)
    try:
        places: dict[str, int] = {}
        database = []
        for run, places_of_run in enumerate(databases):
            for i in range(len(places_of_run)):
                database.append((run, places.setdefault(places_of_run[i]['query'], len(places))))
        query_rows: list[tuple[int, int]] = []
        rows: list[tuple[int, int, int]] = []
        for run, queries_of_run in enumerate(queries):
            for i in range(len(queries_of_run)):
                entry = queries_of_run[i]
                for other in range(len(databases)):
                    rows += [(len(query_rows), other, k) for k in sorted(entry.get(other, ()))]
                query_rows.append((run, places[entry['query']]))
        names = tuple(Path(d[0]['query']).parent.parent.name for d in databases)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise DatasetError(
            f'{query_path}: expected lists of {{i: {{query, <run>: [...]}}}}: {error!r}'
        ) from error
    return EvaluationSets(
        names,
        np.array(database, dtype=np.int64).reshape(-1, 2),
        np.array(query_rows, dtype=np.int64).reshape(-1, 2),
        np.array(rows, dtype=np.int32).reshape(-1, 3),
    )
