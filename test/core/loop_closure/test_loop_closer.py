"""The loop closer verifies what odometry allows, and rivals until it is decided."""

from dataclasses import replace

import numpy as np
import pytest
from toy_graphs import LAP, keyframe, laps, loop_closure

from lpr_ros.core.geometry.odometry_noise import drift_covariance
from lpr_ros.core.geometry.se3 import invert, pose_from_euler
from lpr_ros.core.loop_closure.loop_closer import LoopCloser, LoopClosureConfig
from lpr_ros.core.types import Candidate, KeyframeQuery, Match


class RecordingVerifier:
    """Accepts or rejects everything at the true pose, and records the candidates and guesses."""

    def __init__(self, T_true, accept=True):
        self._T_true, self._accept = T_true, accept
        self.calls, self.thorough = [], []

    def configure(self, config):
        pass

    def verify(self, query, candidate, match, T_guess=None, *, thorough=True):
        self.calls.append((candidate.id, T_guess))
        self.thorough.append(thorough)
        if not self._accept:
            return None
        T = invert(self._T_true[candidate.id]) @ self._T_true[query.id]
        return loop_closure(candidate.id, query.id, T)


@pytest.fixture(scope='module')
def keyframes():
    return [keyframe(i, T) for i, T in enumerate(laps(LAP + 40))]


def query_for(query, *places):
    candidates = tuple(Candidate(Match(p.id, 0.1, 0.9), 3) for p in places)
    return KeyframeQuery(query, tuple(c.match for c in candidates), candidates, places)


def test_candidates_out_of_reach_are_not_verified(keyframes):
    verifier = RecordingVerifier(laps(LAP + 40))
    closer = LoopCloser(LoopClosureConfig(), verifier)
    result = closer.verify_candidates(query_for(keyframes[LAP], keyframes[LAP // 2], keyframes[0]))
    assert [candidate for candidate, _ in verifier.calls] == [0]
    assert (result.verified.query_id, result.verified.match_id) == (LAP, 0)
    assert result.rejected == ()
    assert [c.match.keyframe_id for c in result.excluded] == [LAP // 2]


def test_at_most_max_candidates_are_verified(keyframes):
    verifier = RecordingVerifier(laps(LAP + 40), accept=False)
    closer = LoopCloser(LoopClosureConfig(max_candidates=2), verifier)
    result = closer.verify_candidates(query_for(keyframes[LAP], *keyframes[:5]))
    assert [candidate for candidate, _ in verifier.calls] == [0, 1]
    assert [c.match.keyframe_id for c in result.rejected] == [0, 1]
    assert result.verified is None


def test_only_predictions_over_short_odometry_are_initial_guesses(keyframes):
    """A lap of drift is no guess; a few meters from a trusted loop, the prediction is one."""
    verifier = RecordingVerifier(laps(LAP + 40))
    closer = LoopCloser(LoopClosureConfig(), verifier)
    for i in (0, 2, 10, 39):
        closer.verify_candidates(query_for(keyframes[LAP + i], keyframes[i]))
    guesses = [T_guess is not None for _, T_guess in verifier.calls]
    assert guesses == [False, True, True, False]
    np.testing.assert_allclose(verifier.calls[2][1], np.eye(4), atol=1e-9)


@pytest.mark.parametrize('without', ['query', 'match'])
def test_loops_without_odometry_are_published_at_once(keyframes, without):
    """With odometry on one side only, there is no cycle to check."""
    query, match = keyframes[LAP], keyframes[0]
    if without == 'query':
        query = replace(query, T_odom_sensor=None)
    else:
        match = replace(match, T_odom_sensor=None)
    closer = LoopCloser(LoopClosureConfig(), RecordingVerifier(laps(LAP + 40)))
    result = closer.verify_candidates(query_for(query, match))
    assert [(x.query_id, x.match_id) for x in result.trusted] == [(LAP, 0)]


def test_rivals_are_verified_until_it_is_decided(keyframes):
    """Then one loop closure per keyframe is enough, and a pose that fits ends the search."""
    verifier = RecordingVerifier(laps(LAP + 40))
    closer = LoopCloser(LoopClosureConfig(), verifier)
    first = closer.verify_candidates(query_for(keyframes[LAP], keyframes[0], keyframes[6]))
    assert [candidate for candidate, _ in verifier.calls] == [0, 6]
    assert len(first.trusted) == 2
    second = closer.verify_candidates(query_for(keyframes[LAP + 2], keyframes[2], keyframes[8]))
    assert [candidate for candidate, _ in verifier.calls[2:]] == [2]
    assert len(second.trusted) == 1
    assert verifier.thorough == [True, False, False]


@pytest.mark.parametrize(('excess_m', 'calls'), [(-0.001, 1), (0.001, 0)])
def test_odometry_alone_excludes_what_is_many_sigmas_away(excess_m, calls):
    """The reach of a loop plus ten standard deviations of the drift over 400 m."""
    config = LoopClosureConfig()
    sigma_m = np.sqrt(drift_covariance(2.0 * LAP, config.odometry_noise)[0, 0])
    reach_m = config.verification.max_loop_distance_m + 10.0 * sigma_m + excess_m
    T = [pose_from_euler([0.0, y, 0.0], [0.0, 0.0, 0.0]) for y in (0.0, reach_m)]
    place, query = keyframe(0, T[0]), keyframe(LAP, T[1])
    verifier = RecordingVerifier(laps(LAP + 1))
    LoopCloser(config, verifier).verify_candidates(query_for(query, place))
    assert len(verifier.calls) == calls
