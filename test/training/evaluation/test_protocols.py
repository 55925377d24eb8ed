"""Protocols on hand-computed cases and against straightforward loops."""

import json
from pathlib import Path

import numpy as np
import pytest

from lpr_ros.core.errors import DatasetError
from lpr_training.evaluation.between_runs import (
    Run,
    evaluate_oxford,
    evaluate_pair,
    evaluate_runs,
    evaluate_wild_places_inter,
)
from lpr_training.evaluation.retrieval import exclude_recent, find_revisits
from lpr_training.evaluation.sequence import evaluate_sequence, score_sequence
from lpr_training.evaluation.wild_places_intra import evaluate_wild_places_intra
from lpr_training.evaluation.worlds import evaluate_world

OXFORD = Path(__file__).resolve().parents[4] / 'shared' / 'data' / 'protocol_oxford.npz'
SECOND = 1_000_000_000


def make_runs(seed=0, count=3, length=130, noise=15.0):
    rng = np.random.default_rng(seed)
    runs = []
    for i in range(count):
        positions = rng.uniform(0, 400, (length + 10 * i, 2))
        descriptors = positions + rng.normal(0, noise, positions.shape)
        runs.append(Run(f'run{i}', descriptors, positions, rng.random(len(positions)) < 0.5))
    return runs


def slow_pair(database, query, radius):
    """Loop over the queries like the script of the benchmark."""
    first_hits, one_percent, reciprocal, skipped = np.zeros(25), 0, [], 0
    cutoff = max(round(len(database.descriptors) / 100), 1)
    for q in np.flatnonzero(query.is_query):
        apart = np.linalg.norm(database.positions - query.positions[q], axis=1)
        true = set(np.flatnonzero(apart <= radius))
        if not true:
            skipped += 1
            continue
        order = np.argsort(np.linalg.norm(database.descriptors - query.descriptors[q], axis=1))
        ranks = [r for r, j in enumerate(order[:25]) if j in true]
        reciprocal.append(1 / (ranks[0] + 1) if ranks else 0.0)
        if ranks:
            first_hits[ranks[0]] += 1
            one_percent += ranks[0] < cutoff
    queries = len(reciprocal)
    return np.cumsum(first_hits) / queries, one_percent / queries, reciprocal, skipped


@pytest.mark.parametrize('seed', range(3))
def test_evaluate_pair_equals_the_loop(seed):
    database, query = make_runs(seed)[:2]
    result = evaluate_pair(database, query, 25.0)
    recall, one_percent, reciprocal, skipped = slow_pair(database, query, 25.0)
    np.testing.assert_allclose(result.recall, recall)
    assert result.recall_at_one_percent == pytest.approx(one_percent)
    assert result.mrr == pytest.approx(np.mean(reciprocal))
    assert result.mrr_official == pytest.approx(np.mean([r for r in reciprocal if r > 0]))
    assert (result.queries, result.queries_skipped) == (len(reciprocal), skipped)
    assert skipped > 0


def test_evaluate_oxford_averages_pairs_without_weights():
    runs = make_runs(1)
    result = evaluate_oxford(runs)
    pairs = [slow_pair(a, b, 25.0) for a in runs for b in runs if a is not b]
    assert result.pairs == 6
    np.testing.assert_allclose(result.recall, np.mean([p[0] for p in pairs], axis=0))
    assert result.recall_at_one_percent == pytest.approx(np.mean([p[1] for p in pairs]))
    assert result.recall_at_1 == result.recall[0]
    assert result.map_curve[0] == pytest.approx(result.recall_at_1)  # MAP@1 is recall@1
    written = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert written['details'][0]['database'] == 'run0'


def test_wild_places_radius_is_three_meters():
    positions = np.array([[0.0, 0], [100, 0]])
    first = Run('a', positions, positions, np.ones(2, dtype=bool))
    second = Run('b', positions, np.array([[2.9, 0], [103.1, 0]]), np.ones(2, dtype=bool))
    result = evaluate_wild_places_inter([first, second])
    assert result.queries == 2  # one per direction; the others are 3.1 m off
    assert result.mrr == result.mrr_official == 1.0


def test_evaluate_runs_omits_pairs_without_true_neighbors():
    a, b = make_runs(2, count=2)
    far = Run('far', b.descriptors, b.positions + 1e5, b.is_query)
    assert evaluate_runs([a, b, far], 25.0).pairs_skipped == 4
    np.testing.assert_allclose(
        evaluate_runs([a, b, far], 25.0).recall, evaluate_runs([a, b], 25.0).recall
    )
    with pytest.raises(DatasetError, match='no query'):
        evaluate_runs([a, far], 25.0)
    with pytest.raises(DatasetError, match='at least two runs'):
        evaluate_runs([a], 25.0)


def test_recall_curve_of_a_small_database_has_25_values():
    a, b = make_runs(3, count=2)
    small = Run('small', a.descriptors[:7], a.positions[:7], a.is_query[:7])
    assert evaluate_pair(small, b, 100.0).recall.shape == (25,)


@pytest.mark.skipif(not OXFORD.exists(), reason=f'{OXFORD} not found')
def test_oxford_evaluates_the_published_queries():
    """All 506 pairs evaluate exactly the queries of the published sets."""
    with np.load(OXFORD) as data:
        database, queries, truth = data['database'], data['queries'], data['true_neighbours']
    published = {tuple(row) for row in queries.tolist()}
    is_query = np.array([tuple(row) in published for row in database.tolist()])
    rows = [database[:, 0] == r for r in np.unique(database[:, 0])]
    runs = [
        Run(str(i), database[row, 1:], database[row, 1:], is_query[row])
        for i, row in enumerate(rows)
    ]
    result = evaluate_oxford(runs)
    expected = np.unique(truth[:, :2], axis=0)
    expected = expected[queries[expected[:, 0], 0].astype(int) != expected[:, 1]]
    assert result.pairs == 506
    assert result.queries == len(expected)
    assert result.recall_at_1 == 1.0


def test_exclude_recent_boundaries_are_exact():
    positions = np.array([[0.0, 0], [1, 0], [3, 0], [3, 0], [7, 0]])
    assert exclude_recent('frames', 2, positions).tolist() == [0, 0, 1, 2, 3]
    stamps = np.array([0, 1, 3, 3, 7]) * SECOND
    assert exclude_recent('time', 3.0, positions, stamps).tolist() == [0, 0, 1, 1, 4]
    assert exclude_recent('distance', 3.0, positions).tolist() == [0, 0, 1, 1, 4]
    assert exclude_recent('frames', 0, positions).tolist() == [
        0,
        1,
        2,
        3,
        4,
    ]  # never the frame itself


def test_find_revisits_includes_the_radius_by_default():
    positions = np.array([[0.0, 0], [3, 4], [9, 0], [0, 1]])
    ends = exclude_recent('frames', 1, positions)
    assert find_revisits(positions, ends, 5.0).tolist() == [False, True, False, True]
    strict = find_revisits(positions, ends, 5.0, inclusive=False)
    assert strict.tolist() == [False, False, False, True]
    assert not find_revisits(positions, ends * 0, 1e9).any()  # no candidates


def test_exclude_recent_rejects_invalid_settings():
    positions = np.zeros((3, 2))
    with pytest.raises(DatasetError, match='backwards after frame 1'):
        exclude_recent('time', 1.0, positions, np.array([0, 5, 4]))
    with pytest.raises(DatasetError, match='needs 3 stamps, got none'):
        exclude_recent('time', 1.0, positions)
    with pytest.raises(DatasetError, match='a unit among'):
        exclude_recent('laps', 1.0, positions)


def make_drive(seed=0, count=400):
    """Two and a half noisy laps; descriptors are noisy positions."""
    rng = np.random.default_rng(seed)
    angle = np.linspace(0, 5 * np.pi, count)
    positions = 60 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    positions += rng.normal(0, 1, positions.shape)
    descriptors = positions / 300 + rng.normal(0, 0.03, positions.shape)
    stamps = (np.arange(count) * 5 + rng.integers(0, 3, count)) * SECOND
    return descriptors, positions, stamps


@pytest.mark.parametrize('seed', range(3))
def test_evaluate_sequence_equals_the_loop(seed):
    descriptors, positions, _ = make_drive(seed)
    result = evaluate_sequence(
        descriptors, positions, exclude_recent('frames', 50, positions), 4.0
    )
    rows = []
    for q in range(50, len(positions)):
        past = np.arange(q - 50 + 1)
        apart = np.linalg.norm(positions[past] - positions[q], axis=1)
        distance = np.linalg.norm(descriptors[past] - descriptors[q], axis=1)
        rows.append((distance.min(), apart[distance.argmin()] <= 4, (apart <= 4).any()))
    distance, correct, revisit = map(np.array, zip(*rows, strict=True))
    assert (result.queries, result.revisits) == (len(rows), revisit.sum())
    assert result.recall_at_1 == pytest.approx(correct.sum() / revisit.sum())
    f1 = {
        t: 2 * (correct & (distance <= t)).sum() / ((distance <= t).sum() + revisit.sum())
        for t in distance
    }
    assert result.f1_max == pytest.approx(max(f1.values()))
    detected = result.match_distances < result.threshold_at_f1_max
    f1_at_threshold = 2 * (correct & detected).sum() / (detected.sum() + revisit.sum())
    assert f1_at_threshold == pytest.approx(result.f1_max)
    json.dumps(result.to_dict(), allow_nan=False)


def test_score_sequence_on_a_hand_computed_case():
    positions = np.array([[0.0, 0], [50, 0], [100, 0], [1, 0], [51, 0], [300, 0]])
    ends = np.array([0, 0, 0, 2, 2, 2])
    matches, distances = np.array([-1, -1, -1, 0, 0, 1]), np.array([9, 9, 9, 0.1, 0.3, 0.2])
    result = score_sequence(matches, distances, positions, ends, 4.0)
    assert result.is_correct.tolist() == [True, False, False]
    assert result.is_revisit.tolist() == [True, True, False]
    assert result.recall_at_1 == 0.5
    assert result.recall_at_full_precision == 0.5
    assert result.f1_max == pytest.approx(2 * 1 / (1 + 2))


def test_evaluate_sequence_without_revisits():
    positions = np.arange(20.0)[:, None] * [100, 0]
    result = evaluate_sequence(positions, positions, exclude_recent('frames', 5, positions), 4.0)
    assert result.revisits == 0
    assert result.f1_max == 0.0
    assert result.to_dict()['recall_at_1'] is None


def slow_intra(descriptors, positions, stamps_s, official):
    """The loop of the published script, with its off-by-one if `official`."""
    thresholds = np.linspace(0, 1, 1000)
    tp, fp, fn, tn = np.zeros((4, 1000), dtype=int)
    revisits = matched = 0
    for q in range(len(stamps_s)):
        if stamps_s[q] - stamps_s[0] < 600:
            continue
        tt = next(i for i in range(len(stamps_s)) if stamps_s[i] > stamps_s[q] - 600)
        past = np.arange(tt + 1 if official else tt)
        apart = np.linalg.norm(positions[past] - positions[q], axis=1)
        distance = np.linalg.norm(descriptors[past] - descriptors[q], axis=1)
        revisit, correct = (apart < 3).any(), apart[distance.argmin()] < 3
        revisits, matched = revisits + revisit, matched + correct
        for i, threshold in enumerate(thresholds):
            if distance.min() < threshold:
                tp[i], fp[i] = tp[i] + correct, fp[i] + (not correct)
            else:
                fn[i], tn[i] = fn[i] + revisit, tn[i] + (not revisit)
    f1 = [2 * a / (2 * a + b + c) for a, b, c in zip(tp, fp, fn, strict=True) if a > 0]
    return tp, fp, fn, tn, max(f1), matched / revisits


@pytest.mark.parametrize('official', [False, True])
def test_wild_places_intra_equals_the_script(official):
    descriptors, positions, stamps = make_drive(4, 300)
    result = evaluate_wild_places_intra(descriptors, positions, stamps, official_window=official)
    tp, fp, fn, tn, f1, recall = slow_intra(descriptors, positions, stamps / SECOND, official)
    for name, expected in (('tp', tp), ('fp', fp), ('fn', fn), ('tn', tn)):
        np.testing.assert_array_equal(getattr(result.counts, name), expected)
    assert result.f1_max == pytest.approx(f1)
    assert result.recall_at_1 == pytest.approx(recall)
    json.dumps(result.to_dict(), allow_nan=False)


def test_official_window_admits_one_recent_frame():
    positions = np.array([[500.0, 0], [0, 0], [0, 0]])
    stamps = np.array([0, 500, 600]) * SECOND
    descriptors = np.array([[0.9], [0.0], [0.0]])

    def revisits(official):
        return evaluate_wild_places_intra(
            descriptors, positions, stamps, official_window=official
        ).revisits

    assert (revisits(False), revisits(True)) == (0, 1)


def test_wild_places_intra_radius_is_exclusive():
    positions = np.array([[0.0, 0], [3, 0], [2.999, 0]])
    stamps = np.array([0, 600, 700]) * SECOND
    result = evaluate_wild_places_intra(np.zeros((3, 1)), positions, stamps)
    assert (result.queries, result.revisits) == (2, 1)
    assert result.recall_at_1 == 1.0


def test_drive_shorter_than_the_exclusion_has_no_queries():
    positions = np.zeros((5, 2))
    result = evaluate_sequence(positions, positions, exclude_recent('frames', 9, positions), 4.0)
    assert result.queries == 0
    assert result.f1_max == 0.0
    json.dumps(result.to_dict(), allow_nan=False)


def test_evaluate_world_reports_opposite_headings_separately():
    # Two drives along one street. The second half of b heads the opposite way, with the
    # descriptors of other places.
    xy = np.column_stack([np.arange(0.0, 200.0, 10.0), np.zeros(20)])
    all_queries = np.ones(20, dtype=bool)
    forward = np.tile([1.0, 0.0, 0.0], (20, 1))
    headings_b = forward * np.where(np.arange(20) < 10, 1.0, -1.0)[:, None]
    confused = xy + np.where(np.arange(20) < 10, 0.0, -1000.0)[:, None] * [1.0, 0.0]
    result = evaluate_world(
        [Run('a', xy, xy, all_queries), Run('b', confused, xy, all_queries)],
        [forward, headings_b],
        4.0,
    )
    # Each drive recognizes the first half of the other and nothing of the second.
    assert (result.queries, result.queries_opposite) == (40, 20)
    assert result.pairs[0].database == 'a'
    assert result.recall_at_1 == pytest.approx(20 / 40)
    assert result.recall_at_1_opposite == 0.0
    with pytest.raises(DatasetError, match='at least two drives'):
        evaluate_world([Run('a', xy, xy, all_queries)], [forward], 4.0)
