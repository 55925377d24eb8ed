"""Calibration: a decreasing, accurate probability, and distances of given precision."""

import json

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from lpr_ros.core.errors import ConfigError, DatasetError
from lpr_ros.core.model.calibration import Calibration
from lpr_training.train.calibration import (
    _by_distance,
    _pool,
    distance_at_precision,
    fit_calibration,
)


def make_pairs(seed=0, count=4000):
    rng = np.random.default_rng(seed)
    distances = rng.uniform(0, 2, count)
    return distances, rng.random(count) < true_probability(distances)


def true_probability(distances):
    return 1 / (1 + np.exp(8 * (distances - 0.9)))


def test_probability_decreases_and_is_close_to_the_truth():
    table = fit_calibration(*make_pairs())
    grid = np.linspace(0, 2.5, 300)
    fitted = np.array([table.probability(x) for x in grid])
    assert (np.diff(fitted) <= 0).all()
    error = np.abs(fitted - true_probability(grid))[grid < 2]
    assert error.mean() < 0.02
    assert error.max() < 0.15
    assert len(table.distances) <= 32
    assert (table.pairs, table.radius_m) == (4000, 5.0)


def test_probabilities_hold_on_new_pairs():
    table = fit_calibration(*make_pairs(0))
    distances, is_same = make_pairs(1)
    predicted = np.array([table.probability(x) for x in distances])
    for low in (0.0, 0.2, 0.5, 0.8):
        chosen = (predicted >= low) & (predicted < low + 0.2)
        assert is_same[chosen].mean() == pytest.approx(predicted[chosen].mean(), abs=0.06)


def test_pooling_equals_isotonic_regression():
    distances, is_same = make_pairs(2, 300)
    blocks = _by_distance(distances, is_same)
    order = np.argsort(distances)
    expected = isotonic_regression(is_same[order].astype(float), increasing=False).x
    levels = np.unique(expected)[::-1]
    counts = [(expected == level).sum() for level in levels]
    pooled = _pool(blocks, lambda b: b.same / b.pairs)
    np.testing.assert_allclose([b.same / b.pairs for b in pooled], levels)
    assert [b.pairs for b in pooled] == counts


def test_few_pairs_are_never_certain():
    table = fit_calibration(np.array([0.1, 0.2, 0.9]), np.array([True, True, False]))
    assert table.probability(0.15) == pytest.approx(3 / 4)
    assert table.probability(0.9) == pytest.approx(1 / 3)
    assert table.probability(99.0) == pytest.approx(1 / 3)


def test_distance_at_precision_on_a_hand_computed_case():
    distances = np.arange(10) / 10
    is_same = np.array([1, 1, 1, 0, 1, 1, 1, 1, 1, 0], dtype=bool)
    assert distance_at_precision(distances, is_same, 0.99) == pytest.approx(0.2)
    assert distance_at_precision(distances, is_same, 0.85) == pytest.approx(0.8)
    assert distance_at_precision(distances, is_same, 0.5) == pytest.approx(0.9)
    assert distance_at_precision(distances, ~is_same, 0.5) == 0.0


def test_distance_at_precision_does_not_split_ties():
    distances = np.array([0.1, 0.2, 0.2, 0.2])
    is_same = np.array([True, True, False, False])
    assert distance_at_precision(distances, is_same, 0.99) == pytest.approx(0.1)


def test_higher_precision_needs_smaller_distances():
    table = fit_calibration(*make_pairs())
    assert (
        0
        <= table.distance_at_999_permille
        <= table.distance_at_99_percent
        <= table.distance_at_90_percent
    )


def test_calibration_survives_json():
    table = fit_calibration(*make_pairs())
    assert Calibration.from_dict(json.loads(json.dumps(table.to_dict()))) == table


@pytest.mark.parametrize(
    ('distances', 'probabilities'),
    [((0.0, 1.0), (0.5,)), ((1.0, 0.0), (0.9, 0.1)), ((0.0, 1.0), (0.1, 0.9)), ((), ())],
)
def test_calibration_rejects_invalid_tables(distances, probabilities):
    with pytest.raises(ConfigError, match='Calibration'):
        Calibration(distances=distances, probabilities=probabilities)


def test_fit_calibration_rejects_invalid_pairs():
    with pytest.raises(DatasetError, match='got 0 distances'):
        fit_calibration(np.zeros(0), np.zeros(0, dtype=bool))
    with pytest.raises(DatasetError, match='needs finite distances'):
        fit_calibration(np.array([np.nan]), np.array([True]))
