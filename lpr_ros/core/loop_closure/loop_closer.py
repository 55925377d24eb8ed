"""Verifies the candidates of a keyframe and publishes the loop closures that are believed."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.geometry.odometry_noise import OdometryNoiseConfig, drift_covariance
from lpr_ros.core.loop_closure.belief import BeliefChange, BeliefConfig, LoopBelief, Prediction
from lpr_ros.core.loop_closure.verification import (
    InProcessVerifier,
    VerificationConfig,
    Verifier,
)
from lpr_ros.core.timing import Stopwatch
from lpr_ros.core.types import Candidate, Keyframe, KeyframeQuery, LoopClosure, VerificationResult

# Odometry distance up to which a predicted relative pose is a useful initial guess.
MAX_GUESS_DISTANCE_M = 60.0
# Odometry excludes a candidate only this many standard deviations away: drift is often larger than
# configured, and what is verified for nothing costs time only.
IMPOSSIBLE_SIGMAS = 10.0


@dataclass(frozen=True)
class LoopClosureConfig:
    """The settings of the loop closer."""

    verification: VerificationConfig = field(default_factory=VerificationConfig)
    belief: BeliefConfig = field(default_factory=BeliefConfig)
    odometry_noise: OdometryNoiseConfig = field(default_factory=OdometryNoiseConfig)
    max_candidates: int = 2


class LoopCloser:
    """Verifies candidates and weighs the resulting loop closures against each other.

    Verified loop closures are kept here. Only the verifier may run in another process, so a
    verifier that crashes loses none of them.
    """

    def __init__(self, config: LoopClosureConfig, verifier: Verifier | None = None):
        self._verifier = verifier or InProcessVerifier(config.verification)
        self._belief = LoopBelief(config.belief, config.odometry_noise)
        self._config = config

    def configure(self, config: LoopClosureConfig) -> None:
        """Use new settings from the next keyframe on; verified loops are kept. Thread-safe."""
        self._config = config

    def verify_candidates(self, keyframe_query: KeyframeQuery) -> VerificationResult:
        """Verify the candidates that odometry allows, best first.

        Where a believed loop closure already says which place this is, one that is verified is
        enough. Otherwise its rivals are verified too: what looks alike must be known to be told
        apart. Not thread-safe. Raises VerificationError if the verifier fails; the remaining
        candidates are skipped.
        """
        watch = Stopwatch()
        config = self._config
        self._verifier.configure(config.verification)
        self._belief.configure(config.belief, config.odometry_noise)
        query = keyframe_query.keyframe
        rejected: list[Candidate] = []
        excluded: list[Candidate] = []
        verified: list[LoopClosure] = []
        change = BeliefChange()
        for candidate, place in zip(keyframe_query.candidates, keyframe_query.places, strict=True):
            if len(rejected) + len(verified) == config.max_candidates:
                break
            if not self._is_possible(query, place):
                excluded.append(candidate)
                continue
            is_undecided = self._belief.is_undecided(query, place)
            loop = self._verifier.verify(
                query, place, candidate.match, self._guess(query, place), thorough=is_undecided
            )
            watch.lap('verify')
            if loop is None:
                rejected.append(candidate)
                continue
            verified.append(loop)
            change = change.followed_by(self._belief.add(loop, query, place))
            watch.lap('agree')
            if not is_undecided:
                break
        return VerificationResult(
            query.id,
            max(verified, key=lambda loop: loop.log_odds, default=None),
            change.trusted,
            change.retracted,
            tuple(rejected),
            watch.seconds,
            tuple(excluded),
        )

    def _is_possible(self, query: Keyframe, place: Keyframe) -> bool:
        """Return whether the two keyframes can be close to each other, given odometry alone."""
        odometry = Prediction.from_odometry(query, place)
        if odometry is None:
            return True
        variance = drift_covariance(odometry.traveled_m, self._config.odometry_noise)[0, 0]
        reach_m = self._config.verification.max_loop_distance_m
        allowed_m = reach_m + IMPOSSIBLE_SIGMAS * float(np.sqrt(variance))
        return float(np.linalg.norm(odometry.T_match_query[:3, 3])) <= allowed_m

    def _guess(self, query: Keyframe, place: Keyframe) -> NDArray[np.float64] | None:
        predicted = self._belief.predict(query, place)
        if predicted is None or predicted.traveled_m > MAX_GUESS_DISTANCE_M:
            return None
        return predicted.T_match_query
