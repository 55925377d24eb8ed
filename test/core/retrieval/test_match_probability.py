"""Probabilities of matches, judged against the other places of the same drive."""

import math

import numpy as np
import pytest

from lpr_ros.core.database.place_database import DatabaseConfig, PlaceDatabase
from lpr_ros.core.geometry.odometry_noise import OdometryNoiseConfig
from lpr_ros.core.geometry.se3 import pose_from_euler
from lpr_ros.core.retrieval.match_probability import RANKED, RIGHT_SHARE, MatchProbability

DIM = 24
CLOUD = np.zeros((1, 3), np.float32)
S = 1_000_000_000


HEADINGS = {'E': (1.0, 0.0), 'N': (0.0, 1.0), 'W': (-1.0, 0.0), 'S': (0.0, -1.0)}
ROUTE = 'EENNWWSSEENNEEENN'  # around a block, half of it again, and on to new streets


def streets(route=ROUTE, block_m=60.0, step_m=2.0):
    """Return positions (N, 2) along a route through a grid of streets."""
    corner, parts = np.zeros(2), []
    for heading in route:
        direction = np.array(HEADINGS[heading])
        parts.append(corner + np.arange(0.0, block_m, step_m)[:, None] * direction)
        corner = corner + block_m * direction
    return np.concatenate(parts)


def descriptors_at(xy, noise=0.25, seed=0):
    """Descriptors that change with position over a few meters, and with every visit."""
    fixed = np.random.default_rng(99)
    waves = fixed.normal(size=(2, DIM)) / 4.0
    clean = math.sqrt(2.0) * np.cos(xy @ waves + fixed.uniform(0.0, 2.0 * np.pi, DIM))
    return (clean + np.random.default_rng(seed).normal(size=clean.shape, scale=noise)).astype(
        np.float32
    )


def judge_all(xy, descriptors, with_odometry=True, count=3, session='robot'):
    """Return the judged matches of every keyframe, and the judge."""
    database = PlaceDatabase(DatabaseConfig(), descriptors.shape[1])
    judge = MatchProbability(database, OdometryNoiseConfig())
    found = []
    for i, descriptor in enumerate(descriptors):
        T = pose_from_euler([*xy[i], 0.0], [0.0, 0.0, 0.0]) if with_odometry else None
        keyframe = database.make_keyframe(
            descriptor, CLOUD, session=session, stamp_ns=i * S, T_odom_sensor=T
        )
        found.append(judge.judge(keyframe, database.query(keyframe, RANKED), count))
        database.add(keyframe)
    database.close()
    return found, judge


@pytest.fixture(scope='module')
def drive():
    xy = streets()
    return xy, descriptors_at(xy)


@pytest.fixture(scope='module')
def judged(drive):
    return judge_all(*drive)[0]


def nearest(found):
    return np.array([m[0].probability for m in found if m])


def test_revisits_are_believed_and_new_places_are_not(drive, judged):
    xy, _ = drive
    queries = [i for i, m in enumerate(judged) if m and i > 150]
    p = np.array([judged[i][0].probability for i in queries])
    off = np.array([np.linalg.norm(xy[i] - xy[judged[i][0].keyframe_id]) for i in queries])
    right, wrong = off <= 5.0, off > 10.0
    assert min(right.sum(), wrong.sum()) > 30
    assert np.median(p[right]) > 0.9
    assert np.median(p[wrong]) < 0.1
    clear = right | wrong
    assert abs(p[clear].mean() - right[clear].mean()) < 0.05


@pytest.mark.parametrize('scale', [1e-3, 1e4])
def test_the_scale_of_descriptors_does_not_matter(drive, judged, scale):
    xy, descriptors = drive
    scaled, _ = judge_all(xy, descriptors * np.float32(scale))
    np.testing.assert_allclose(nearest(scaled), nearest(judged), rtol=1e-3)


def test_the_order_of_descriptor_dimensions_does_not_matter(drive, judged):
    xy, descriptors = drive
    shuffled, _ = judge_all(xy, descriptors[:, np.random.default_rng(3).permutation(DIM)].copy())
    np.testing.assert_allclose(nearest(shuffled), nearest(judged), rtol=1e-3)


def test_the_odometry_frame_does_not_matter(drive, judged):
    xy, descriptors = drive
    turned = xy @ np.array([[0.0, 1.0], [-1.0, 0.0]]) + [500.0, -80.0]
    np.testing.assert_allclose(
        nearest(judge_all(turned, descriptors)[0]), nearest(judged), rtol=1e-6
    )


def test_a_farther_match_is_never_more_probable(judged):
    for matches in judged:
        p = [match.probability for match in matches]
        assert p == sorted(p, reverse=True)


def test_before_it_has_learned_it_stays_near_the_prior(judged, drive):
    early = nearest(judged[:45])
    assert len(early) > 5
    assert np.abs(early - RIGHT_SHARE).max() < 0.15


def test_without_odometry_the_calibration_of_the_checkpoint_holds(drive):
    """The database of this test has none, so the probability is unknown."""
    xy, descriptors = drive
    found, judge = judge_all(xy, descriptors, with_odometry=False)
    assert judge.statistics.known_wrong == 0
    assert np.isnan(nearest(found)).all()


def test_drift_makes_places_uncertain():
    """What may be the same place after drift teaches nothing about wrong matches."""
    xy = streets(ROUTE[:4])
    database = PlaceDatabase(DatabaseConfig(), DIM)
    judge = MatchProbability(database, OdometryNoiseConfig())
    for i, descriptor in enumerate(descriptors_at(xy)):
        T = pose_from_euler([*xy[i], 0.0], [0.0, 0.0, 0.0])
        database.add(
            database.make_keyframe(descriptor, CLOUD, session='a', stamp_ns=i, T_odom_sensor=T)
        )
    places = database.locations(np.arange(len(database)))
    apart = judge.elsewhere(places, places)
    assert not apart.diagonal().any()
    assert (apart == apart.T).all()
    assert apart[0, 10]  # 20 m on
    judge.odometry_noise = OdometryNoiseConfig(position_fraction=0.5)
    assert not judge.elsewhere(places, places)[0, 10]


def test_equal_descriptors_give_finite_probabilities():
    xy = streets(ROUTE[:8])
    found, _ = judge_all(xy, np.ones((len(xy), DIM), np.float32))
    p = nearest(found)
    assert ((p > 0.0) & (p < 1.0)).all()
    assert p.max() < 0.5
