"""Loop closures are believed by families, against their rivals, whatever the order of arrival."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from toy_graphs import LAP, keyframe, laps, loop_closure, perturb

from lpr_ros.core.geometry.odometry_noise import OdometryNoiseConfig
from lpr_ros.core.geometry.se3 import invert, pose_from_euler
from lpr_ros.core.loop_closure.belief import (
    MAX_DECEPTIVE_LOOKS,
    MAX_LOOKS,
    BeliefChange,
    BeliefConfig,
    Evidence,
    Families,
    LoopBelief,
    best_set,
    cycles,
    log_ratio,
    looks_limit,
    new_structure_m,
    odometry_cycle,
    squared_distance,
)
from lpr_training.simulator import OdometryConfig
from lpr_training.simulator.drive.odometry import drifting

COUNT = 300
WHEELS = OdometryConfig(
    scale_sigma=0.01, heading_bias_deg=0.8, heading_walk_deg=1.0, position_walk_m=0.3
)
WHEEL_NOISE = OdometryNoiseConfig(position_fraction=0.02, heading_deg=1.0, tilt_deg=0.4)


@pytest.fixture
def sessions():
    """Two sessions along the same laps: odometry says nothing about loops between them."""
    T_true = laps(COUNT)
    new = [keyframe(i, T, session='b') for i, T in enumerate(T_true)]
    return T_true, new, [keyframe(i, T) for i, T in enumerate(T_true)]


@pytest.fixture
def drive(rng):
    T_true = laps(COUNT)
    T_odom = drifting(T_true, OdometryConfig(), rng)
    return T_true, [keyframe(i, T) for i, T in enumerate(T_odom)]


def true_loop(T_true, i, rng, **fields):
    loop = loop_closure(i - LAP, i, perturb(invert(T_true[i - LAP]) @ T_true[i], rng))
    return replace(loop, **fields)


def wrong_loop(T_true, i, rng, shift, **fields):
    """A loop to a place that is elsewhere: all of them are off by the same rigid motion."""
    T_seen = pose_from_euler(*shift) @ T_true[i]
    loop = loop_closure(i - LAP, i, perturb(invert(T_true[i - LAP]) @ T_seen, rng))
    return replace(loop, **fields)


HOUSE = ([15.0, 0.0, 0.0], [0.0, 0.0, 0.0])


class Run:
    """A belief, and what is published at present and was ever."""

    def __init__(self, keyframes, config=None, noise=None, old=None):
        self.belief, self._keyframes = LoopBelief(config, noise), keyframes
        self._old = old or keyframes  # of another session, with nothing in common
        self.published, self.ever = [], []

    def add(self, loop):
        query, match = self._keyframes[loop.query_id], self._old[loop.match_id]
        change = self.belief.add(loop, query, match)
        assert all(any(x is y for y in self.published) for x in change.retracted)
        assert not any(x is y for x in change.trusted for y in self.published)
        self.published = [x for x in self.published if not any(x is y for y in change.retracted)]
        self.published += change.trusted
        self.ever += change.trusted
        return change

    def pairs(self):
        return {(x.query_id, x.match_id) for x in self.published}


def test_correct_loops_are_published_despite_drift(drive, rng):
    T_true, keyframes = drive
    run = Run(keyframes)
    loops = [true_loop(T_true, i, rng) for i in range(LAP, COUNT, 4)]
    for loop in loops:
        run.add(loop)
    assert len(run.published) == len(run.ever) >= 0.95 * len(loops)


@pytest.mark.parametrize('noise', [OdometryNoiseConfig(), WHEEL_NOISE], ids=['untold', 'told'])
def test_drift_of_wheels_keeps_correct_loops_and_no_loop_to_the_next_house(noise):
    """Identical houses 15 m apart, revisited after 100 m, each seen as one and as the other."""
    T_true = laps(COUNT)
    found = count = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        keyframes = [keyframe(i, T) for i, T in enumerate(drifting(T_true, WHEELS, rng))]
        run = Run(keyframes, noise=noise)
        for i in range(50, COUNT, 4):
            T_seen = perturb(invert(T_true[i - 50]) @ T_true[i], rng)
            true = loop_closure(i - 50, i, T_seen)
            shifted = invert(T_true[i - 50]) @ pose_from_euler(*HOUSE) @ T_true[i]
            run.add(replace(true, alternatives=(replace(true, T_match_query=shifted),)))
            found += any(x.query_id == i for x in run.published)
            count += 1
        for x in run.ever:
            T_expected = invert(T_true[x.match_id]) @ T_true[x.query_id]
            np.testing.assert_allclose(x.T_match_query, T_expected, atol=0.3)
    assert found >= 0.8 * count


@pytest.mark.parametrize('seed', range(3))
def test_outliers_are_not_published(drive, seed):
    rng = np.random.default_rng(seed)
    T_true, keyframes = drive
    run = Run(keyframes)
    wrong = []
    for i in range(LAP, COUNT, 5):
        loop = true_loop(T_true, i, rng)
        if i % 20 == 5:
            T_wrong = pose_from_euler([*rng.uniform(3, 20, 2), 0], [0, 0, rng.uniform(-3, 3)])
            loop = replace(loop, T_match_query=T_wrong)
            wrong.append(loop)
        run.add(loop)
    assert len(wrong) == 5
    assert not run.pairs() & {(x.query_id, x.match_id) for x in wrong}
    assert len(run.published) >= 14


def test_weak_evidence_waits_for_the_way(sessions, rng):
    """The same structure seen again adds nothing, new structure does."""
    T_true, new, old = sessions
    standing = Run([*new[: LAP + 1], *[new[LAP]] * 99], old=old)
    for i in range(30):
        loop = true_loop(T_true, LAP, rng, log_odds=1.0, query_id=LAP + i)
        assert standing.add(loop).trusted == ()
    moving = Run(new, old=old)
    first = next(
        i
        for i in range(LAP, COUNT, 2)
        if moving.add(true_loop(T_true, i, rng, log_odds=1.0)).trusted
    )
    assert 10 <= 2 * (first - LAP) <= 60  # meters
    assert len(moving.published) == 1 + (first - LAP) // 2


def test_the_same_loop_again_does_not_raise_the_belief(drive, rng):
    T_true, keyframes = drive
    run = Run(keyframes)
    loop = true_loop(T_true, LAP, rng, log_odds=1.0)
    run.add(loop)
    group = run.belief._groups['a', 'a']
    before = run.belief.probability(group._entries[0].loop)
    for _ in range(20):
        run.add(replace(loop))
    assert run.belief.probability(group._entries[0].loop) == pytest.approx(before, abs=1e-9)


def test_a_wrong_family_seen_first_is_retracted_and_prevents_nothing(sessions, rng):
    """Odometry says nothing between two sessions: only the way tells the families apart."""
    T_true, new, old = sessions
    run = Run(new, old=old)
    far = ([40.0, 30.0, 0.0], [0.0, 0.0, 0.5])
    for i in range(LAP, LAP + 16, 2):
        run.add(wrong_loop(T_true, i, rng, far, log_odds=4.0))
    assert len(run.published) == 8
    for i in range(LAP, LAP + 60, 2):
        run.add(true_loop(T_true, i, rng, log_odds=4.0))
    assert len(run.published) == 30
    for x in run.published:
        T_expected = invert(T_true[x.match_id]) @ T_true[x.query_id]
        np.testing.assert_allclose(x.T_match_query, T_expected, atol=0.3)


def test_equal_rivals_keep_each_other_from_being_published(sessions, rng):
    """Until the way tells them apart: where the row ends, only one of them still fits."""
    T_true, new, old = sessions
    run = Run(new, old=old)
    for i in range(LAP, LAP + 20, 2):
        shifted = wrong_loop(T_true, i, rng, HOUSE)
        run.add(true_loop(T_true, i, rng, alternatives=(shifted,)))
        assert run.published == []
    for i in range(LAP + 20, LAP + 60, 2):
        run.add(true_loop(T_true, i, rng))
    assert len(run.published) == 30
    assert all(np.linalg.norm(x.T_match_query[:3, 3]) < 1.0 for x in run.published)


@pytest.mark.parametrize('seed', range(3))
def test_the_belief_does_not_depend_on_the_order_of_arrival(sessions, seed):
    rng = np.random.default_rng(seed)
    T_true, new, old = sessions
    loops = [true_loop(T_true, i, rng) for i in range(LAP, LAP + 60, 3)]
    loops += [wrong_loop(T_true, i, rng, HOUSE) for i in range(LAP + 3, LAP + 18, 3)]
    loops = [replace(x, log_odds=float(rng.uniform(1.0, 6.0))) for x in loops]
    ends, beliefs = [], []
    for order in (range(len(loops)), rng.permutation(len(loops)), range(len(loops))[::-1]):
        run = Run(new, old=old)
        for i in order:
            run.add(loops[i])
        group = run.belief._groups['b', 'a']
        found = zip(group._entries, group._log_odds, strict=True)
        by_loop = {entry.loop.log_odds: log_odds for entry, log_odds in found}
        beliefs.append(expit([by_loop[x.log_odds] for x in loops]))
        ends.append(sorted(x.log_odds for x in run.published))
    np.testing.assert_allclose(beliefs[1], beliefs[0], atol=1e-6)
    np.testing.assert_allclose(beliefs[2], beliefs[0], atol=1e-6)
    assert ends[0] == ends[1] == ends[2] == sorted(x.log_odds for x in loops[:20])


def test_a_loop_that_contradicts_odometry_is_never_published(drive, rng):
    """Consistent loops to a house 60 m from the correct one, seen for as long as one likes."""
    T_true, keyframes = drive
    run = Run(keyframes)
    for i in range(LAP, COUNT, 4):
        true = true_loop(T_true, i, rng, log_odds=6.0)
        if i + 30 - LAP < COUNT:
            run.add(replace(true, match_id=true.match_id + 30))
    assert run.ever == []


def test_a_session_of_repeated_structure_is_trusted_less():
    """A family that odometry refutes, but that looks right, costs all others."""

    def limit(refuted_own):
        return looks_limit(
            Families(
                own=np.array([8.0, refuted_own]),
                odometry=np.array([0.0, -500.0]),
                between=np.zeros((2, 2)),
                structure_m=np.zeros(2),
                is_same_stretch=np.zeros((2, 2), dtype=bool),
            )
        )

    assert limit(-3.0) == limit(1.0) == MAX_LOOKS
    assert MAX_DECEPTIVE_LOOKS < limit(4.0) < MAX_LOOKS
    assert limit(8.0) == MAX_DECEPTIVE_LOOKS


def test_of_two_that_place_one_stretch_differently_the_worse_shows_what_deceives():
    def limit(worse, *, is_same_stretch=True, contradiction=-500.0, **fields):
        return looks_limit(
            Families(
                own=np.array([9.0, worse]),
                odometry=np.zeros(2),
                between=np.array([[0.0, contradiction], [contradiction, 0.0]]),
                structure_m=np.zeros(2),
                is_same_stretch=np.full((2, 2), is_same_stretch),
                **fields,
            )
        )

    assert limit(1.0) == MAX_LOOKS
    assert limit(7.0) == MAX_DECEPTIVE_LOOKS
    for harmless in ({'is_same_stretch': False}, {'contradiction': 0.0}, {'has_odometry': False}):
        assert limit(7.0, **harmless) == MAX_LOOKS


def test_a_changed_street_is_recognized_by_its_length(rng):
    """Every look is slightly bad; hundreds of meters that agree are not found elsewhere."""
    T_true = laps(COUNT)
    new = [keyframe(i, T, session='b') for i, T in enumerate(T_true)]
    config = BeliefConfig(trust=0.99)
    old = [keyframe(i, T) for i, T in enumerate(T_true)]
    run = Run(new, config, old=old)
    first = next(i for i in range(0, COUNT, 2) if run.add(changed_loop(i, rng)).trusted)
    assert 200 < 2 * first < 400  # meters
    standing = Run([new[0]] * COUNT, config, old=[old[0]] * COUNT)
    assert not any(standing.add(changed_loop(i, rng)).trusted for i in range(0, 100, 2))


def changed_loop(i, rng):
    """A loop between two sessions to the same place, which has changed."""
    return replace(loop_closure(i, i, perturb(np.eye(4), rng)), log_odds=-2.5)


def test_one_look_is_not_enough_however_good_it_is(sessions, rng):
    """Odometry says nothing between sessions; within one it agrees, and one look is enough."""
    T_true, new, old = sessions
    assert Run(new, old=old).add(true_loop(T_true, LAP, rng, log_odds=50.0)).trusted == ()
    assert len(Run(old).add(true_loop(T_true, LAP, rng, log_odds=50.0)).trusted) == 1


def test_the_right_heading_proves_nothing(rng):
    """Look-alike streets are parallel: heading can only contradict."""
    position_sigma_m = 1000.0  # odometry that has lost its position, not its heading
    sigma = np.array([*[position_sigma_m] * 3, 0.01, 0.01, 0.01])
    covariance = np.diag(np.square(sigma))[None]
    agreeing, turned = np.zeros((1, 6)), np.array([[0.0, 0.0, 0.0, 0.0, 0.0, 1.5]])
    assert log_ratio(agreeing, covariance)[0] == pytest.approx(0.0, abs=0.05)
    assert log_ratio(turned, covariance)[0] < -100.0


def test_an_uncertain_loop_does_not_bring_in_what_contradicts_the_family(drive, rng):
    """It agrees with both, and so links them."""
    T_true, keyframes = drive
    run = Run(keyframes)
    for i in range(LAP, LAP + 20):
        run.add(true_loop(T_true, i, rng, log_odds=5.0))
    wide = np.diag(np.square([10.0, 10.0, 10.0, 0.05, 0.05, 0.05]))
    run.add(true_loop(T_true, LAP + 20, rng, covariance=wide))
    shifted = wrong_loop(T_true, LAP + 21, rng, ([3.5, 0.0, 0.0], [0.0, 0.0, 0.0]), log_odds=-7.0)
    run.add(shifted)
    group = run.belief._groups['a', 'a']
    assert len({*group._families(30.0).tolist()}) == 1
    assert len(run.published) == 21
    assert (shifted.query_id, shifted.match_id) not in run.pairs()


def test_the_best_set_is_that_of_brute_force(rng):
    """Without odometry and below the limits its evidence is that of the best consistent subset."""
    for _ in range(30):
        count = int(rng.integers(2, 7))
        camps = rng.integers(0, 2, count)
        is_friend = camps[:, None] == camps
        between = np.where(is_friend, rng.uniform(0.5, 2.0), -1000.0)
        np.fill_diagonal(between, 0.0)
        own = rng.uniform(0.1, 1.0, count)
        families = Families(own, np.zeros(count), between, np.full(count, 1e4), is_friend)
        totals = [own[camps == camp].sum() for camp in (0, 1)]
        support = [max(0, (camps == camp).sum() - 1) for camp in (0, 1)]
        gain = between[is_friend].max()
        expected = int(np.argmax([t + gain * s for t, s in zip(totals, support, strict=True)]))
        chosen = best_set(families, MAX_LOOKS)
        assert (chosen.members == (camps == expected)).all()


def test_sessions_need_no_common_odometry_frame(rng):
    T_true = laps(60)
    T_other = pose_from_euler([500.0, 80.0, 3.0], [0.0, 0.0, 2.0]) @ T_true
    old = [keyframe(i, T) for i, T in enumerate(T_true)]
    new = [keyframe(i, T, keyframe_id=100 + i, session='b') for i, T in enumerate(T_other)]
    belief = LoopBelief()
    published = []
    for i in range(0, 60, 6):
        loop = loop_closure(i, 100 + i, perturb(np.eye(4), rng))
        published += belief.add(loop, new[i], old[i]).trusted
    assert len(published) == 10


@pytest.mark.parametrize(('log_odds', 'is_published'), [(6.0, True), (3.0, False)])
def test_without_odometry_a_loop_stands_on_its_own_evidence(drive, rng, log_odds, is_published):
    T_true, keyframes = drive
    loop = true_loop(T_true, LAP, rng, log_odds=log_odds)
    for T in (None, np.full((4, 4), np.nan)):
        query = replace(keyframes[LAP], T_odom_sensor=T)
        trusted = LoopBelief().add(loop, query, keyframes[0]).trusted
        assert len(trusted) == int(is_published)
        rival = replace(loop, T_match_query=pose_from_euler(*HOUSE))
        ambiguous = replace(loop, alternatives=(rival,))
        assert LoopBelief().add(ambiguous, query, keyframes[0]).trusted == ()


def test_more_trust_publishes_fewer_and_later(sessions, rng):
    T_true, new, old = sessions
    loops = [true_loop(T_true, i, rng, log_odds=0.5) for i in range(LAP, LAP + 90, 2)]
    first = []
    for trust in (0.9, 0.999, 0.9999):
        run = Run(new, BeliefConfig(trust=trust), old=old)
        first.append(next((i for i, x in enumerate(loops) if run.add(x).trusted), len(loops)))
    assert first[0] < first[1] < first[2]


def test_memory_is_bounded_by_the_window(drive, rng):
    T_true, keyframes = drive
    run = Run(keyframes, BeliefConfig(window=5))
    for i in range(LAP, LAP + 30):
        assert run.add(true_loop(T_true, i, rng)).retracted == ()
    group = run.belief._groups['a', 'a']
    assert len(group._entries) == len(group._log_odds) == 5
    assert group._pairs.shape == (4, 5, 5)
    assert len(group._trusted) <= 5
    assert len(run.published) == 30  # what is forgotten stays published


def evidence(loop, query, match):
    T_query, T_match = query.T_odom_sensor, match.T_odom_sensor
    return Evidence(loop, T_query, T_match, query.traveled_m, match.traveled_m, 0.0)


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
        return evidence(loop, keyframes[query], keyframes[match])

    errors = [
        squared_distance(*cycles(measured(0, 1), [measured(2, 3)], exact))[0] for _ in range(600)
    ]
    assert np.mean(errors) == pytest.approx(6.0, rel=0.15)


@pytest.mark.parametrize('traveled', [20, 100])
def test_odometry_says_less_the_longer_the_way(drive, rng, traveled):
    """The evidence for the right pose shrinks with drift, and so does that against a wrong one."""
    T_true, _ = drive
    noise = OdometryNoiseConfig()
    exact = [keyframe(i, T) for i, T in enumerate(T_true)]
    loop = loop_closure(0, traveled, invert(T_true[0]) @ T_true[traveled])
    ratios = []
    for query in (traveled, traveled + 40):
        late = replace(exact[traveled], traveled_m=2.0 * query)
        right = log_ratio(*odometry_cycle(evidence(loop, late, exact[0]), noise))[0]
        off = replace(loop, T_match_query=pose_from_euler(*HOUSE) @ loop.T_match_query)
        wrong = log_ratio(*odometry_cycle(evidence(off, late, exact[0]), noise))[0]
        ratios.append((right, wrong))
    assert ratios[0][0] > ratios[1][0] > 0.0
    assert ratios[0][1] < ratios[1][1]
    assert ratios[0][1] < ratios[0][0]


def test_new_structure_counts_every_spot_once(rng):
    straight = np.arange(0.0, 60.0, 2.0)[:, None] * [1.0, 0.0, 0.0]
    assert new_structure_m(straight) == pytest.approx(58.0)
    assert new_structure_m(np.concatenate([straight, straight[::-1]])) == pytest.approx(58.0)
    assert new_structure_m(straight[:1]) == 0.0


def test_predictions_use_the_shortest_odometry(drive, rng):
    """Right after a believed loop the prediction goes through it, not around the lap."""
    T_true, keyframes = drive
    run = Run(keyframes)
    direct = run.belief.predict(keyframes[LAP + 10], keyframes[10])
    assert direct.traveled_m == pytest.approx(2.0 * LAP)
    assert run.belief.is_undecided(keyframes[LAP + 10], keyframes[10])
    for i in (LAP, LAP + 2):
        run.add(true_loop(T_true, i, rng))
    via_loop = run.belief.predict(keyframes[LAP + 10], keyframes[10])
    assert via_loop.traveled_m == pytest.approx(2.0 * (8 + 8))
    assert not run.belief.is_undecided(keyframes[LAP + 10], keyframes[10])
    assert run.belief.is_undecided(keyframes[LAP + 40], keyframes[40])
    T_expected = invert(T_true[10]) @ T_true[LAP + 10]
    errors_m = [np.linalg.norm((p.T_match_query - T_expected)[:3, 3]) for p in (direct, via_loop)]
    assert errors_m[1] < 0.5 * errors_m[0]
    elsewhere = replace(keyframes[10], session='b')
    assert run.belief.predict(keyframes[LAP + 10], elsewhere) is None


def test_two_changes_are_one(drive, rng):
    """What is published and taken back at once is neither; the rest keeps its order."""
    T_true, _ = drive
    a, b, c, d = (true_loop(T_true, LAP + i, rng) for i in range(4))
    both = BeliefChange((a, b), (c,)).followed_by(BeliefChange((d,), (a,)))
    assert [id(x) for x in both.trusted] == [id(b), id(d)]
    assert [id(x) for x in both.retracted] == [id(c)]
