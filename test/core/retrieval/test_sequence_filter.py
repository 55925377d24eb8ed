"""Candidates are matches consistent with preceding queries, in either direction."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from toy_keyframes import circle, drive, empty

from lpr_ros.core.errors import ConfigError
from lpr_ros.core.geometry.se3 import pose_from_euler
from lpr_ros.core.retrieval.sequence_filter import (
    SequenceFilter,
    SequenceFilterConfig,
    is_likely,
    spaced,
)
from lpr_ros.core.types import Keyframe, Match, Place

NO_POINTS = np.zeros((0, 3), np.float32)
ROAD = 100  # places of the old drive, 2 m apart on a line


def old_place(i, with_odometry=True, session='old'):
    T = pose_from_euler([2.0 * i, 0.0, 0.0], [0.0, 0.0, 0.0]) if with_odometry else None
    return Place(i, session, i, i, T, 2.0 * i)


def query(i, x_m, with_odometry=True, session='new'):
    """Return the i-th query of a drive in its own odometry frame."""
    T = pose_from_euler([3.0, 50.0 + x_m, 7.0], [0.0, 0.0, 1.0]) if with_odometry else None
    descriptor = np.zeros(4, np.float32)
    return Keyframe(1000 + i, session, i, descriptor, NO_POINTS, T, abs(x_m))


def run(answers, config=None, with_odometry=True):
    """Feed queries 2 m apart whose matches are the given ids; return candidates per query."""
    sequence_filter = SequenceFilter(config or SequenceFilterConfig())
    return [
        sequence_filter.candidates(
            query(i, 2.0 * i, with_odometry),
            [Match(m, 0.1 * (rank + 1), math.nan) for rank, m in enumerate(ids)],
            [old_place(m, with_odometry) for m in ids],
        )
        for i, ids in enumerate(answers)
    ]


def accepted(candidates):
    return [[c.match.keyframe_id for c in found] for found in candidates]


@pytest.mark.parametrize('with_odometry', [True, False])
@pytest.mark.parametrize('direction', [1, -1])
def test_a_revisit_is_supported_in_both_directions(direction, with_odometry):
    answers = [[50 + direction * i] for i in range(6)]
    found = run(answers, with_odometry=with_odometry)
    assert accepted(found) == [[], [], *answers[2:]]
    assert [c.support for f in found for c in f] == [2, 3, 4, 4]


def test_scattered_matches_are_rejected():
    assert not any(run([[7], [90], [33], [61], [2], [48], [75]]))


def test_a_place_that_matches_every_query_is_rejected():
    """All queries match the same keyframe, although they are meters apart."""
    assert not any(run([[40]] * 10))


def test_one_wrong_match_among_correct_ones_is_rejected():
    answers = [[10], [11], [12], [77], [14], [15]]
    assert accepted(run(answers)) == [[], [], [12], [], [14], [15]]


def test_a_correct_match_is_accepted_behind_a_wrong_one():
    answers = [[90, 10], [20, 11], [60, 12], [35, 13]]
    assert accepted(run(answers)) == [[], [], [12], [13]]


def test_support_counts_queries_not_matches():
    """One earlier query with several consistent matches counts once."""
    assert accepted(run([[50, 51, 49, 52], [52]])) == [[], []]


def test_queries_beyond_window_m_give_no_support():
    sequence_filter = SequenceFilter(SequenceFilterConfig(window_m=10.0))
    found = [
        sequence_filter.candidates(
            query(i, 8.0 * i), [Match(4 * i, 0.1, math.nan)], [old_place(4 * i)]
        )
        for i in range(5)
    ]
    assert not any(found)


def test_min_support_zero_accepts_every_match():
    config = SequenceFilterConfig(min_support=0, spacing_m=0.0, repeat_m=0.0)
    assert accepted(run([[3, 60], [9]], config)) == [[3, 60], [9]]


def test_neighboring_matches_of_one_query_are_reduced_to_the_best():
    config = SequenceFilterConfig(min_support=0, spacing_m=10.0)
    assert accepted(run([[50, 51, 49, 80, 54, 55, 81]], config)) == [[50, 80, 55]]


def test_a_stationary_robot_yields_one_candidate():
    config = SequenceFilterConfig(min_support=0, repeat_m=1.0)
    sequence_filter = SequenceFilter(config)
    found = [
        sequence_filter.candidates(query(i, 0.01 * i), [Match(50, 0.1, math.nan)], [old_place(50)])
        for i in range(20)
    ]
    assert accepted(found) == [[50], *[[]] * 19]


def test_sessions_do_not_support_each_other():
    sequence_filter = SequenceFilter(SequenceFilterConfig())
    found = [
        sequence_filter.candidates(
            query(i, 2.0 * i, session=f'robot/{i % 3}'),
            [Match(50 + i, 0.1, math.nan)],
            [old_place(50 + i)],
        )
        for i in range(6)
    ]
    assert not any(found)
    mixed = SequenceFilter(SequenceFilterConfig())
    found = [
        mixed.candidates(
            query(i, 2.0 * i),
            [Match(50 + i, 0.1, math.nan)],
            [old_place(50 + i, session=f'old/{(50 + i) % 4}')],
        )
        for i in range(4)
    ]
    assert not any(found)


def test_is_likely_checks_probability_and_distance():
    config = SequenceFilterConfig(min_probability=0.5, max_distance=2.0)
    assert is_likely(Match(0, 1.0, 0.5), config)
    assert not is_likely(Match(0, 1.0, 0.49), config)
    assert not is_likely(Match(0, 2.1, 0.9), config)
    assert is_likely(Match(0, 1.0, math.nan), config)
    assert accepted(run([[1]], SequenceFilterConfig(min_support=0, max_distance=0.05))) == [[]]


def test_min_support_above_window_is_rejected():
    with pytest.raises(ConfigError, match='min_support: 5 exceeds window, 4'):
        SequenceFilterConfig(min_support=5, window=4)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, ROAD - 1), max_size=4, unique=True), max_size=12))
def test_candidates_are_a_deterministic_spaced_subset_of_the_matches(answers):
    first, second = run(answers), run(answers)
    assert first == second
    for ids, found in zip(answers, first, strict=True):
        chosen = [c.match.keyframe_id for c in found]
        assert chosen == [i for i in ids if i in chosen]
        assert all(2 * abs(a - b) >= 10 for a in chosen for b in chosen if a != b)
        assert all(2 <= c.support <= 4 for c in found)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, ROAD - 1), min_size=1, max_size=12), st.integers(0, 3))
def test_higher_min_support_never_adds_a_candidate(ids, min_support):
    answers = [[i] for i in ids]
    options = {'repeat_m': 0.0, 'spacing_m': 0.0}
    lax = accepted(run(answers, SequenceFilterConfig(min_support=min_support, **options)))
    strict = accepted(run(answers, SequenceFilterConfig(min_support=min_support + 1, **options)))
    assert all(set(s) <= set(w) for s, w in zip(strict, lax, strict=True))


def test_spaced_out_is_idempotent():
    matches = [(Match(i, 0.1, math.nan), old_place(i)) for i in (5, 6, 20, 24, 26, 7)]
    once = spaced(matches, 10.0)
    assert spaced(once, 10.0) == once


def test_the_second_lap_of_a_circle_is_recognized(rng):
    """With a real database: candidates are near the query, and most queries have one."""
    database = empty(64, exclude_s=30.0, exclude_m=50.0)
    path = circle(240)
    keyframes = drive(empty(64), path, rng)
    sequence_filter = SequenceFilter(SequenceFilterConfig(max_distance=0.5))
    found = 0
    for keyframe in keyframes:
        matches = database.query(keyframe)
        candidates = sequence_filter.candidates(
            keyframe, matches, [database.place(m.keyframe_id) for m in matches]
        )
        database.add(keyframe)
        for candidate in candidates:
            gap = path[candidate.match.keyframe_id] - path[keyframe.id]
            assert np.linalg.norm(gap) < 5.0
        found += bool(candidates)
        assert keyframe.id >= 118 or not candidates
    assert found >= 110
