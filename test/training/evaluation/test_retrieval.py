"""Nearest-neighbor search against a loop, ground truth radii, and the protocol kitti_bev."""

import json
from pathlib import Path

import numpy as np
import pytest

from lpr_ros.core.errors import DatasetError
from lpr_training.evaluation import retrieval
from lpr_training.evaluation.kitti_bev import default_ranges, evaluate_kitti_bev, parse_range
from lpr_training.evaluation.retrieval import nearest, nearest_before, true_hits

DRIVE = Path(__file__).resolve().parents[4] / 'shared' / 'data' / 'kitti_bev_05.npz'


@pytest.fixture(params=[2**26, 4000], ids=['one chunk', 'many chunks'])
def _chunked(request, monkeypatch):
    monkeypatch.setattr(retrieval, 'CHUNK_BYTES', request.param)


@pytest.mark.usefixtures('_chunked')
@pytest.mark.parametrize('dim', [3, 256])
def test_nearest_equals_the_loop(dim):
    rng = np.random.default_rng(dim)
    database = (rng.normal(size=(70, dim)) + 100).astype(np.float32)
    queries = (rng.normal(size=(31, dim)) + 100).astype(np.float32)
    indices, distances = nearest(queries, database, 5)
    for q, query in enumerate(queries.astype(np.float64)):
        expected = np.linalg.norm(database.astype(np.float64) - query, axis=1)
        np.testing.assert_array_equal(indices[q], np.argsort(expected)[:5])
        np.testing.assert_allclose(distances[q], np.sort(expected)[:5], rtol=1e-9)


def test_nearest_puts_duplicates_at_zero_and_breaks_ties_by_index():
    database = np.random.default_rng(0).normal(size=(20, 8192)).astype(np.float32)
    database[11] = database[4]
    indices, distances = nearest(database[4:5], database, 3)
    assert indices[0, :2].tolist() == [4, 11]
    assert distances[0, :2].tolist() == [0.0, 0.0]


def test_nearest_returns_fewer_columns_for_a_small_database():
    some = np.ones((3, 4))
    assert nearest(some, some[:2], 25)[0].shape == (3, 2)
    assert nearest(some, some[:0], 25)[0].shape == (3, 0)


@pytest.mark.usefixtures('_chunked')
def test_nearest_before_searches_only_the_candidates():
    x = np.random.default_rng(2).normal(size=(40, 6))
    ends = np.maximum(np.arange(40) - 7, 0)
    indices, distances = nearest_before(x, ends)
    for q in range(40):
        if ends[q] == 0:
            assert indices[q] == -1
            assert distances[q] == np.inf
        else:
            expected = np.linalg.norm(x[: ends[q]] - x[q], axis=1)
            assert indices[q] == expected.argmin()
            assert distances[q] == pytest.approx(expected.min())


def test_nearest_reports_the_row_of_a_nan():
    bad = np.ones((5, 3))
    bad[2, 1] = np.nan
    with pytest.raises(DatasetError, match='the first is row 2'):
        nearest(np.ones((1, 3)), bad, 1)


def test_true_hits_includes_the_radius_and_ignores_height():
    database = np.array([[0, 0, 0], [3, 4, 50], [3.001, 4, 0]], dtype=float)
    hits, counts = true_hits(np.array([[1, 2, 0]]), np.zeros((1, 3)), database, 5.0)
    assert hits.tolist() == [[True, False, True]]
    assert counts.tolist() == [2]


def make_drive():
    """Ten frames 10 m apart, then two revisits, one wrong match and one new place."""
    positions = np.array([[10.0 * i, 0] for i in range(10)] + [[1, 0], [11, 3], [19, 0], [500, 0]])
    descriptors = np.concatenate([np.eye(10), np.eye(10)[[0, 1, 7, 3]] + 0.01])
    return descriptors, positions


def test_evaluate_kitti_bev_on_a_hand_computed_case():
    descriptors, positions = make_drive()
    result = evaluate_kitti_bev(descriptors, positions, range(0, 10), range(10, 14))
    assert result.recall_at_1 == pytest.approx(2 / 3)
    assert (result.queries, result.queries_skipped) == (3, 1)
    assert result.query_frames.tolist() == [10, 11, 12]
    assert result.match_frames.tolist() == [0, 1, 7]
    assert result.is_correct.tolist() == [True, True, False]
    written = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert written['recall_at_1'] == result.recall_at_1
    assert written['match_frames'] == [0, 1, 7]


def test_evaluate_kitti_bev_returns_frame_numbers_of_the_drive():
    descriptors, positions = make_drive()
    result = evaluate_kitti_bev(descriptors, positions, range(1, 10), range(10, 14))
    assert result.match_frames[result.query_frames == 11].tolist() == [1]
    assert 10 not in result.query_frames  # its only true neighbor, frame 0, is not in the database


def test_kitti_bev_frame_ranges():
    assert default_ranges('kitti_bev_05') == (range(0, 1000), range(1200, 2751))
    assert default_ranges('00') == (range(0, 3000), range(3200, 4541))
    assert parse_range('1200:2751') == range(1200, 2751)
    with pytest.raises(DatasetError, match='only for sequences'):
        default_ranges('kitti_bev_11')
    for text in ('5', '7:3', 'a:b', '-1:4'):
        with pytest.raises(DatasetError, match='expected start:stop'):
            parse_range(text)
    descriptors, positions = make_drive()
    with pytest.raises(DatasetError, match='query frames 10:15 exceed 0:14'):
        evaluate_kitti_bev(descriptors, positions, range(0, 10), range(10, 15))


def test_recall_without_queries_is_null_in_json():
    descriptors, positions = make_drive()
    result = evaluate_kitti_bev(descriptors, positions, range(0, 10), range(13, 14))
    assert result.queries == 0
    assert result.to_dict()['recall_at_1'] is None


@pytest.mark.skipif(not DRIVE.exists(), reason=f'{DRIVE} not found')
def test_positions_as_descriptors_have_full_recall_on_kitti_05():
    with np.load(DRIVE) as data:
        positions = data['T_world_sensor'][:, :2, 3]
    result = evaluate_kitti_bev(positions, positions, *default_ranges('kitti_bev_05'))
    assert result.recall_at_1 == 1.0
    assert 0 < result.queries < 1551
