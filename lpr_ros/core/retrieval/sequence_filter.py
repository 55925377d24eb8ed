"""Select candidates among matches: those supported by the queries before them, once per place.

A single wrong match is common; several in a row whose relative distances equal those of their
queries are not. Only distances between keyframes of one session are compared, so drift between
sessions and the direction of travel do not matter.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import ConfigError
from lpr_ros.core.types import Candidate, Keyframe, Match, Place

T = TypeVar('T')


@dataclass(frozen=True)
class SequenceFilterConfig(Config):
    """Which matches become candidates for verification."""

    min_probability: float = option(
        0.0, 'Minimum probability that a match is the same place', low=0.0, high=1.0
    )
    max_distance: float = option(
        0.0, 'Maximum descriptor distance of a match; 0 disables the limit', low=0.0
    )
    window: int = option(
        4, 'Number of earlier queries of the session that can support a match', low=0, high=1000
    )
    window_m: float = option(
        30.0, 'Maximum distance traveled since a supporting query', unit='m', low=0.0
    )
    min_support: int = option(
        2, 'Minimum number of supporting queries; 0 disables the check', low=0
    )
    tolerance_m: float = option(
        2.5,
        'Tolerance between the distance of two queries and the distance of their matches',
        unit='m',
        low=0.0,
    )
    tolerance_fraction: float = option(
        0.2, 'Additional tolerance as a fraction of the distance between two queries', low=0.0
    )
    tolerance_keyframes: int = option(
        2, 'Tolerance between two queries and their matches in keyframes, without odometry', low=0
    )
    spacing_m: float = option(
        10.0,
        'Keep only the best of the matches of a query that lie within this distance of each '
        'other; 0 keeps all',
        unit='m',
        low=0.0,
    )
    repeat_m: float = option(
        1.0,
        'Skip a candidate whose query and match both lie within this distance of an earlier '
        'candidate; 0 keeps all',
        unit='m',
        low=0.0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_support > self.window:
            raise ConfigError(
                f'SequenceFilterConfig.min_support: {self.min_support} exceeds window, '
                f'{self.window}: no match would ever become a candidate'
            )


@dataclass(frozen=True)
class Visit:
    """The place of one query, and the places it matched."""

    query: Place
    matched: tuple[Place, ...]


class SequenceFilter:
    """Keeps the last queries of each session, and selects candidates among new matches."""

    def __init__(self, config: SequenceFilterConfig):
        self.config = config  # can change at any time
        self._visits: dict[str, deque[Visit]] = {}
        self._accepted: dict[str, deque[tuple[Place, Place]]] = {}

    def candidates(
        self, query: Keyframe, matches: Sequence[Match], places: Sequence[Place]
    ) -> list[Candidate]:
        """Return the supported matches, nearest descriptor first; places are those of the matches.

        Queries of one session must come in order of time, each once.
        """
        c = self.config
        visits = _last(self._visits, query.session, c.window)
        accepted = _last(self._accepted, query.session, max(1, c.window))
        gated = [pair for pair in zip(matches, places, strict=True) if is_likely(pair[0], c)]
        order = visits[-1].query.order + 1 if visits else 0
        here = Place(
            query.id, query.session, order, query.stamp_ns, query.T_odom_sensor, query.traveled_m
        )
        found = []
        for match, place in spaced(gated, c.spacing_m):
            support = support_of(here, place, visits, c)
            if support >= c.min_support and not _is_repeated(here, place, accepted, c.repeat_m):
                found.append((Candidate(match, support), place))
        accepted.extend((here, place) for _, place in found)
        visits.append(Visit(here, tuple(place for _, place in gated)))
        return [candidate for candidate, _ in found]


def _last(by_session: dict[str, deque[T]], session: str, count: int) -> deque[T]:
    """Return the history of a session, resized to the configured length."""
    last = by_session.get(session)
    if last is None or last.maxlen != count:
        last = by_session[session] = deque(last or (), maxlen=count)
    return last


def is_likely(match: Match, config: SequenceFilterConfig) -> bool:
    """Apply the descriptor gates; a NaN probability (no calibration) passes."""
    if config.max_distance > 0.0 and match.distance > config.max_distance:
        return False
    return not match.probability < config.min_probability


def support_of(
    query: Place, place: Place, visits: Iterable[Visit], config: SequenceFilterConfig
) -> int:
    """Return the number of earlier visits consistent with the query being at the place."""
    support = 0
    for visit in visits:
        if query.traveled_m - visit.query.traveled_m > config.window_m:
            continue
        support += any(
            _is_consistent(query, place, visit.query, other, config)
            for other in visit.matched
            if other.session == place.session
        )
    return support


def spaced(matches: Sequence[tuple[Match, Place]], spacing_m: float) -> list[tuple[Match, Place]]:
    """Of matches within the spacing of each other keep the first, which is the best."""
    kept: list[tuple[Match, Place]] = []
    for match, place in matches:
        if not any(is_near(place, other, spacing_m) for _, other in kept):
            kept.append((match, place))
    return kept


def is_near(a: Place, b: Place, radius_m: float) -> bool:
    """Return whether two places of one session lie within a radius; False without odometry."""
    gap_m = separation_m(a, b)
    return gap_m is not None and gap_m < radius_m


def separation_m(a: Place, b: Place) -> float | None:
    """Return the distance between two places of one session; None if it is unknown."""
    if a.session != b.session or a.T_odom_sensor is None or b.T_odom_sensor is None:
        return None
    return float(np.linalg.norm(a.T_odom_sensor[:3, 3] - b.T_odom_sensor[:3, 3]))


def _is_consistent(
    query: Place, place: Place, earlier: Place, other: Place, config: SequenceFilterConfig
) -> bool:
    """Return whether two matches are as far apart as their queries."""
    query_gap_m, match_gap_m = separation_m(query, earlier), separation_m(place, other)
    if query_gap_m is None or match_gap_m is None:
        steps = abs(place.order - other.order)
        return abs(steps - (query.order - earlier.order)) <= config.tolerance_keyframes
    tolerance_m = config.tolerance_m + config.tolerance_fraction * query_gap_m
    return abs(match_gap_m - query_gap_m) <= tolerance_m


def _is_repeated(
    query: Place, place: Place, accepted: Iterable[tuple[Place, Place]], radius_m: float
) -> bool:
    return any(
        is_near(query, earlier, radius_m) and is_near(place, other, radius_m)
        for earlier, other in accepted
    )
