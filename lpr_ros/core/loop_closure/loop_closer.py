"""Verifies the candidates of a keyframe and publishes the loop closures that are consistent."""

from dataclasses import dataclass, field

from lpr_ros.core.geometry.odometry_noise import OdometryNoiseConfig
from lpr_ros.core.loop_closure.pairwise_consistency import PairwiseConfig, PairwiseConsistency
from lpr_ros.core.loop_closure.verification import (
    InProcessVerifier,
    VerificationConfig,
    Verifier,
)
from lpr_ros.core.timing import Stopwatch
from lpr_ros.core.types import Candidate, Keyframe, KeyframeQuery, LoopClosure, VerificationResult

# Odometry distance up to which a predicted relative pose is a useful initial guess.
MAX_GUESS_DISTANCE_M = 60.0


@dataclass(frozen=True)
class LoopClosureConfig:
    """The settings of the loop closer."""

    verification: VerificationConfig = field(default_factory=VerificationConfig)
    pairwise: PairwiseConfig = field(default_factory=PairwiseConfig)
    odometry_noise: OdometryNoiseConfig = field(default_factory=OdometryNoiseConfig)
    max_candidates: int = 2


class LoopCloser:
    """Verifies candidates and checks the resulting loop closures for consistency.

    Accepted loop closures are kept here. Only the verifier may run in another process, so a
    verifier that crashes loses none of them.
    """

    def __init__(self, config: LoopClosureConfig, verifier: Verifier | None = None):
        self._verifier = verifier or InProcessVerifier(config.verification)
        self._pairwise = PairwiseConsistency(config.pairwise, config.odometry_noise)
        self._config = config

    def configure(self, config: LoopClosureConfig) -> None:
        """Use new settings from the next keyframe on; accepted loops are kept. Thread-safe."""
        self._config = config

    def verify_candidates(self, keyframe_query: KeyframeQuery) -> VerificationResult:
        """Verify the candidates that odometry allows, best first, until one is accepted.

        Not thread-safe. Raises VerificationError if the verifier fails; the remaining candidates
        are skipped.
        """
        watch = Stopwatch()
        config = self._config
        self._verifier.configure(config.verification)
        self._pairwise.configure(config.pairwise, config.odometry_noise)
        query = keyframe_query.keyframe
        rejected: list[Candidate] = []
        verified: LoopClosure | None = None
        trusted: list[LoopClosure] = []
        for candidate, place in zip(keyframe_query.candidates, keyframe_query.places, strict=True):
            if len(rejected) == config.max_candidates:
                break
            predicted = self._pairwise.predict(query, place)
            radius_m = config.verification.max_loop_distance_m
            if predicted is not None and not self._pairwise.allows(predicted, radius_m):
                continue
            T_guess = None
            if predicted is not None and predicted.traveled_m <= MAX_GUESS_DISTANCE_M:
                T_guess = predicted.T_match_query
            verified = self._verifier.verify(query, place, candidate.match, T_guess)
            watch.lap('verify')
            if verified is not None:
                trusted = self._trust(verified, query, place)
                watch.lap('agree')
                break
            rejected.append(candidate)
        return VerificationResult(
            query.id,
            verified,
            tuple(trusted),
            rejected=tuple(rejected),
            seconds=watch.seconds,
        )

    def _trust(self, loop: LoopClosure, query: Keyframe, match: Keyframe) -> list[LoopClosure]:
        """Return the loop closures that can be published given this one."""
        if query.T_odom_sensor is None or match.T_odom_sensor is None:
            return [loop]  # consistency cannot be checked without odometry
        return self._pairwise.add(loop, query, match)
