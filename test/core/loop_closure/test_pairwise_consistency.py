"""Loops that contradict the others are not trusted; those that agree are."""

from dataclasses import replace

import numpy as np
import pytest
from test_pose_graph import LAP, closure, keyframe, laps, noisy

from lpr_ros.core.geometry import invert, pose_from_euler
from lpr_ros.core.odometry_noise import OdometryNoiseConfig
from lpr_ros.core.pairwise import (
    PairwiseConfig,
    PairwiseConsistency,
    _grow,
    agrees_with_odometry,
    cycle_errors,
    place,
)
from lpr_training.simulator import OdometryConfig
from lpr_training.simulator.odometry import drifting

COUNT = 300


@pytest.fixture
def drive(rng):
    T_true = laps(COUNT)
    T_odom = drifting(T_true, OdometryConfig(), rng)
    return T_true, [keyframe(i, T) for i, T in enumerate(T_odom)]


def true_loop(T_true, i, rng):
    return closure(i - LAP, i, noisy(invert(T_true[i - LAP]) @ T_true[i], rng))


def add(check, loop, keyframes):
    return check.add(loop, keyframes[loop.query_id], keyframes[loop.match_id])


def test_true_loops_are_trusted_in_spite_of_drift(drive, rng):
    T_true, keyframes = drive
    check = PairwiseConsistency()
    loops = [true_loop(T_true, i, rng) for i in range(LAP, COUNT, 4)]
    reported = [x for loop in loops for x in add(check, loop, keyframes)]
    assert len(check.trusted) >= 0.95 * len(loops)
    assert len(reported) >= 0.95 * len(loops)
    assert len({id(x) for x in reported}) == len(reported)


WHEELS = OdometryConfig(
    scale_sigma=0.01, heading_bias_deg=0.8, heading_walk_deg=1.0, position_walk_m=0.3
)


@pytest.mark.parametrize(
    ('expected', 'least_share'),
    [(OdometryNoiseConfig(), 0.8),
     (OdometryNoiseConfig(position_share=0.02, heading_deg=1.0, tilt_deg=0.4), 0.95)],
    ids=['by default', 'told'],
)  # fmt: skip
def test_poor_odometry_costs_few_true_loops_and_admits_no_neighbouring_house(
    expected, least_share
):
    """The drift of wheels; houses that all look alike, 15 m apart, seen again after 100 m."""
    config = PairwiseConfig(odometry=expected)
    T_true = laps(COUNT)
    trusted = count = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        keyframes = [keyframe(i, T) for i, T in enumerate(drifting(T_true, WHEELS, rng))]
        check = PairwiseConsistency(config)
        loops = [true_loop(T_true, i, rng) for i in range(LAP, COUNT, 4)]
        for loop in loops:
            add(check, loop, keyframes)
        trusted += len(check.trusted)
        count += len(loops)
        T_house = pose_from_euler([15.0, 0.0, 0.0], [0.0, 0.0, 0.0])
        for i in range(50, COUNT, 10):
            T_seen = T_house @ invert(T_true[i - 50]) @ T_true[i]
            entry = place(closure(i - 50, i, T_seen), keyframes[i], keyframes[i - 50])
            assert not agrees_with_odometry(entry, config)
    assert trusted >= least_share * count


@pytest.mark.parametrize('seed', range(3))
def test_the_odd_one_out_is_rejected(drive, seed):
    rng = np.random.default_rng(seed)
    T_true, keyframes = drive
    check = PairwiseConsistency()
    wrong = []
    for i in range(LAP, COUNT, 5):
        loop = true_loop(T_true, i, rng)
        if i % 20 == 5:
            T_wrong = pose_from_euler([*rng.uniform(3, 20, 2), 0], [0, 0, rng.uniform(-3, 3)])
            loop = replace(loop, T_match_query=T_wrong)
            wrong.append(loop)
        add(check, loop, keyframes)
    trusted = {id(x) for x in check.trusted}
    assert len(wrong) == 5
    assert not any(id(x) in trusted for x in wrong)
    assert len(trusted) >= 14


def test_a_lone_loop_waits_for_another(drive, rng):
    T_true, keyframes = drive
    check = PairwiseConsistency()
    first, second = true_loop(T_true, LAP, rng), true_loop(T_true, LAP + 2, rng)
    assert add(check, first, keyframes) == []
    assert check.trusted == []
    assert add(check, second, keyframes) == [first, second]
    alone = PairwiseConsistency(PairwiseConfig(fewest_agreeing=0))
    assert add(alone, first, keyframes) == [first]


def test_a_wrong_first_loop_is_overruled(drive, rng):
    T_true, keyframes = drive
    check = PairwiseConsistency(PairwiseConfig(fewest_agreeing=0))
    good = true_loop(T_true, LAP, rng)
    wrong = replace(good, T_match_query=good.T_match_query @ pose_from_euler([9, 5, 0], [0, 0, 1]))
    add(check, wrong, keyframes)
    for i in range(LAP + 1, LAP + 4):
        add(check, true_loop(T_true, i, rng), keyframes)
    assert wrong not in check.trusted
    assert len(check.trusted) == 3


def test_loops_of_two_sessions_need_no_common_frame(rng):
    T_true = laps(60)
    T_other = pose_from_euler([500.0, 80.0, 3.0], [0.0, 0.0, 2.0]) @ T_true
    old = [keyframe(i, T) for i, T in enumerate(T_true)]
    new = [keyframe(i, T, keyframe_id=100 + i, session='b') for i, T in enumerate(T_other)]
    check = PairwiseConsistency()
    for i in range(0, 60, 6):
        check.add(closure(i, 100 + i, noisy(np.eye(4), rng)), new[i], old[i])
    assert len(check.trusted) == 10


def test_loops_without_odometry_are_never_trusted(drive, rng):
    T_true, keyframes = drive
    check = PairwiseConsistency(PairwiseConfig(fewest_agreeing=0))
    loop = true_loop(T_true, LAP, rng)
    for T in (None, np.full((4, 4), np.nan)):
        query = replace(keyframes[LAP], T_odom_sensor=T)
        assert check.add(loop, query, keyframes[0]) == []
    assert check.trusted == []


def test_memory_is_bounded_by_the_window(drive, rng):
    T_true, keyframes = drive
    check = PairwiseConsistency(PairwiseConfig(window=5))
    for i in range(LAP, LAP + 30):
        add(check, true_loop(T_true, i, rng), keyframes)
    assert len(check.trusted) <= 5
    assert len(check._reported) <= 5


def test_a_set_grows_until_nobody_else_agrees_with_all_of_it(rng):
    for _ in range(20):
        count = int(rng.integers(1, 40))
        agree = rng.random((count, count)) < 0.7
        agree = np.triu(agree, 1) | np.triu(agree, 1).T
        members = list(_grow(agree, count - 1))
        assert members[0] == count - 1
        assert (agree[np.ix_(members, members)] | np.eye(len(members), dtype=bool)).all()
        assert not agree[members].all(axis=0).any()


def test_cycle_errors_are_those_that_the_covariances_foretell(rng):
    """Of six numbers the mean is six, whatever the shape of the covariance and the lever."""
    sigma = np.array([0.01, 0.3, 0.02, 0.001, 0.002, 0.05])
    exact = OdometryNoiseConfig(
        position_share=0.0, heading_deg=0.0, tilt_deg=0.0, least_m=1e-6, least_deg=1e-6
    )
    ends = [pose_from_euler(50.0 * rng.normal(size=3), rng.normal(size=3)) for _ in range(4)]
    keyframes = [keyframe(i, T) for i, T in enumerate(ends)]

    def measured(match, query):
        motion = sigma * rng.standard_normal(6)
        T = invert(ends[match]) @ ends[query] @ pose_from_euler(motion[:3], motion[3:])
        loop = replace(closure(match, query, T), covariance=np.diag(sigma**2))
        return place(loop, keyframes[query], keyframes[match])

    errors = [cycle_errors(measured(0, 1), [measured(2, 3)], exact)[0] for _ in range(600)]
    assert np.mean(errors) == pytest.approx(6.0, rel=0.15)


def test_a_loop_that_odometry_rules_out_is_never_trusted(drive, rng):
    """Three loops that agree with each other, each to a house 60 m from the right one."""
    T_true, keyframes = drive
    check = PairwiseConsistency(PairwiseConfig(fewest_agreeing=0))
    for i in range(LAP, LAP + 12, 4):
        true = true_loop(T_true, i, rng)
        wrong = replace(true, match_id=true.match_id + 30)
        assert add(check, wrong, keyframes) == []
        assert add(check, true, keyframes) == [true]
