"""The second half of the pipeline: candidates to loop closures that agree with each other."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.geometry import invert
from lpr_ros.core.pairwise import PairwiseConfig, PairwiseConsistency
from lpr_ros.core.recogniser import Sighting
from lpr_ros.core.records import Keyframe, LoopClosure
from lpr_ros.core.stopwatch import Stopwatch
from lpr_ros.core.support import Candidate
from lpr_ros.core.verification import VerificationConfig, make_verifier

GUESS_WAY_M = 30.0  # a loop this far back on the way still tells about where the query is
GUESSES = 4


@dataclass(frozen=True, eq=False)
class Verdict:
    """What became of the candidates of one keyframe."""

    query_id: int
    verified: LoopClosure | None  # accepted by geometry
    trusted: tuple[LoopClosure, ...]  # may be published now; earlier ones may be among them
    rejected: tuple[Candidate, ...]  # by geometry
    seconds: dict[str, float] = field(default_factory=dict)  # by stage


@dataclass(frozen=True, eq=False)
class _Known:
    """A verified loop with what odometry had of its ends."""

    loop: LoopClosure
    query: Keyframe
    match: Keyframe


class LoopCloser:
    """Verifies candidates and checks the loops against each other. For one thread."""

    def __init__(self, verification: VerificationConfig, pairwise: PairwiseConfig, verified: int):
        self._pairwise = PairwiseConsistency(pairwise)
        self._recent: deque[_Known] = deque(maxlen=GUESSES)
        self.configure(verification, pairwise, verified)

    def configure(
        self, verification: VerificationConfig, pairwise: PairwiseConfig, verified: int
    ) -> None:
        """Take new settings; what was found so far stays."""
        self._verifier = make_verifier(verification)
        self._pairwise.config = pairwise
        self._most_verified = verified

    def close(self, sighting: Sighting) -> Verdict:
        """Verify the candidates, best first, until one is accepted."""
        watch = Stopwatch()
        query = sighting.keyframe
        rejected: list[Candidate] = []
        verified: LoopClosure | None = None
        trusted: list[LoopClosure] = []
        pairs = list(zip(sighting.candidates, sighting.places, strict=True))
        for candidate, place in pairs[: self._most_verified]:
            guess = self._guess(query, place)
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
        self._recent.append(_Known(loop, query, match))
        return self._pairwise.add(loop, query, match)

    def _guess(self, query: Keyframe, place: Keyframe) -> NDArray[np.float64] | None:
        """Say where the query is, by the newest loop nearby and odometry since."""
        if query.T_odom_sensor is None or place.T_odom_sensor is None:
            return None
        for known in reversed(self._recent):
            same = (known.query.session, known.match.session) == (query.session, place.session)
            if same and query.travelled_m - known.query.travelled_m <= GUESS_WAY_M:
                return carried(known.loop, known.query, known.match, query, place)
        return None


def carried(
    loop: LoopClosure, loop_query: Keyframe, loop_match: Keyframe, query: Keyframe, place: Keyframe
) -> NDArray[np.float64] | None:
    """Return T_place_query along odometry from the ends of a loop of the same sessions."""
    ends = (loop_query, loop_match, query, place)
    T_loop_query, T_loop_match, T_query, T_place = (k.T_odom_sensor for k in ends)
    if T_loop_query is None or T_loop_match is None or T_query is None or T_place is None:
        return None
    T_place_match = invert(T_place) @ T_loop_match
    T_place_query: NDArray[np.float64] = (
        T_place_match @ loop.T_match_query @ invert(T_loop_query) @ T_query
    )
    return T_place_query
