"""Published pickles are imported, and code in them is never run."""

import os
from pathlib import Path
import pickle

import numpy as np
import pytest

from lpr_ros.core.errors import DatasetError
from lpr_training.datasets.splits.published_pickles import (
    import_evaluation,
    import_training,
    read_pickle,
)
from lpr_training.datasets.splits.tuples import make_tuples


class Malicious:
    def __init__(self, call, *args):
        self.call, self.args = call, args

    def __reduce__(self):
        return self.call, self.args


def dump(path, value, protocol=2):
    path.write_bytes(pickle.dumps(value, protocol=protocol))
    return path


@pytest.mark.parametrize('protocol', range(6))
def test_containers_and_arrays_are_accepted(tmp_path, protocol):
    value = {
        0: {'query': 'oxford/a.bin', 'positives': [1, 2], 'x': np.arange(6.0).reshape(2, 3)},
        1: (True, None, 1.5, b'\xff\x00', {3}, np.float64(2.5), np.array(['a', 'bc'])),
    }
    back = read_pickle(dump(tmp_path / 'a.pickle', value, protocol))
    np.testing.assert_array_equal(back[0].pop('x'), value[0].pop('x'))
    np.testing.assert_array_equal(back[1][6], value[1][6])
    assert back[0] == value[0]
    assert back[1][:6] == value[1][:6]


@pytest.mark.parametrize('call', [os.system, eval, exec, open, getattr, np.load, Path.unlink])
@pytest.mark.parametrize('nested', [False, True])
def test_code_in_a_pickle_is_rejected_and_not_run(tmp_path, call, nested):
    victim = tmp_path / 'victim'
    victim.write_text('here')
    arguments = {os.system: (f'rm {victim}',), Path.unlink: (victim,)}
    value = Malicious(call, *arguments.get(call, (f'__import__("os").remove({str(victim)!r})',)))
    if nested:
        value = {0: {'positives': np.array([value], dtype=object)}}
    path = dump(tmp_path / 'a.pickle', value)
    with pytest.raises(DatasetError, match=r'a.pickle: .* expected only builtin containers'):
        read_pickle(path)
    assert victim.exists()


def test_other_classes_are_rejected_by_name(tmp_path):
    path = dump(tmp_path / 'a.pickle', Path('x'))
    with pytest.raises(DatasetError, match=r'got pathlib'):
        read_pickle(path)
    (tmp_path / 'b.pickle').write_bytes(b'cut short')
    with pytest.raises(DatasetError, match=r'b.pickle: expected a pickle'):
        read_pickle(tmp_path / 'b.pickle')


def test_published_training_tuples_are_imported(tmp_path):
    xy = np.random.default_rng(0).uniform(0, 120, size=(40, 2))
    tuples = make_tuples(xy, 10.0, 50.0)
    queries = {
        i: {
            'query': f'oxford/{i}.bin',
            'positives': tuples.positives[i][::-1].tolist(),
            'negatives': np.setdiff1d(np.arange(40), tuples.non_negatives[i]).tolist(),
        }
        for i in range(40)
    }
    imported = import_training(dump(tmp_path / 'training.pickle', queries))
    for i in range(40):
        np.testing.assert_array_equal(imported.positives[i], tuples.positives[i])
        np.testing.assert_array_equal(imported.non_negatives[i], tuples.non_negatives[i])


def test_published_evaluation_sets_are_imported(tmp_path):
    def entry(run, i, **more):
        return {'query': f'oxford/{run}/pointcloud_20m/{i}.bin', 'northing': 1.0, **more}

    databases = [{i: entry(run, i) for i in range(3)} for run in 'ab']
    queries = [{0: {**entry('a', 2), 1: [2, 0]}}, {0: {**entry('b', 1), 0: []}}]
    sets = import_evaluation(
        dump(tmp_path / 'database.pickle', databases), dump(tmp_path / 'query.pickle', queries)
    )
    assert sets.runs == ('a', 'b')
    assert sets.database.tolist() == [[0, 0], [0, 1], [0, 2], [1, 3], [1, 4], [1, 5]]
    assert sets.queries.tolist() == [[0, 2], [1, 4]]
    assert sets.true_neighbors.tolist() == [[0, 1, 0], [0, 1, 2]]


def test_pickles_of_another_structure_are_rejected(tmp_path):
    path = dump(tmp_path / 'a.pickle', {0: {'positives': [1]}})
    with pytest.raises(DatasetError, match=r'expected .*query, positives, negatives'):
        import_training(path)
    with pytest.raises(DatasetError, match='expected lists of'):
        import_evaluation(path, path)


def test_a_damaged_memo_index_does_not_allocate_memory(tmp_path):
    """Ten bytes would request a memo of 192 MB."""
    path = tmp_path / 'tuples.pickle'
    path.write_bytes(b'\x80\x02]r' + (12_000_000).to_bytes(4, 'little') + b'.')
    with pytest.raises(DatasetError, match='MemoryError'):
        read_pickle(path)
    path.write_bytes(b'\x80\x02]r' + (4).to_bytes(4, 'little') + b'.')
    assert read_pickle(path) == []
