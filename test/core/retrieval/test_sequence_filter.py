"""Sequence support: what the drive before agrees with counts, in either direction, once."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from toy_keyframes import circle, drive, empty

from lpr_ros.core.errors import ConfigError
from lpr_ros.core.geometry import pose_from_euler
from lpr_ros.core.records import Keyframe, Match, Place
from lpr_ros.core.support import SequenceSupport, SupportConfig, is_likely, thinned

NO_POINTS = np.zeros((0, 3), np.float32)
ROAD = 100  # places of the old drive, 2 m apart on a line


def old_place(i, with_odometry=True, session='old'):
    T = pose_from_euler([2.0 * i, 0.0, 0.0], [0.0, 0.0, 0.0]) if with_odometry else None
    return Place(i, session, i, i, T, 2.0 * i)


def query(i, x_m, with_odometry=True, session='new'):
    """Return the i-th query of a drive in an odometry frame of its own."""
    T = pose_from_euler([3.0, 50.0 + x_m, 7.0], [0.0, 0.0, 1.0]) if with_odometry else None
    descriptor = np.zeros(4, np.float32)
    return Keyframe(1000 + i, session, i, descriptor, NO_POINTS, T, abs(x_m))


def run(answers, config=None, with_odometry=True):
    """Feed queries 2 m apart whose matches are the given ids; return candidates per query."""
    support = SequenceSupport(config or SupportConfig())
    return [
        support.candidates(
            query(i, 2.0 * i, with_odometry),
            [Match(m, 0.1 * (rank + 1), math.nan) for rank, m in enumerate(ids)],
            lambda m: old_place(m, with_odometry),
        )
        for i, ids in enumerate(answers)
    ]


def passed(candidates):
    return [[c.match.keyframe_id for c in found] for found in candidates]


@pytest.mark.parametrize('with_odometry', [True, False])
@pytest.mark.parametrize('direction', [1, -1])
def test_a_drive_along_the_old_one_is_supported_either_way(direction, with_odometry):
    answers = [[50 + direction * i] for i in range(6)]
    found = run(answers, with_odometry=with_odometry)
    assert passed(found) == [[], [], *answers[2:]]
    assert [c.support for f in found for c in f] == [2, 3, 4, 4]
    assert all(c.direction == direction for f in found for c in f)


def test_scattered_matches_never_count():
    assert not any(run([[7], [90], [33], [61], [2], [48], [75]]))


def test_a_place_that_looks_like_everything_never_counts():
    """All queries match one and the same keyframe, though they are metres apart."""
    assert not any(run([[40]] * 10))


def test_one_wrong_match_among_right_ones_is_left_out():
    answers = [[10], [11], [12], [77], [14], [15]]
    assert passed(run(answers)) == [[], [], [12], [], [14], [15]]


def test_the_right_match_counts_though_a_wrong_one_looks_nearer():
    answers = [[90, 10], [20, 11], [60, 12], [35, 13]]
    assert passed(run(answers)) == [[], [], [12], [13]]


def test_support_counts_visits_not_matches():
    """One earlier query with many agreeing matches is one vote."""
    assert passed(run([[50, 51, 49, 52], [52]])) == [[], []]


def test_visits_too_far_behind_are_not_asked():
    support = SequenceSupport(SupportConfig(window_m=10.0))
    found = [
        support.candidates(query(i, 8.0 * i), [Match(4 * i, 0.1, math.nan)], old_place)
        for i in range(5)
    ]
    assert not any(found)


def test_without_support_asked_every_gated_match_counts():
    config = SupportConfig(min_support=0, spacing_m=0.0, repeat_m=0.0)
    assert passed(run([[3, 60], [9]], config)) == [[3, 60], [9]]


def test_neighbouring_matches_of_one_query_are_thinned_to_the_best():
    config = SupportConfig(min_support=0, spacing_m=10.0)
    assert passed(run([[50, 51, 49, 80, 54, 55, 81]], config)) == [[50, 80, 55]]


def test_standing_on_the_spot_gives_one_candidate():
    config = SupportConfig(min_support=0, repeat_m=1.0)
    support = SequenceSupport(config)
    found = [
        support.candidates(query(i, 0.01 * i), [Match(50, 0.1, math.nan)], old_place)
        for i in range(20)
    ]
    assert passed(found) == [[50], *[[]] * 19]


def test_sessions_do_not_support_each_other():
    support = SequenceSupport(SupportConfig())
    found = [
        support.candidates(
            query(i, 2.0 * i, session=f'robot/{i % 3}'), [Match(50 + i, 0.1, math.nan)], old_place
        )
        for i in range(6)
    ]
    assert not any(found)
    mixed = SequenceSupport(SupportConfig())
    found = [
        mixed.candidates(
            query(i, 2.0 * i),
            [Match(50 + i, 0.1, math.nan)],
            lambda m: old_place(m, session=f'old/{m % 4}'),
        )
        for i in range(4)
    ]
    assert not any(found)


def test_the_gate_is_probability_and_distance():
    config = SupportConfig(min_probability=0.5, max_distance=2.0)
    assert is_likely(Match(0, 1.0, 0.5), config)
    assert not is_likely(Match(0, 1.0, 0.49), config)
    assert not is_likely(Match(0, 2.1, 0.9), config)
    assert is_likely(Match(0, 1.0, math.nan), config)
    assert passed(run([[1]], SupportConfig(min_support=0, max_distance=0.05))) == [[]]


def test_more_support_than_visits_is_refused():
    with pytest.raises(ConfigError, match='min_support: 5 is more than window, 4'):
        SupportConfig(min_support=5, window=4)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, ROAD - 1), max_size=4, unique=True), max_size=12))
def test_candidates_are_a_deterministic_part_of_the_matches_and_far_apart(answers):
    first, second = run(answers), run(answers)
    assert first == second
    for ids, found in zip(answers, first, strict=True):
        chosen = [c.match.keyframe_id for c in found]
        assert chosen == [i for i in ids if i in chosen]
        assert all(2 * abs(a - b) >= 10 for a in chosen for b in chosen if a != b)
        assert all(2 <= c.support <= 4 for c in found)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, ROAD - 1), min_size=1, max_size=12), st.integers(0, 3))
def test_asking_for_more_support_never_adds_a_candidate(ids, at_least):
    answers = [[i] for i in ids]
    options = {'repeat_m': 0.0, 'spacing_m': 0.0}
    lax = passed(run(answers, SupportConfig(min_support=at_least, **options)))
    strict = passed(run(answers, SupportConfig(min_support=at_least + 1, **options)))
    assert all(set(s) <= set(w) for s, w in zip(strict, lax, strict=True))


def test_thinning_is_idempotent():
    matches = [(Match(i, 0.1, math.nan), old_place(i)) for i in (5, 6, 20, 24, 26, 7)]
    once = thinned(matches, 10.0)
    assert thinned(once, 10.0) == once


def test_the_second_round_of_a_circle_is_found(rng):
    """With the database: every candidate is near the query, and most queries have one."""
    database = empty(64, exclude_s=30.0, exclude_m=50.0)
    path = circle(240)
    keyframes = drive(empty(64), path, rng)
    support = SequenceSupport(SupportConfig(max_distance=0.5))
    found = 0
    for keyframe in keyframes:
        matches = database.query(keyframe)
        candidates = support.candidates(keyframe, matches, database.place)
        database.add(keyframe)
        for candidate in candidates:
            gap = path[candidate.match.keyframe_id] - path[keyframe.id]
            assert np.linalg.norm(gap) < 5.0
            assert candidate.direction == 1
        found += bool(candidates)
        assert keyframe.id >= 118 or not candidates
    assert found >= 110
