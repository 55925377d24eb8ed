"""Which matches count: those that the drive before them agrees with, once per place.

One wrong match is easily found; several in a row that lie to each other as the queries do are
not. Only distances between keyframes of one session are compared, so drift between sessions and
the direction of travel do not matter: driven the other way, the places merely come in reverse.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import ConfigError
from lpr_ros.core.records import Keyframe, Match, Place

T = TypeVar('T')
PlaceOf = Callable[[int], Place]


@dataclass(frozen=True)
class SupportConfig(Config):
    """Which matches become candidates for verification."""

    min_probability: float = option(
        0.0, 'matches less likely to be the same place are ignored', low=0.0, high=1.0
    )
    max_distance: float = option(
        0.0, 'matches with descriptors further apart are ignored; 0 ignores none', low=0.0
    )
    window: int = option(4, 'earlier queries of the session that are asked', low=0, high=1000)
    window_m: float = option(30.0, 'travelled since them at most', unit='m', low=0.0)
    min_support: int = option(2, 'of which so many must agree; 0 asks none', low=0)
    tolerance_m: float = option(
        2.5, 'their matches lie as far from the candidate as they from the query, within this',
        unit='m', low=0.0,
    )
    tolerance_share: float = option(0.2, 'plus this share of that distance', low=0.0)
    tolerance_keyframes: int = option(2, 'the same without odometry, in keyframes', low=0)
    spacing_m: float = option(
        10.0, 'of matches of one query nearer to each other, the best counts; 0 keeps all',
        unit='m', low=0.0,
    )
    repeat_m: float = option(
        1.0, 'a candidate with query and place this near to those of an earlier one is left out; '
        '0 keeps all', unit='m', low=0.0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_support > self.window:
            raise ConfigError(
                f'SupportConfig.min_support: {self.min_support} is more than window, '
                f'{self.window}: no match would ever count'
            )


@dataclass(frozen=True)
class Candidate:
    """A match worth verifying."""

    match: Match
    support: int  # earlier queries that agree
    direction: int  # 1: driven the same way as then, -1: the opposite way, 0: not known


@dataclass(frozen=True)
class Visit:
    """One query as a place, and the places it matched."""

    query: Place
    matched: tuple[Place, ...]


class SequenceSupport:
    """Remembers the last queries of each session, and picks candidates among matches."""

    def __init__(self, config: SupportConfig):
        self.config = config  # may be replaced at any time
        self._visits: dict[str, deque[Visit]] = {}
        self._passed: dict[str, deque[tuple[Place, Place]]] = {}

    def candidates(
        self, query: Keyframe, matches: Sequence[Match], place_of: PlaceOf
    ) -> list[Candidate]:
        """Return the matches that count, nearest descriptor first; `place_of` is the database's.

        Queries of one session come in order of time, each once.
        """
        c = self.config
        visits = _last(self._visits, query.session, c.window)
        passed = _last(self._passed, query.session, max(1, c.window))
        gated = [m for m in matches if is_likely(m, c)]
        order = visits[-1].query.order + 1 if visits else 0
        here = Place(
            query.id, query.session, order, query.stamp_ns, query.T_odom_sensor, query.travelled_m
        )
        visit = Visit(here, tuple(place_of(m.keyframe_id) for m in gated))
        found = []
        for match, place in thinned(list(zip(gated, visit.matched, strict=True)), c.spacing_m):
            support, direction = support_of(here, place, visits, c)
            if support >= c.min_support and not _is_repeated(here, place, passed, c.repeat_m):
                found.append(Candidate(match, support, direction))
        passed.extend((here, place_of(f.match.keyframe_id)) for f in found)
        visits.append(visit)
        return found


def _last(kept: dict[str, deque[T]], session: str, count: int) -> deque[T]:
    """Return what is kept of a session, as a deque of the length now asked for."""
    found = kept.get(session)
    if found is None or found.maxlen != count:
        found = kept[session] = deque(found or (), maxlen=count)
    return found


def is_likely(match: Match, config: SupportConfig) -> bool:
    """Pass the gate of the descriptor; without calibration, probability NaN, only distance."""
    if config.max_distance > 0.0 and match.distance > config.max_distance:
        return False
    return not match.probability < config.min_probability  # NaN passes


def support_of(
    query: Place, place: Place, visits: Iterable[Visit], config: SupportConfig
) -> tuple[int, int]:
    """Return how many visits agree that the query is at the place, and the direction of travel."""
    support, forward = 0, 0
    for visit in visits:
        if query.travelled_m - visit.query.travelled_m > config.window_m:
            continue
        agreeing = [
            other for other in visit.matched
            if other.session == place.session and _agrees(query, place, visit.query, other, config)
        ]
        support += bool(agreeing)
        if agreeing:
            forward += int(np.sign(place.order - agreeing[0].order))
    return support, int(np.sign(forward))


def thinned(
    matches: Sequence[tuple[Match, Place]], spacing_m: float
) -> list[tuple[Match, Place]]:
    """Keep the best of matches nearer to each other than the spacing; matches come best first."""
    kept: list[tuple[Match, Place]] = []
    for match, place in matches:
        if not any(is_near(place, other, spacing_m) for _, other in kept):
            kept.append((match, place))
    return kept


def is_near(a: Place, b: Place, radius_m: float) -> bool:
    """Tell whether two places of one session lie this near; without odometry, never."""
    gap_m = separation_m(a, b)
    return gap_m is not None and gap_m < radius_m


def separation_m(a: Place, b: Place) -> float | None:
    """Return the distance of two places of one session, None where poses do not tell."""
    if a.session != b.session or a.T_odom_sensor is None or b.T_odom_sensor is None:
        return None
    return float(np.linalg.norm(a.T_odom_sensor[:3, 3] - b.T_odom_sensor[:3, 3]))


def _agrees(
    query: Place, place: Place, earlier: Place, other: Place, config: SupportConfig
) -> bool:
    """Tell whether two matched places lie to each other as their queries do."""
    asked_m, answered_m = separation_m(query, earlier), separation_m(place, other)
    if asked_m is None or answered_m is None:
        steps = abs(place.order - other.order)
        return abs(steps - (query.order - earlier.order)) <= config.tolerance_keyframes
    tolerance_m = config.tolerance_m + config.tolerance_share * asked_m
    return abs(answered_m - asked_m) <= tolerance_m


def _is_repeated(
    query: Place, place: Place, passed: Iterable[tuple[Place, Place]], radius_m: float
) -> bool:
    return any(
        is_near(query, earlier, radius_m) and is_near(place, other, radius_m)
        for earlier, other in passed
    )
