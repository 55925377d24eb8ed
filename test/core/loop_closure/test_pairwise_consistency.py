"""Pairwise consistency trusts loop closures that agree with each other and with odometry."""

from dataclasses import replace

import numpy as np
import pytest
from toy_graphs import LAP, keyframe, laps, loop_closure, perturb

from lpr_ros.core.geometry.odometry_noise import OdometryNoiseConfig, drift_covariance
from lpr_ros.core.geometry.se3 import invert, pose_from_euler
from lpr_ros.core.loop_closure.pairwise_consistency import (
    PairwiseConfig,
    PairwiseConsistency,
    Prediction,
    _grow_clique,
    cycle_errors,
    is_consistent_with_odometry,
    with_odometry,
)
from lpr_training.simulator import OdometryConfig
from lpr_training.simulator.drive.odometry import drifting

COUNT = 300


@pytest.fixture
def drive(rng):
    T_true = laps(COUNT)
    T_odom = drifting(T_true, OdometryConfig(), rng)
    return T_true, [keyframe(i, T) for i, T in enumerate(T_odom)]


def true_loop(T_true, i, rng):
    return loop_closure(i - LAP, i, perturb(invert(T_true[i - LAP]) @ T_true[i], rng))


def add(check, loop, keyframes):
    return check.add(loop, keyframes[loop.query_id], keyframes[loop.match_id])


def trusted(check):
    """Return the loop closures of all cliques that are large enough to be published."""
    return [
        group.entries[i].loop
        for group in check._groups.values()
        if check._is_trusted(group)
        for i in sorted(group.clique)
    ]


def test_correct_loops_are_trusted_despite_drift(drive, rng):
    T_true, keyframes = drive
    check = PairwiseConsistency()
    loops = [true_loop(T_true, i, rng) for i in range(LAP, COUNT, 4)]
    reported = [x for loop in loops for x in add(check, loop, keyframes)]
    assert len(trusted(check)) >= 0.95 * len(loops)
    assert len(reported) >= 0.95 * len(loops)
    assert len({id(x) for x in reported}) == len(reported)


WHEELS = OdometryConfig(
    scale_sigma=0.01, heading_bias_deg=0.8, heading_walk_deg=1.0, position_walk_m=0.3
)


@pytest.mark.parametrize(
    ('noise', 'min_fraction'),
    [
        (OdometryNoiseConfig(), 0.8),
        (OdometryNoiseConfig(position_fraction=0.02, heading_deg=1.0, tilt_deg=0.4), 0.95),
    ],
    ids=['default noise', 'matching noise'],
)
def test_wheel_odometry_keeps_correct_loops_and_rejects_adjacent_houses(noise, min_fraction):
    """Identical houses, 15 m apart, revisited after 100 m."""
    T_true = laps(COUNT)
    trusted_count = count = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        keyframes = [keyframe(i, T) for i, T in enumerate(drifting(T_true, WHEELS, rng))]
        check = PairwiseConsistency(noise=noise)
        loops = [true_loop(T_true, i, rng) for i in range(LAP, COUNT, 4)]
        for loop in loops:
            add(check, loop, keyframes)
        trusted_count += len(trusted(check))
        count += len(loops)
        T_house = pose_from_euler([15.0, 0.0, 0.0], [0.0, 0.0, 0.0])
        for i in range(50, COUNT, 10):
            T_seen = T_house @ invert(T_true[i - 50]) @ T_true[i]
            loop = loop_closure(i - 50, i, T_seen)
            entry = with_odometry(loop, keyframes[i], keyframes[i - 50])
            assert not is_consistent_with_odometry(entry, noise, PairwiseConfig().chi2)
    assert trusted_count >= min_fraction * count


@pytest.mark.parametrize('seed', range(3))
def test_outliers_are_rejected(drive, seed):
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
    accepted = {id(x) for x in trusted(check)}
    assert len(wrong) == 5
    assert not any(id(x) in accepted for x in wrong)
    assert len(accepted) >= 14


def test_a_single_loop_waits_for_a_consistent_one(drive, rng):
    T_true, keyframes = drive
    check = PairwiseConsistency()
    first, second = true_loop(T_true, LAP, rng), true_loop(T_true, LAP + 2, rng)
    assert add(check, first, keyframes) == []
    assert trusted(check) == []
    assert add(check, second, keyframes) == [first, second]
    single = PairwiseConsistency(PairwiseConfig(min_consistent_loops=0))
    assert add(single, first, keyframes) == [first]


def test_a_wrong_first_loop_is_outvoted(drive, rng):
    T_true, keyframes = drive
    check = PairwiseConsistency(PairwiseConfig(min_consistent_loops=0))
    good = true_loop(T_true, LAP, rng)
    wrong = replace(good, T_match_query=good.T_match_query @ pose_from_euler([9, 5, 0], [0, 0, 1]))
    add(check, wrong, keyframes)
    for i in range(LAP + 1, LAP + 4):
        add(check, true_loop(T_true, i, rng), keyframes)
    assert wrong not in trusted(check)
    assert len(trusted(check)) == 3


def test_sessions_need_no_common_odometry_frame(rng):
    T_true = laps(60)
    T_other = pose_from_euler([500.0, 80.0, 3.0], [0.0, 0.0, 2.0]) @ T_true
    old = [keyframe(i, T) for i, T in enumerate(T_true)]
    new = [keyframe(i, T, keyframe_id=100 + i, session='b') for i, T in enumerate(T_other)]
    check = PairwiseConsistency()
    for i in range(0, 60, 6):
        check.add(loop_closure(i, 100 + i, perturb(np.eye(4), rng)), new[i], old[i])
    assert len(trusted(check)) == 10


def test_loops_without_odometry_are_never_trusted(drive, rng):
    T_true, keyframes = drive
    check = PairwiseConsistency(PairwiseConfig(min_consistent_loops=0))
    loop = true_loop(T_true, LAP, rng)
    for T in (None, np.full((4, 4), np.nan)):
        query = replace(keyframes[LAP], T_odom_sensor=T)
        assert check.add(loop, query, keyframes[0]) == []
    assert trusted(check) == []


def test_memory_is_bounded_by_the_window(drive, rng):
    T_true, keyframes = drive
    check = PairwiseConsistency(PairwiseConfig(window=5))
    for i in range(LAP, LAP + 30):
        add(check, true_loop(T_true, i, rng), keyframes)
    assert len(trusted(check)) <= 5
    assert len(check._reported) <= 5


def test_a_grown_clique_is_maximal(rng):
    for _ in range(20):
        count = int(rng.integers(1, 40))
        edges = rng.random((count, count)) < 0.7
        edges = np.triu(edges, 1) | np.triu(edges, 1).T
        members = list(_grow_clique(edges, count - 1))
        assert members[0] == count - 1
        assert (edges[np.ix_(members, members)] | np.eye(len(members), dtype=bool)).all()
        assert not edges[members].all(axis=0).any()


def test_cycle_errors_follow_the_chi_squared_distribution(rng):
    """The mean is 6, the degrees of freedom, for any covariance and lever arm."""
    sigma = np.array([0.01, 0.3, 0.02, 0.001, 0.002, 0.05])
    exact = OdometryNoiseConfig(
        position_fraction=0.0, heading_deg=0.0, tilt_deg=0.0, min_sigma_m=1e-6, min_sigma_deg=1e-6
    )
    ends = [pose_from_euler(50.0 * rng.normal(size=3), rng.normal(size=3)) for _ in range(4)]
    keyframes = [keyframe(i, T) for i, T in enumerate(ends)]

    def measured(match, query):
        motion = sigma * rng.standard_normal(6)
        T = invert(ends[match]) @ ends[query] @ pose_from_euler(motion[:3], motion[3:])
        loop = replace(loop_closure(match, query, T), covariance=np.diag(sigma**2))
        return with_odometry(loop, keyframes[query], keyframes[match])

    errors = [cycle_errors(measured(0, 1), [measured(2, 3)], exact)[0] for _ in range(600)]
    assert np.mean(errors) == pytest.approx(6.0, rel=0.15)


def test_a_loop_that_contradicts_odometry_is_never_trusted(drive, rng):
    """Three mutually consistent loops, each to a house 60 m from the correct one."""
    T_true, keyframes = drive
    check = PairwiseConsistency(PairwiseConfig(min_consistent_loops=0))
    for i in range(LAP, LAP + 12, 4):
        true = true_loop(T_true, i, rng)
        wrong = replace(true, match_id=true.match_id + 30)
        assert add(check, wrong, keyframes) == []
        assert add(check, true, keyframes) == [true]


@pytest.mark.parametrize('traveled_m', [0.0, 100.0, 400.0])
def test_the_odometry_gate_widens_with_drift(traveled_m):
    """Its radius is the loop distance plus sqrt(chi2) standard deviations of the position."""
    noise = OdometryNoiseConfig()
    check = PairwiseConsistency(PairwiseConfig(chi2=9.0), noise)
    limit_m = 30.0 + 3.0 * np.sqrt(drift_covariance(traveled_m, noise)[0, 0])
    for distance_m, allowed in ((limit_m - 1e-6, True), (limit_m + 1e-6, False)):
        T = pose_from_euler([0.0, distance_m, 0.0], [0.0, 0.0, 1.0])
        assert check.allows(Prediction(T, traveled_m), 30.0) is allowed


def test_predictions_use_the_shortest_odometry(drive, rng):
    """Right after a trusted loop the prediction goes through it, not around the lap."""
    T_true, keyframes = drive
    check = PairwiseConsistency()
    direct = check.predict(keyframes[LAP + 10], keyframes[10])
    assert direct.traveled_m == pytest.approx(2.0 * LAP)
    for i in (LAP, LAP + 2):
        add(check, true_loop(T_true, i, rng), keyframes)
    via_loop = check.predict(keyframes[LAP + 10], keyframes[10])
    assert via_loop.traveled_m == pytest.approx(2.0 * (8 + 8))
    T_expected = invert(T_true[10]) @ T_true[LAP + 10]
    errors_m = [np.linalg.norm((p.T_match_query - T_expected)[:3, 3]) for p in (direct, via_loop)]
    assert errors_m[1] < 0.5 * errors_m[0]
    elsewhere = replace(keyframes[10], session='b')
    assert check.predict(keyframes[LAP + 10], elsewhere) is None
