"""The expected calibration error and its reliability diagram."""

import math

import numpy as np

from lpr_training.evaluation.reliability import error_of_honest, reliability
from lpr_training.figures import plot_reliability


def test_honest_probabilities_have_almost_no_error():
    rng = np.random.default_rng(0)
    p = rng.random(20_000)
    diagram = reliability(p, rng.random(len(p)) < p)
    assert diagram.error < 0.02
    assert diagram.counts.sum() == len(p)
    assert abs(diagram.error - error_of_honest(p)) < 0.01


def test_the_error_is_the_mean_gap():
    p = np.array([0.95, 0.95, 0.05, 1.0])
    is_true = np.array([True, False, False, True])
    diagram = reliability(p, is_true)
    assert diagram.counts[[0, 9]].tolist() == [1, 3]
    gap = abs((0.95 + 0.95 + 1.0) - 2.0)
    assert math.isclose(diagram.error, (gap + 0.05) / 4)


def test_few_predictions_show_little():
    p = np.full(20, 0.5)
    assert error_of_honest(p) > 0.05
    assert math.isnan(reliability(np.zeros(0), np.zeros(0, bool)).error)


def test_the_figure_has_a_panel_per_set():
    diagram = reliability(np.array([0.1, 0.9]), np.array([False, True]))
    columns = (diagram.predicted, diagram.observed, diagram.counts)
    figure = plot_reliability({'a': {'x': columns, 'y': columns}, 'b': {'x': columns}})
    assert [axes.get_title() for axes in figure.axes] == ['a', 'b']
