"""Metrics on hand-computed cases, against loops, and with zero denominators."""

import numpy as np
import pytest

from lpr_ros.core.offline.precision_recall import count_detections, sweep_detections
from lpr_training.evaluation.metrics import (
    average_precision_at,
    mean_average_precision_curve,
    mean_reciprocal_rank,
    one_percent_cutoff,
    recall_at,
    recall_curve,
)

HITS = np.array([[0, 1, 0], [1, 0, 1], [0, 0, 0]], dtype=bool)
NONE = np.zeros((0, 3), dtype=bool)


def test_recall_on_a_hand_computed_case():
    assert recall_at(HITS, 1) == pytest.approx(1 / 3)
    assert recall_at(HITS, 2) == pytest.approx(2 / 3)
    assert recall_at(HITS, 99) == pytest.approx(2 / 3)
    np.testing.assert_allclose(recall_curve(HITS), [1 / 3, 2 / 3, 2 / 3])


def test_reciprocal_rank_counts_or_omits_misses():
    assert mean_reciprocal_rank(HITS) == pytest.approx((0.5 + 1 + 0) / 3)
    assert mean_reciprocal_rank(HITS, omit_misses=True) == pytest.approx(0.75)


@pytest.mark.parametrize(
    ('size', 'cutoff'),
    [(1, 1), (49, 1), (50, 1), (150, 2), (250, 2), (251, 3), (350, 4), (2500, 25), (9000, 25)],
)
def test_one_percent_rounds_half_to_even(size, cutoff):
    assert one_percent_cutoff(size) == cutoff


def test_average_precision_on_a_hand_computed_case():
    counts = np.array([1, 3, 2])
    np.testing.assert_allclose(average_precision_at(HITS, counts, 1), [0, 1, 0])
    np.testing.assert_allclose(average_precision_at(HITS, counts, 2), [0.5, 0.5, 0])
    np.testing.assert_allclose(average_precision_at(HITS, counts, 3), [0.5, (1 + 2 / 3) / 3, 0])
    np.testing.assert_allclose(mean_average_precision_curve(HITS, counts, 2), [1 / 3, 1 / 3])


def test_average_precision_omits_queries_without_a_true_neighbor():
    curve = mean_average_precision_curve(HITS, np.array([1, 3, 0]), 1)
    np.testing.assert_allclose(curve, [0.5])
    assert np.isnan(average_precision_at(HITS, np.array([1, 3, 0]), 1)[2])


def test_metrics_without_queries_are_nan():
    assert np.isnan(recall_at(NONE, 1))
    assert np.isnan(recall_curve(NONE)).all()
    assert np.isnan(mean_reciprocal_rank(NONE))
    assert np.isnan(mean_reciprocal_rank(HITS[2:], omit_misses=True))
    assert mean_reciprocal_rank(HITS[2:]) == 0.0
    assert np.isnan(mean_average_precision_curve(NONE, np.array([], dtype=int), 3)).all()


def make_matches(seed, count=60):
    rng = np.random.default_rng(seed)
    is_revisit = rng.random(count) < 0.6
    is_correct = is_revisit & (rng.random(count) < 0.7)
    distances = np.round(rng.uniform(0, 1.2, count) - 0.3 * is_correct, 2).clip(0)  # with ties
    return distances, is_correct, is_revisit


@pytest.mark.parametrize('seed', range(5))
def test_counters_follow_the_wild_places_rules(seed):
    distances, is_correct, is_revisit = make_matches(seed)
    thresholds = np.linspace(0, 1, 1000)
    counts = count_detections(distances, is_correct, is_revisit, thresholds)
    for i in range(0, 1000, 37):
        tp = fp = fn = tn = 0
        for d, correct, revisit in zip(distances, is_correct, is_revisit, strict=True):
            if d < thresholds[i]:
                tp, fp = tp + bool(correct), fp + (not correct)
            else:
                fn, tn = fn + bool(revisit), tn + (not revisit)
        assert (counts.tp[i], counts.fp[i], counts.fn[i], counts.tn[i]) == (tp, fp, fn, tn)


def test_detection_threshold_is_exclusive():
    one = np.array([True])
    counts = count_detections(np.array([0.5]), one, one, np.array([0.5, 0.6]))
    assert counts.tp.tolist() == [0, 1]


def test_detection_curves_on_a_hand_computed_case():
    # nearest first: correct, correct, wrong at a new place, correct, wrong at a revisit
    distances = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    is_correct = np.array([1, 1, 0, 1, 0], dtype=bool)
    is_revisit = np.array([1, 1, 0, 1, 1], dtype=bool)
    swept = sweep_detections(distances, is_correct, is_revisit)
    np.testing.assert_allclose(swept.recall(), [0, 0.25, 0.5, 0.5, 0.75, 0.75])
    np.testing.assert_allclose(swept.precision(), [1, 1, 1, 2 / 3, 3 / 4, 3 / 5])
    assert swept.recall_at_full_precision() == 0.5
    assert swept.f1_max() == pytest.approx(0.75)
    assert swept.tn.tolist() == [1, 1, 1, 0, 0, 0]
    official = count_detections(distances, is_correct, is_revisit, np.array([0.45, 9.0]))
    np.testing.assert_allclose(
        official.recall(), [0.75, 1.0]
    )  # there, the wrong match is not a FN


@pytest.mark.parametrize('seed', range(5))
def test_sweep_finds_the_best_of_all_thresholds(seed):
    distances, is_correct, is_revisit = make_matches(seed)
    swept = sweep_detections(distances, is_correct, is_revisit)
    best, clean = 0.0, 0.0
    for threshold in [*distances, 0.0, 9.0]:
        detected = distances <= threshold
        tp, fp = (detected & is_correct).sum(), (detected & ~is_correct).sum()
        best = max(best, 2 * tp / (tp + fp + is_revisit.sum()))
        clean = max(clean, tp / is_revisit.sum() if fp == 0 else 0)
    assert swept.f1_max() == pytest.approx(best)
    assert swept.recall_at_full_precision() == pytest.approx(clean)


def test_perfect_and_hopeless_detection():
    distances = np.array([0.1, 0.2, 0.8, 0.9])
    revisit = np.array([1, 1, 0, 0], dtype=bool)
    perfect = sweep_detections(distances, revisit, revisit)
    assert perfect.f1_max() == 1.0
    assert perfect.recall_at_full_precision() == 1.0
    assert perfect.roc_area() == 1.0
    np.testing.assert_array_equal(perfect.false_positive_rate(), [0.0, 0.0, 0.0, 0.5, 1.0])
    hopeless = sweep_detections(distances, np.zeros(4, dtype=bool), revisit)
    assert hopeless.f1_max() == 0.0
    assert hopeless.recall_at_full_precision() == 0.0


def test_roc_area_on_a_hand_computed_case():
    """The curve runs through (0, 0), (0, 1/2), (1/2, 1/2), (1/2, 1) and (1, 1)."""
    distances = np.array([0.1, 0.2, 0.3, 0.4])
    revisit = np.array([1, 0, 1, 0], dtype=bool)
    swept = sweep_detections(distances, revisit, revisit)
    np.testing.assert_allclose(swept.false_positive_rate(), [0.0, 0.0, 0.5, 0.5, 1.0])
    np.testing.assert_allclose(swept.recall(), [0.0, 0.5, 0.5, 1.0, 1.0])
    assert swept.roc_area() == pytest.approx(0.75)
    reversed_order = count_detections(distances, revisit, revisit, swept.thresholds[::-1])
    assert reversed_order.roc_area() == pytest.approx(0.75)
    tied = sweep_detections(np.full(4, 0.2), revisit, revisit)
    assert tied.roc_area() == pytest.approx(0.5)  # the diagonal


def test_rates_without_any_case_are_defined():
    one = np.array([True])
    only_revisits = sweep_detections(np.array([0.5]), one, one)
    assert only_revisits.false_positive_rate().tolist() == [0.0, 0.0]
    no_revisits = sweep_detections(np.array([0.5]), ~one, ~one)
    assert no_revisits.recall().tolist() == [0.0, 0.0]
    assert no_revisits.precision().tolist() == [1.0, 0.0]
    assert no_revisits.recall_at_full_precision() == 0.0
    assert no_revisits.f1_max() == 0.0


def test_detection_without_queries_or_candidates():
    nothing = np.zeros(0, dtype=bool)
    assert sweep_detections(np.zeros(0), nothing, nothing).f1_max() == 0.0
    never = sweep_detections(np.full(3, np.inf), np.zeros(3, dtype=bool), np.ones(3, dtype=bool))
    assert never.f1_max() == 0.0
    assert never.recall_at_full_precision() == 0.0
