"""The second half of the pipeline: candidates to loop closures that agree with each other."""

from dataclasses import dataclass, field

from lpr_ros.core.pairwise import PairwiseConfig, PairwiseConsistency
from lpr_ros.core.recogniser import Sighting
from lpr_ros.core.records import Keyframe, LoopClosure
from lpr_ros.core.stopwatch import Stopwatch
from lpr_ros.core.support import Candidate
from lpr_ros.core.verification import VerificationConfig, make_verifier

GUESS_WAY_M = 60.0  # odometry since a trusted loop that still tells where to begin refining


@dataclass(frozen=True, eq=False)
class Verdict:
    """What became of the candidates of one keyframe."""

    query_id: int
    verified: LoopClosure | None = None  # accepted by geometry
    trusted: tuple[LoopClosure, ...] = ()  # may be published now; earlier ones may be among them
    rejected: tuple[Candidate, ...] = ()  # by geometry
    seconds: dict[str, float] = field(default_factory=dict)  # by stage


class LoopCloser:
    """Verifies candidates and checks the loops against each other. For one thread."""

    def __init__(self, verification: VerificationConfig, pairwise: PairwiseConfig, verified: int):
        self._pairwise = PairwiseConsistency(pairwise)
        self.configure(verification, pairwise, verified)

    def configure(
        self, verification: VerificationConfig, pairwise: PairwiseConfig, verified: int
    ) -> None:
        """Take new settings; what was found so far stays."""
        self._verifier = make_verifier(verification)
        self._farthest_m = verification.farthest_m
        self._pairwise.config = pairwise
        self._most_verified = verified

    def close(self, sighting: Sighting) -> Verdict:
        """Verify the candidates that odometry allows, best first, until one is accepted."""
        watch = Stopwatch()
        pairwise = self._pairwise.config
        query = sighting.keyframe
        rejected: list[Candidate] = []
        verified: LoopClosure | None = None
        trusted: list[LoopClosure] = []
        for candidate, place in zip(sighting.candidates, sighting.places, strict=True):
            if len(rejected) == self._most_verified:
                break
            known = self._pairwise.predict(query, place)
            if known is not None and not known.is_within(self._farthest_m, pairwise):
                continue
            guess = None if known is None or known.way_m > GUESS_WAY_M else known.T_match_query
            verified = self._verifier.verify(query, place, candidate.match, guess)
            watch.lap('verify')
            if verified is not None:
                trusted = self._trust(verified, query, place)
                watch.lap('agree')
                break
            rejected.append(candidate)
        return Verdict(query.id, verified, tuple(trusted), tuple(rejected), watch.seconds)

    def _trust(self, loop: LoopClosure, query: Keyframe, match: Keyframe) -> list[LoopClosure]:
        """Return the loops that may be published now that this one is known."""
        if query.T_odom_sensor is None or match.T_odom_sensor is None:
            return [loop]  # nothing to check it against
        return self._pairwise.add(loop, query, match)
