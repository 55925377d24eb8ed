"""Gives matches their probability, judged against the other places of the same drive.

Odometry tells for free which places are elsewhere. Descriptor distances to those are what a wrong
match looks like with this sensor, in this city and with these weights.

The nearest of many wrong places is hardly nearer than the next nearest: if descriptor distances
of wrong places have a density like that of points in `dimension` dimensions, the logarithm of the
ratio of the two, the margin, is exponential with mean 1 / dimension (Renyi 1953), whatever the
scale of the descriptors. A right match is nearer by more. Everything else is estimated from the
session itself: the dimension from matches that odometry rules out, and the share and the margins
of right matches from the queries, as a mixture (EM) with weak priors.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lpr_ros.core.database.place_database import PlaceDatabase
from lpr_ros.core.geometry.odometry_noise import OdometryNoiseConfig, horizontal_sigma_m
from lpr_ros.core.types import Keyframe, Locations, Match

Floats = NDArray[np.float64]

MEMORY = 1000  # newest comparisons kept
ENOUGH = 100  # known wrong matches after which the session alone decides
ROUNDS = 8  # of EM
# Priors: a value, and the number of observations it counts as.
RIGHT_SHARE, RIGHT_SHARE_COUNT = 0.2, 10.0
# Revisits come in runs, so only the newest queries tell how frequent they are.
RIGHT_SHARE_WINDOW = 100
DIMENSION, DIMENSION_COUNT = 20.0, 20.0
RIGHT_SURPRISE, RIGHT_SURPRISE_COUNT = 6.0, 5.0
MIN_RIGHT_SURPRISE = 4.0  # less would explain the tail of wrong matches
WRONG_SURPRISE, WRONG_SURPRISE_COUNT = 1.0, 20.0
MIN_WRONG_SURPRISE = 0.2
ALIASED, ALIASED_COUNT = 0.01, 100.0  # wrong matches that look like right ones
UNLIKELY = 0.01  # right matches that look like wrong ones
RIGHT_SHAPE = 2.0  # of the gamma distribution of right matches: few have no margin at all
MAX_EXPONENT = 300.0  # exp() of it is finite

# A match within 5 m is right, beyond 10 m wrong; in between neither.
PLACE_RADIUS_M = 7.5
SIGMAS = 3.0  # of odometry drift
RANKED = 64  # nearest eligible keyframes among which rivals are sought
RECENT = 300  # newest keyframes of the session that odometry may rule out
SAMPLE = 512  # keyframes from which the number of rivals is estimated
MIN_DISTANCE = 1e-30  # equal descriptors; the logarithm is finite


class MatchProbability:
    """Collects what wrong matches look like, and judges the matches of each query."""

    def __init__(self, database: PlaceDatabase, odometry_noise: OdometryNoiseConfig):
        self.odometry_noise = odometry_noise  # can change at any time
        self.statistics = MatchStatistics()
        self._database = database

    def judge(self, query: Keyframe, ranked: Sequence[Match], count: int) -> list[Match]:
        """Return the first `count` matches with their probability, and learn from the query.

        `ranked` are the nearest RANKED eligible keyframes, nearest first. Every query of a
        session is judged once, in order of time, before it is added to the database.
        """
        known_ids, known_distances, known = self._learn_from_known_wrong(query)
        judged = ranked[:count]
        if not ranked or query.T_odom_sensor is None:
            return list(judged)  # without odometry, the calibration of the checkpoint holds
        distances = np.array([match.distance for match in ranked])
        places = self._database.locations(np.array([match.keyframe_id for match in ranked]))
        here = places.take(np.arange(len(judged)))
        eligible = self._database.eligible(query)
        eligible_count = int(np.count_nonzero(eligible))
        share = self._rival_share(here, eligible)
        rivals = np.where(self.elsewhere(here, places), distances, np.inf).min(axis=1)
        # If all ranked places may be the place of the match, its rivals are farther than those.
        rivals = np.where((share > 0.0) & np.isinf(rivals), distances[-1], rivals)
        # A place that is elsewhere than the query is wrong; a rival also differs from the match.
        is_rival = self.elsewhere(here, known) | (here.session[:, None] != known.session[None])
        is_rival &= ~eligible[known_ids]
        extra = is_rival.sum(axis=1) / eligible_count
        rivals = np.minimum(
            rivals, np.where(is_rival, known_distances, np.inf).min(axis=1, initial=np.inf)
        )
        share = np.where(np.isinf(rivals), 0.0, share)
        nearest = np.where(np.isinf(rivals), distances[: len(judged)], rivals)
        margins = _log(nearest) - _log(distances[: len(judged)])
        if share[0] + extra[0] > 0.0:
            self.statistics.add_query(float(margins[0]), float(share[0]), float(extra[0]))
        # Rivals differ from match to match, but a farther match is never more probable.
        probabilities = np.minimum.accumulate(self.statistics.probability(margins, share, extra))
        pairs = zip(judged, probabilities.tolist(), strict=True)
        return [replace(match, probability=p) for match, p in pairs]

    def elsewhere(self, a: Locations, b: Locations) -> NDArray[np.bool_]:
        """Return which (len(a), len(b)) pairs odometry proves to be different places."""
        apart_m = np.linalg.norm(a.xyz[:, None] - b.xyz[None], axis=2)  # NaN without odometry
        between_m = np.abs(a.traveled_m[:, None] - b.traveled_m[None])
        reach_m = PLACE_RADIUS_M + SIGMAS * horizontal_sigma_m(between_m, self.odometry_noise)
        proven: NDArray[np.bool_] = (a.session[:, None] == b.session[None]) & (apart_m > reach_m)
        return proven

    def _learn_from_known_wrong(
        self, query: Keyframe
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], Locations]:
        """Return ids, descriptor distances and locations of recent places that are elsewhere."""
        recent = self._database.newest_ids(query.session, RECENT)
        here = self._database.location_of(query)
        ids = recent[self.elsewhere(here, self._database.locations(recent))[0]]
        distances = self._database.distances(query.descriptor, ids)
        known = self._database.locations(ids)
        if len(ids):
            nearest = int(np.argmin(distances))
            is_other = self.elsewhere(known.take(np.array([nearest])), known)[0]
            if is_other.any():
                margin = _log(distances[is_other].min()) - _log(distances[nearest])
                self.statistics.add_wrong(float(margin), float(is_other.mean()))
        return ids, distances, known

    def _rival_share(self, here: Locations, eligible: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the fraction of the eligible places that are elsewhere than each match."""
        spread = np.unique(np.linspace(0, len(eligible) - 1, SAMPLE).astype(np.int64))
        sample = spread[eligible[spread]]
        if len(sample) == 0:
            return np.zeros(len(here.session))
        fraction: NDArray[np.float64] = self.elsewhere(
            here, self._database.locations(sample)
        ).mean(axis=1)
        return fraction


def _log(distances: NDArray[np.floating]) -> NDArray[np.float64]:
    logarithm: NDArray[np.float64] = np.log(np.maximum(distances, MIN_DISTANCE), dtype=np.float64)
    return logarithm


class MatchStatistics:
    """What the matches of one robot look like, in bounded memory."""

    def __init__(self) -> None:
        self._wrong = _Newest(2)  # margin and share of known wrong matches
        self._queries = _Newest(3)  # margin, share and extra of the nearest match of each query
        self._dimension = DIMENSION
        self._right_share = RIGHT_SHARE
        self._right_surprise = RIGHT_SURPRISE
        self._wrong_surprise = WRONG_SURPRISE
        self._aliased = ALIASED

    @property
    def known_wrong(self) -> int:
        """Number of known wrong matches; below ENOUGH, probabilities are close to the prior."""
        return len(self._wrong.rows)

    @property
    def prior(self) -> float:
        """P(same place) of a nearest match before its distance is looked at."""
        return self._right_share

    def add_wrong(self, margin: float, share: float) -> None:
        """Learn from the nearest place among those that odometry rules out.

        `margin` is log(distance of the next nearest place / distance of the nearest), `share` the
        fraction of the places that qualified as the next nearest.
        """
        self._wrong.append((margin, share))

    def add_query(self, margin: float, share: float, extra: float) -> None:
        """Learn from the nearest match of a query; see `probability` for the arguments."""
        self._queries.append((margin, share, extra))
        self._fit()

    def probability(self, margin: ArrayLike, share: ArrayLike, extra: ArrayLike) -> Floats:
        """Return P(same place) of matches, never 0 or 1.

        `margin` is log(distance of the nearest rival / distance of the match). Rivals are places
        known to be elsewhere than the match: a fraction `share` of the eligible places, and
        `extra` places per eligible one that are not eligible. Without rivals it is the prior.
        """
        share, extra = np.asarray(share, np.float64), np.asarray(extra, np.float64)
        ratio = self._log_likelihood_ratio(self._surprise(margin, share, extra))
        trust = min(1.0, self.known_wrong / ENOUGH)
        log_odds = np.where(share + extra > 0.0, trust * ratio, 0.0) + _logit(self._right_share)
        return _logistic(log_odds)

    def _surprise(self, margin: ArrayLike, share: Floats, extra: Floats) -> Floats:
        """Return -log P(a wrong match has at least this margin).

        Nearest wrong places are the first points of Poisson processes in distance**dimension, so
        the probability follows in closed form from the numbers of eligible places and rivals.
        """
        exponent = self._dimension * np.asarray(margin, np.float64)
        ratio = np.exp(-np.clip(exponent, -MAX_EXPONENT, MAX_EXPONENT))
        surprise: Floats = np.log1p((extra + share * np.maximum(0.0, 1.0 - ratio)) / ratio)
        return surprise

    def _log_likelihood_ratio(self, surprise: Floats) -> Floats:
        """Return log(right / wrong), which rises with surprise and is bounded on both sides."""
        ratio = np.exp(np.clip(self._log_plain_ratio(surprise, self._wrong_surprise), -50.0, 50.0))
        bounded: Floats = np.log((1.0 - UNLIKELY) * ratio + UNLIKELY) - np.log(
            (1.0 - self._aliased) + self._aliased * ratio
        )
        return bounded

    def _log_plain_ratio(self, surprise: Floats, wrong_surprise: float) -> Floats:
        """Return log(gamma / exponential density); it rises, because right / shape > wrong."""
        rate = RIGHT_SHAPE / self._right_surprise
        right = np.log(np.maximum(surprise, 1e-9)) - rate * surprise + RIGHT_SHAPE * np.log(rate)
        wrong = -surprise / wrong_surprise - np.log(wrong_surprise)
        ratio: Floats = right - wrong
        return ratio

    def _fit(self) -> None:
        """Fit the mixture to what is remembered; the result depends on nothing else."""
        margins, shares = self._wrong.rows.T
        count = len(margins)
        mean = float(np.median(margins)) / np.log(2.0) if count else 0.0
        total = DIMENSION_COUNT + count
        self._dimension = total / (DIMENSION_COUNT / DIMENSION + count * mean)
        wrong = self._surprise(margins, shares, np.zeros(count))
        queries = self._surprise(*self._queries.rows.T)
        self._right_share, self._aliased = RIGHT_SHARE, ALIASED
        self._right_surprise, self._wrong_surprise = RIGHT_SURPRISE, WRONG_SURPRISE
        for _ in range(ROUNDS):
            self._fit_round(wrong, queries)

    def _fit_round(self, wrong: Floats, queries: Floats) -> None:
        """Assign every observation to right or wrong, and re-estimate both."""
        plain = self._log_plain_ratio(wrong, WRONG_SURPRISE)
        looks_right = _logistic(plain + _logit(self._aliased))
        self._aliased = _shrunk(looks_right, np.ones(len(wrong)), ALIASED, ALIASED_COUNT)
        right = _logistic(self._log_likelihood_ratio(queries) + _logit(self._right_share))
        newest = right[-RIGHT_SHARE_WINDOW:]
        self._right_share = _shrunk(newest, np.ones(len(newest)), RIGHT_SHARE, RIGHT_SHARE_COUNT)
        mean = _shrunk(queries, 1.0 - right, WRONG_SURPRISE, WRONG_SURPRISE_COUNT)
        self._wrong_surprise = min(max(mean, MIN_WRONG_SURPRISE), WRONG_SURPRISE)
        mean = _shrunk(queries, right, RIGHT_SURPRISE, RIGHT_SURPRISE_COUNT)
        self._right_surprise = max(mean, MIN_RIGHT_SURPRISE)


class _Newest:
    """The newest MEMORY rows, in order."""

    def __init__(self, columns: int):
        self._buffer = np.empty((2 * MEMORY, columns))
        self._end = 0

    @property
    def rows(self) -> Floats:
        return self._buffer[max(0, self._end - MEMORY) : self._end]

    def append(self, row: tuple[float, ...]) -> None:
        if self._end == len(self._buffer):
            self._buffer[:MEMORY] = self._buffer[MEMORY:]
            self._end = MEMORY
        self._buffer[self._end] = row
        self._end += 1


def _shrunk(values: Floats, weights: Floats, prior: float, prior_count: float) -> float:
    """Return the weighted mean of values and of a prior that counts as several of them."""
    return float((prior * prior_count + values @ weights) / (prior_count + weights.sum()))


def _logit(probability: float) -> float:
    return float(np.log(probability) - np.log1p(-probability))


def _logistic(log_odds: Floats) -> Floats:
    probability: Floats = 1.0 / (1.0 + np.exp(-log_odds))
    return probability
