"""Pairwise consistency (PCM): trust only loop closures that agree with each other and odometry.

Two loop closures and the odometry between their ends form a cycle. Composed around the cycle, the
poses should give the identity within the covariances of the loop closures and the odometry drift.
The trusted loop closures are the largest clique found in which every pair is consistent. A loop
closure within one session also forms a cycle with odometry alone; in a row of identical houses,
nothing else exposes a wrong one.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.config import Config, option
from lpr_ros.core.geometry.odometry_noise import OdometryNoiseConfig, drift_covariance
from lpr_ros.core.geometry.se3 import adjoint, invert, local_error, propagate
from lpr_ros.core.types import Keyframe, LoopClosure


@dataclass(frozen=True)
class PairwiseConfig(Config):
    """When loop closures are consistent, and how many must be."""

    chi2: float = option(
        22.5,
        'Maximum squared Mahalanobis distance of a consistent cycle, 6 degrees of freedom; '
        '22.5 keeps 99.9 % of correct loop closures',
        low=0.0,
    )
    min_consistent_loops: int = option(
        1, 'Number of other consistent loop closures required before one is published', low=0
    )
    window: int = option(
        500,
        'Maximum number of recent loop closures per pair of sessions to check consistency with',
        low=1,
    )


@dataclass(frozen=True, eq=False)
class LoopWithOdometry:
    """A loop closure and the odometry of its two keyframes."""

    loop: LoopClosure
    T_query: NDArray[np.float64]
    T_match: NDArray[np.float64]
    traveled_query_m: float
    traveled_match_m: float


@dataclass(frozen=True, eq=False)
class Prediction:
    """Relative pose of two keyframes from odometry and at most one trusted loop closure."""

    T_match_query: NDArray[np.float64]  # (4, 4)
    traveled_m: float  # odometry distance that it accumulates drift over


class PairwiseConsistency:
    """Receives loop closures one by one and returns the ones that can be trusted."""

    def __init__(
        self, config: PairwiseConfig | None = None, noise: OdometryNoiseConfig | None = None
    ):
        self.configure(config or PairwiseConfig(), noise or OdometryNoiseConfig())
        self._groups: dict[tuple[str, str], _Group] = {}
        self._reported: set[tuple[int, int]] = set()

    def configure(self, config: PairwiseConfig, noise: OdometryNoiseConfig) -> None:
        """Use new settings from the next loop closure on; past ones are kept."""
        self.config, self._noise = config, noise

    def predict(self, query: Keyframe, match: Keyframe) -> Prediction | None:
        """Predict the relative pose over the least odometry; None if nothing connects the two."""
        T_query, T_match = query.T_odom_sensor, match.T_odom_sensor
        if T_query is None or T_match is None:
            return None
        direct: Prediction | None = None
        if query.session == match.session:
            traveled_m = abs(query.traveled_m - match.traveled_m)
            direct = Prediction(invert(T_match) @ T_query, traveled_m)
        group = self._groups.get((query.session, match.session))
        if group is None or not self._is_trusted(group):
            return direct
        trusted = [group.entries[i] for i in group.clique]
        distances_m = [
            abs(query.traveled_m - t.traveled_query_m) + abs(match.traveled_m - t.traveled_match_m)
            for t in trusted
        ]
        nearest = int(np.argmin(distances_m))
        if direct is not None and direct.traveled_m <= distances_m[nearest]:
            return direct
        via = trusted[nearest]
        T_match_query = (
            invert(T_match) @ via.T_match @ via.loop.T_match_query @ invert(via.T_query) @ T_query
        )
        return Prediction(T_match_query, distances_m[nearest])

    def allows(self, prediction: Prediction, radius_m: float) -> bool:
        """Return whether two keyframes can be within radius_m of each other, given drift."""
        variance = drift_covariance(prediction.traveled_m, self._noise)[0, 0]
        allowed_m = radius_m + float(np.sqrt(self.config.chi2 * variance))
        return float(np.linalg.norm(prediction.T_match_query[:3, 3])) <= allowed_m

    def add(self, loop: LoopClosure, query: Keyframe, match: Keyframe) -> list[LoopClosure]:
        """Add a loop closure; return those that are newly trusted, each once.

        Without odometry a loop closure cannot be checked and is never trusted.
        """
        entry = with_odometry(loop, query, match)
        if entry is None:
            return []
        if query.session == match.session and not is_consistent_with_odometry(
            entry, self._noise, self.config.chi2
        ):
            return []
        group = self._groups.setdefault((query.session, match.session), _Group())
        dropped = group.append(entry, self._consistent(entry, group.entries), self.config.window)
        self._reported -= {_key(x.loop) for x in dropped}
        if not self._is_trusted(group):
            return []
        loops = [group.entries[i].loop for i in sorted(group.clique)]
        fresh = [x for x in loops if _key(x) not in self._reported]
        self._reported.update(map(_key, fresh))
        return fresh

    def _is_trusted(self, group: '_Group') -> bool:
        return len(group.clique) > self.config.min_consistent_loops

    def _consistent(
        self, entry: LoopWithOdometry, others: list[LoopWithOdometry]
    ) -> NDArray[np.bool_]:
        if not others:
            return np.zeros(0, dtype=bool)
        return cycle_errors(entry, others, self._noise) <= self.config.chi2


class _Group:
    """Loop closures between one pair of sessions, and the largest clique found among them."""

    def __init__(self) -> None:
        self.entries: list[LoopWithOdometry] = []
        self.consistent: NDArray[np.bool_] = np.zeros((0, 0), dtype=bool)
        self.clique: tuple[int, ...] = ()

    def append(
        self, entry: LoopWithOdometry, consistent: NDArray[np.bool_], window: int
    ) -> list[LoopWithOdometry]:
        """Add an entry, given which of the others it is consistent with; update the clique.

        Return the entries that no longer fit into the window.
        """
        count = len(self.entries)
        grown = np.zeros((count + 1, count + 1), dtype=bool)
        grown[:count, :count] = self.consistent
        grown[count, :count] = grown[:count, count] = consistent
        self.entries.append(entry)
        self.consistent = grown
        # A clique larger than the present one must contain the new entry.
        if consistent[list(self.clique)].all():
            candidate = (*self.clique, count)
        else:
            candidate = _grow_clique(self.consistent, count)
        if len(candidate) > len(self.clique):
            self.clique = candidate
        excess = max(0, len(self.entries) - window)
        dropped, self.entries = self.entries[:excess], self.entries[excess:]
        self.consistent = self.consistent[excess:, excess:]
        self.clique = tuple(i - excess for i in self.clique if i >= excess)
        return dropped


def with_odometry(loop: LoopClosure, query: Keyframe, match: Keyframe) -> LoopWithOdometry | None:
    """Attach the odometry of both keyframes; None if either has none."""
    T_query, T_match = query.T_odom_sensor, match.T_odom_sensor
    if T_query is None or T_match is None or not np.isfinite([T_query, T_match]).all():
        return None
    return LoopWithOdometry(loop, T_query, T_match, query.traveled_m, match.traveled_m)


def is_consistent_with_odometry(
    entry: LoopWithOdometry, noise: OdometryNoiseConfig, chi2: float
) -> bool:
    """Return whether odometry drift explains the error of a loop closure within a session."""
    T_match_query = invert(entry.T_match) @ entry.T_query
    error = local_error(T_match_query, entry.loop.T_match_query)
    traveled_m = abs(entry.traveled_query_m - entry.traveled_match_m)
    covariance = drift_covariance(traveled_m, noise) + entry.loop.covariance
    return bool(error @ np.linalg.solve(covariance, error) <= chi2)


def cycle_errors(
    entry: LoopWithOdometry, others: list[LoopWithOdometry], noise: OdometryNoiseConfig
) -> NDArray[np.float64]:
    """Return the squared Mahalanobis distance of the cycle with each other loop closure, (N,).

    The cycle: from the match to the query of this loop closure, along odometry to the other
    query, through the other loop closure to its match, and along odometry back to the start.
    """
    T_query1_query2 = invert(entry.T_query) @ np.stack([o.T_query for o in others])
    T_match2_match1 = invert(np.stack([o.T_match for o in others])) @ entry.T_match
    T_query2_match2 = invert(np.stack([o.loop.T_match_query for o in others]))
    T_query2_match1 = T_query2_match2 @ T_match2_match1
    T_query1_match1 = T_query1_query2 @ T_query2_match1
    error = local_error(entry.loop.T_match_query @ T_query1_match1, np.eye(4))
    queries_m = np.array([abs(o.traveled_query_m - entry.traveled_query_m) for o in others])
    matches_m = np.array([abs(o.traveled_match_m - entry.traveled_match_m) for o in others])
    second = np.stack([o.loop.covariance for o in others]) + drift_covariance(queries_m, noise)
    covariance = (
        propagate(adjoint(invert(T_query1_match1)), entry.loop.covariance)
        + propagate(adjoint(invert(T_query2_match1)), second)
        + drift_covariance(matches_m, noise)
    )
    weighted = np.linalg.solve(covariance, error[..., None])[..., 0]
    squared: NDArray[np.float64] = np.einsum('ni,ni->n', error, weighted)
    return squared


def _grow_clique(consistent: NDArray[np.bool_], start: int) -> tuple[int, ...]:
    """Grow a clique from one member greedily, by the candidate with the most remaining edges."""
    members = [start]
    rest = np.flatnonzero(consistent[start])
    degree = consistent[np.ix_(rest, rest)].sum(axis=1)
    while len(rest):
        newest_best = len(rest) - 1 - int(np.argmax(degree[::-1]))
        members.append(int(rest[newest_best]))
        stays = consistent[rest[newest_best], rest]
        # Degrees are updated, not recomputed, which takes 0.1 s with hundreds of loop closures.
        degree = degree[stays] - consistent[np.ix_(rest[stays], rest[~stays])].sum(axis=1)
        rest = rest[stays]
    return tuple(members)


def _key(loop: LoopClosure) -> tuple[int, int]:
    return loop.query_id, loop.match_id
