"""The mixture behind match probabilities: laws that hold for any descriptor."""

import numpy as np
import pytest

from lpr_ros.core.retrieval.match_probability import ENOUGH, MEMORY, RIGHT_SHARE, MatchStatistics

DIMENSION = 12.0
WARM_UP = 100  # queries until the share of right matches is known


def wrong_margins(rng, count):
    """The law of Renyi: the nearest of many wrong places is hardly nearer than the next."""
    return rng.exponential(1.0 / DIMENSION, count)


def learned(rng, wrong=400, queries=400, right_share=0.3, right_margin=0.8):
    """Statistics of a drive in which a known share of the queries are right."""
    statistics = MatchStatistics()
    for margin in wrong_margins(rng, wrong):
        statistics.add_wrong(margin, 1.0)
    is_right = rng.random(queries) < right_share
    margins = np.where(
        is_right, rng.gamma(2.0, right_margin / 2.0, queries), wrong_margins(rng, queries)
    )
    probabilities = []
    for margin in margins:
        statistics.add_query(margin, 1.0, 0.0)
        probabilities.append(float(statistics.probability(margin, 1.0, 0.0)))
    return statistics, np.array(probabilities)[WARM_UP:], is_right[WARM_UP:]


def calibration_error(probability, is_right):
    bins = np.minimum((probability * 10).astype(int), 9)
    gaps = [abs((probability - is_right)[bins == k].sum()) for k in range(10)]
    return sum(gaps) / len(probability)


@pytest.mark.parametrize('right_share', [0.0, 0.1, 0.5, 0.9])
def test_probabilities_are_honest_where_the_truth_is_known(right_share):
    runs = [learned(np.random.default_rng(s), right_share=right_share) for s in range(2)]
    assert np.mean([calibration_error(p, is_right) for _, p, is_right in runs]) < 0.05


@pytest.mark.parametrize('right_share', [0.1, 0.9])
def test_poor_descriptors_are_not_believed_too_much(right_share):
    _, p, is_right = learned(np.random.default_rng(0), right_share=right_share, right_margin=0.2)
    assert p.mean() < is_right.mean() + 0.03


def test_right_and_wrong_matches_are_told_apart():
    _, probability, is_right = learned(np.random.default_rng(0))
    assert np.median(probability[is_right]) > 0.95
    assert np.median(probability[~is_right]) < 0.05


def test_probability_rises_with_the_margin_and_is_never_certain():
    statistics, _, _ = learned(np.random.default_rng(1))
    margins = np.concatenate([np.linspace(-1.0, 3.0, 400), [1e3, 1e9]])
    p = statistics.probability(margins, 0.8, 0.1)
    assert (np.diff(p) >= 0.0).all()
    assert p[-1] > p[0] + 0.9
    assert p.min() > 0.0
    assert p.max() < 1.0


def test_a_margin_over_few_rivals_says_less():
    statistics, _, _ = learned(np.random.default_rng(2))
    few, half, all_ = statistics.probability(0.3, np.array([0.01, 0.5, 1.0]), 0.0)
    assert few < half < all_


def test_it_starts_at_the_prior_and_learns():
    statistics = MatchStatistics()
    assert statistics.known_wrong == 0
    assert statistics.probability(2.0, 1.0, 0.0) == pytest.approx(RIGHT_SHARE)
    spread = []
    for margin in wrong_margins(np.random.default_rng(3), ENOUGH):
        statistics.add_wrong(margin, 1.0)
        near, far = statistics.probability(np.array([1.0, 0.0]), 1.0, 0.0)
        spread.append(near - far)
    assert statistics.known_wrong == ENOUGH
    assert spread[4] < 0.2 < 0.8 < spread[-1]
    assert (np.diff(spread) > 0.0).all()


def test_without_rivals_it_is_the_prior():
    statistics, _, _ = learned(np.random.default_rng(4))
    assert statistics.probability(0.0, 0.0, 0.0) == pytest.approx(statistics.prior)


def test_the_order_of_known_wrong_matches_does_not_matter():
    margins = wrong_margins(np.random.default_rng(5), 200)
    results = []
    for order in (margins, margins[::-1]):
        statistics = MatchStatistics()
        for margin in order:
            statistics.add_wrong(margin, 0.9)
        statistics.add_query(0.4, 1.0, 0.0)
        results.append(float(statistics.probability(0.4, 1.0, 0.0)))
    assert results[0] == pytest.approx(results[1], rel=1e-9)


def test_look_alikes_among_known_wrong_matches_lower_every_probability():
    def top(aliased):
        rng = np.random.default_rng(6)
        statistics = MatchStatistics()
        for i, margin in enumerate(wrong_margins(rng, 500)):
            statistics.add_wrong(0.6 if i < aliased else margin, 1.0)
        statistics.add_query(0.6, 1.0, 0.0)
        return float(statistics.probability(0.6, 1.0, 0.0))

    assert top(0) > top(25) + 0.02
    assert top(25) > top(100) + 0.1


def test_memory_is_bounded_and_the_newest_count():
    statistics = MatchStatistics()
    for _ in range(2 * MEMORY + 7):
        statistics.add_wrong(0.5, 1.0)
    for _ in range(MEMORY):
        statistics.add_wrong(0.01, 1.0)
    assert statistics.known_wrong == MEMORY
    statistics.add_query(0.5, 1.0, 0.0)
    assert statistics.probability(0.5, 1.0, 0.0) > 0.9  # impossible if margins of 0.5 were wrong
