"""Pairwise consistency: loop closures that contradict the others are not trusted.

Two loops and the odometry between their ends make a cycle. Gone round once, one should be back:
off by no more than the covariances of the loops and the drift of odometry allow. Trusted is the
largest set of loops found in which every two are consistent. A loop within one session makes such
a cycle with odometry alone: in a row of equal houses, nothing else tells a wrong one.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.config import Config, option
from lpr_ros.core.geometry import invert
from lpr_ros.core.odometry_noise import OdometryNoiseConfig, drift_covariance
from lpr_ros.core.records import Keyframe, LoopClosure
from lpr_ros.core.tangent import adjoint, motion_between, propagate


@dataclass(frozen=True)
class PairwiseConfig(Config):
    """When loops are consistent, and how many must be."""

    chi2: float = option(
        22.5, 'squared error of a cycle, in sigmas, of 6 numbers; 22.5 keeps 99.9 %', low=0.0
    )
    fewest_agreeing: int = option(1, 'other loops that must agree before one is trusted', low=0)
    window: int = option(500, 'most loops compared with, the newest', low=1)
    odometry: OdometryNoiseConfig = field(default_factory=OdometryNoiseConfig)


@dataclass(frozen=True, eq=False)
class PlacedLoop:
    """A loop and where odometry has its two ends."""

    loop: LoopClosure
    T_query: NDArray[np.float64]
    T_match: NDArray[np.float64]
    travelled_query_m: float
    travelled_match_m: float


@dataclass(frozen=True, eq=False)
class Prediction:
    """Where a keyframe is as seen from another, by odometry and at most one trusted loop."""

    T_match_query: NDArray[np.float64]  # (4, 4)
    way_m: float  # of odometry that it rests on, with all its drift

    def is_within(self, radius_m: float, config: PairwiseConfig) -> bool:
        """Say whether the two may be this near to each other."""
        variance = drift_covariance(self.way_m, config.odometry)[0, 0]
        allowed_m = radius_m + float(np.sqrt(config.chi2 * variance))
        return float(np.linalg.norm(self.T_match_query[:3, 3])) <= allowed_m


class _Group:
    """Loops between one pair of sessions, and which of them are consistent."""

    def __init__(self) -> None:
        self.entries: list[PlacedLoop] = []
        self.agree: NDArray[np.bool_] = np.zeros((0, 0), dtype=bool)
        self.trusted: tuple[int, ...] = ()

    def append(
        self, entry: PlacedLoop, agrees: NDArray[np.bool_], window: int
    ) -> list[PlacedLoop]:
        """Take a loop that agrees with these of the loops so far; find the largest set anew.

        Return the loops forgotten for it.
        """
        count = len(self.entries)
        grown = np.zeros((count + 1, count + 1), dtype=bool)
        grown[:count, :count] = self.agree
        grown[count, :count] = grown[:count, count] = agrees
        self.entries.append(entry)
        self.agree = grown
        # The largest set either stays or has the new loop in it.
        if agrees[list(self.trusted)].all():
            found = (*self.trusted, count)
        else:
            found = _grow(self.agree, count)
        if len(found) > len(self.trusted):
            self.trusted = found
        excess = max(0, len(self.entries) - window)
        forgotten, self.entries = self.entries[:excess], self.entries[excess:]
        self.agree = self.agree[excess:, excess:]
        self.trusted = tuple(i - excess for i in self.trusted if i >= excess)
        return forgotten


class PairwiseConsistency:
    """Takes loops one by one and says which may be trusted now."""

    def __init__(self, config: PairwiseConfig | None = None):
        self.config = config or PairwiseConfig()  # may be replaced at any time
        self._groups: dict[tuple[str, str], _Group] = {}
        self._reported: set[tuple[int, int]] = set()

    @property
    def trusted(self) -> list[LoopClosure]:
        """Loops of the largest consistent sets, of all sessions, in order of arrival."""
        return [
            group.entries[i].loop
            for group in self._groups.values()
            if len(group.trusted) > self.config.fewest_agreeing
            for i in sorted(group.trusted)
        ]

    def add(self, loop: LoopClosure, query: Keyframe, match: Keyframe) -> list[LoopClosure]:
        """Take the next loop; return loops trusted now that were not returned before.

        A loop whose keyframes have no odometry cannot be checked, and is never trusted.
        """
        entry = place(loop, query, match)
        if entry is None:
            return []
        if query.session == match.session and not agrees_with_odometry(entry, self.config):
            return []
        group = self._groups.setdefault((query.session, match.session), _Group())
        forgotten = group.append(
            entry, self._agreeing(entry, group.entries), self.config.window
        )
        self._reported -= {_ends(x.loop) for x in forgotten}
        if len(group.trusted) <= self.config.fewest_agreeing:
            return []
        loops = [group.entries[i].loop for i in sorted(group.trusted)]
        fresh = [x for x in loops if _ends(x) not in self._reported]
        self._reported.update(map(_ends, fresh))
        return fresh

    def predict(self, query: Keyframe, match: Keyframe) -> Prediction | None:
        """Say where the query is as seen from the match, by the shortest way known, or None."""
        T_query, T_match = query.T_odom_sensor, match.T_odom_sensor
        if T_query is None or T_match is None:
            return None
        best: Prediction | None = None
        if query.session == match.session:
            way_m = abs(query.travelled_m - match.travelled_m)
            best = Prediction(invert(T_match) @ T_query, way_m)
        group = self._groups.get((query.session, match.session))
        if group is None or len(group.trusted) <= self.config.fewest_agreeing:
            return best
        known = [group.entries[i] for i in group.trusted]
        ways_m = [
            abs(query.travelled_m - k.travelled_query_m)
            + abs(match.travelled_m - k.travelled_match_m)
            for k in known
        ]
        nearest = int(np.argmin(ways_m))
        if best is not None and best.way_m <= ways_m[nearest]:
            return best
        through = known[nearest]
        T_match_query = (
            invert(T_match) @ through.T_match @ through.loop.T_match_query
            @ invert(through.T_query) @ T_query
        )
        return Prediction(T_match_query, ways_m[nearest])

    def _agreeing(self, entry: PlacedLoop, others: list[PlacedLoop]) -> NDArray[np.bool_]:
        if not others:
            return np.zeros(0, dtype=bool)
        return cycle_errors(entry, others, self.config.odometry) <= self.config.chi2


def cycle_errors(
    entry: PlacedLoop, others: list[PlacedLoop], noise: OdometryNoiseConfig
) -> NDArray[np.float64]:
    """Squared error, in sigmas, of the cycle that a loop makes with each of the others, (N,).

    The cycle: from the loop's match to its query, along odometry to the other's query, back
    through the other loop to its match, along odometry to where it began.
    """
    T_query1_query2 = invert(entry.T_query) @ np.stack([o.T_query for o in others])
    T_match2_match1 = invert(np.stack([o.T_match for o in others])) @ entry.T_match
    T_query2_match2 = invert(np.stack([o.loop.T_match_query for o in others]))
    T_query2_match1 = T_query2_match2 @ T_match2_match1
    T_query1_match1 = T_query1_query2 @ T_query2_match1
    motion = motion_between(entry.loop.T_match_query @ T_query1_match1, np.eye(4))
    way_query = np.array([abs(o.travelled_query_m - entry.travelled_query_m) for o in others])
    way_match = np.array([abs(o.travelled_match_m - entry.travelled_match_m) for o in others])
    second = np.stack([o.loop.covariance for o in others]) + drift_covariance(way_query, noise)
    covariance = (
        propagate(adjoint(invert(T_query1_match1)), entry.loop.covariance)
        + propagate(adjoint(invert(T_query2_match1)), second)
        + drift_covariance(way_match, noise)
    )
    weighted = np.linalg.solve(covariance, motion[..., None])[..., 0]
    errors: NDArray[np.float64] = np.einsum('ni,ni->n', motion, weighted)
    return errors


def agrees_with_odometry(entry: PlacedLoop, config: PairwiseConfig) -> bool:
    """Say whether a loop within a session is where odometry, with its drift, allows it to be."""
    T_match_query = invert(entry.T_match) @ entry.T_query
    motion = motion_between(T_match_query, entry.loop.T_match_query)
    way_m = abs(entry.travelled_query_m - entry.travelled_match_m)
    covariance = drift_covariance(way_m, config.odometry) + entry.loop.covariance
    return bool(motion @ np.linalg.solve(covariance, motion) <= config.chi2)


def place(loop: LoopClosure, query: Keyframe, match: Keyframe) -> PlacedLoop | None:
    """Put a loop where odometry has its ends; None where there is no odometry."""
    T_query, T_match = query.T_odom_sensor, match.T_odom_sensor
    if T_query is None or T_match is None or not np.isfinite([T_query, T_match]).all():
        return None
    return PlacedLoop(loop, T_query, T_match, query.travelled_m, match.travelled_m)


def _ends(loop: LoopClosure) -> tuple[int, int]:
    return loop.query_id, loop.match_id


def _grow(agree: NDArray[np.bool_], start: int) -> tuple[int, ...]:
    """Grow a set in which all agree, from one member, always by whom most of the rest like."""
    members = [start]
    rest = np.flatnonzero(agree[start])
    popularity = agree[np.ix_(rest, rest)].sum(axis=1)
    while len(rest):
        newest_best = len(rest) - 1 - int(np.argmax(popularity[::-1]))
        members.append(int(rest[newest_best]))
        stays = agree[rest[newest_best], rest]
        # Counted down, not anew: with hundreds of loops that took a tenth of a second.
        popularity = popularity[stays] - agree[np.ix_(rest[stays], rest[~stays])].sum(axis=1)
        rest = rest[stays]
    return tuple(members)
