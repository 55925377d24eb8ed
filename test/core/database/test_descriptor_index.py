"""The descriptor index: when it is built, which cells a query visits, and its memory."""

import inspect
import math
import os
import threading

import faiss
import numpy as np
import pytest
from toy_keyframes import DIM

from lpr_ros.core.database import descriptor_index, faiss_index
from lpr_ros.core.database.descriptor_index import REBUILD_GROWTH, DescriptorIndex
from lpr_ros.core.database.faiss_index import (
    CODES,
    CoarseIndex,
    cells_for,
    code_bytes,
    projection,
    use_one_thread,
)
from lpr_ros.core.database.place_database import DatabaseConfig

ROW_BYTES = 4 * DIM


def random_rows(rng, count, dim=DIM):
    return rng.normal(size=(count, dim)).astype(np.float32)


def grow(index, rng, count):
    """Append rows one by one, as the database does, and finish every build."""
    for row in random_rows(rng, count):
        index.extend(row[None])
        index.build_if_due()
        assert index.wait(60.0)


def test_search_is_exhaustive_up_to_the_limit(rng):
    index = DescriptorIndex(DIM, brute_force_bytes=100 * ROW_BYTES)
    grow(index, rng, 100)
    assert index.is_exact
    grow(index, rng, 1)
    assert not index.is_exact


def test_a_single_row_above_the_limit_is_indexed(rng):
    index = DescriptorIndex(DIM, brute_force_bytes=0)
    grow(index, rng, 1)
    assert not index.is_exact


def test_an_index_is_rebuilt_when_it_has_grown_enough(rng):
    index = DescriptorIndex(DIM, brute_force_bytes=9 * ROW_BYTES)
    grow(index, rng, 10)
    assert index._built_for == 10
    grow(index, rng, 10 * REBUILD_GROWTH - 11)
    assert index._built_for == 10
    grow(index, rng, 1)
    assert index._built_for == 10 * REBUILD_GROWTH


def test_one_build_runs_at_a_time_and_none_after_closing(rng, monkeypatch):
    held, resume = threading.Event(), threading.Event()
    builds = []

    def train(self, count):
        builds.append(count)
        held.set()
        assert resume.wait(30.0)
        raise RuntimeError('stopped')

    monkeypatch.setattr(DescriptorIndex, '_train', train)
    index = DescriptorIndex(DIM, brute_force_bytes=0)
    assert index.wait(0.0)  # nothing to wait for
    index.extend(random_rows(rng, 10))
    index.build_if_due()
    assert held.wait(30.0)
    assert not index.wait(0.0)
    assert index._builder.daemon  # a build does not keep the process alive
    index.extend(random_rows(rng, 100))
    index.build_if_due()
    assert builds == [10]
    resume.set()
    assert index.wait(30.0)
    index.close()
    index.build_if_due()
    assert builds == [10]


@pytest.mark.skipif(os.uname().sysname != 'Linux', reason='priorities of threads are Linux only')
def test_an_index_is_built_with_low_priority(rng, monkeypatch):
    lowered = []
    monkeypatch.setattr(descriptor_index.os, 'setpriority', lambda *args: lowered.append(args))
    index = DescriptorIndex(DIM, brute_force_bytes=0)
    grow(index, rng, 1)
    ((which, thread, niceness),) = lowered
    assert which == os.PRIO_PROCESS
    assert thread != threading.get_native_id()
    assert niceness > 0


def test_faiss_uses_one_thread_in_the_background():
    before = faiss.omp_get_max_threads()
    try:
        faiss.omp_set_num_threads(3)
        use_one_thread()
        assert faiss.omp_get_max_threads() == 1
    finally:
        faiss.omp_set_num_threads(before)


@pytest.mark.parametrize('count', [1, 2, 3])
def test_results_are_the_nearest_for_any_count(rng, count):
    rows = random_rows(rng, 4)
    index = DescriptorIndex(DIM, brute_force_bytes=2**30)
    index.extend(rows)
    for query in random_rows(rng, 20):
        distances = np.linalg.norm(rows - query, axis=1)
        ids, found = index.search(query, count, np.ones(4, bool))
        assert ids.tolist() == np.argsort(distances)[:count].tolist()
        np.testing.assert_allclose(found, np.sort(distances)[:count], rtol=1e-5)


def test_the_defaults_of_the_index_are_those_of_the_database():
    """Benchmarks use the index alone, and must measure what the node runs."""
    parameters = inspect.signature(DescriptorIndex).parameters
    config = DatabaseConfig()
    assert parameters['nprobe_fraction'].default == config.nprobe_fraction
    assert parameters['rerank_k'].default == config.rerank_k


@pytest.mark.parametrize('codes', sorted(CODES))
@pytest.mark.parametrize('dim', [DIM, 160])
def test_the_memory_of_an_index_is_what_faiss_stores(rng, codes, dim):
    rows = random_rows(rng, 3000, dim)
    coarse = CoarseIndex(rows, cells_for(3000), codes)
    assert code_bytes(dim, codes) == coarse._index.code_size + 8
    coarse.add(rows)
    stored = len(faiss.serialize_index(coarse._index)) + 4 * dim * min(dim, 96)
    assert coarse.nbytes == pytest.approx(stored, abs=2000)  # the range of every code, headers
    index = DescriptorIndex(dim, brute_force_bytes=0, codes=codes)
    index.extend(rows)
    assert index.nbytes == rows.nbytes
    index.build_if_due()
    assert index.wait(60.0)
    assert index.nbytes == rows.nbytes + coarse.nbytes
    assert index.max_bytes_per_row == 4 * dim + 2 * 2 * code_bytes(dim, codes)


@pytest.mark.parametrize(('count', 'cells'), [(0, 1), (3, 1), (4, 2), (10**6, 1000)])
def test_the_number_of_cells_is_the_square_root(count, cells):
    assert cells_for(count) == cells


def test_the_projection_preserves_lengths():
    P = projection(160, 96)
    np.testing.assert_allclose(P.T @ P, np.eye(96), atol=1e-5)
    np.testing.assert_array_equal(projection(DIM, DIM), np.eye(DIM))


@pytest.mark.parametrize(
    ('nprobe_fraction', 'exhaustive_codes', 'visited'),
    [(0.0, 0, 1 / 20), (0.25, 0, 0.25), (0.26, 0, 0.3), (1.0, 0, 1.0), (0.1, 200, 0.5)],
)
def test_a_query_visits_the_given_fraction_of_the_cells(
    rng, monkeypatch, nprobe_fraction, exhaustive_codes, visited
):
    monkeypatch.setattr(faiss_index, 'EXHAUSTIVE_CODES', exhaustive_codes)
    rows = random_rows(rng, 400)
    coarse = CoarseIndex(rows, 20)
    coarse.add(rows)
    cell_of = coarse._quantizer.assign(rows, 1).ravel()
    eligible = rng.random(400) < 0.9
    for query in rows[:5]:
        ids = coarse.candidates(query, 400, eligible, nprobe_fraction)
        assert eligible[ids].all()
        cells = set(cell_of[ids])
        assert len(cells) == math.ceil(visited * 20)
        expected = np.flatnonzero(eligible & np.isin(cell_of, list(cells)))
        assert sorted(ids) == expected.tolist()
