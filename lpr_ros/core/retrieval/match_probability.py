"""Gives matches their probability, judged against the other places of the same drive.

Odometry tells for free which places are elsewhere. Descriptor distances to those are what a wrong
match looks like with this sensor, in this city and with these weights; see match_statistics.py.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.database.keyframe_table import Locations
from lpr_ros.core.database.place_database import PlaceDatabase
from lpr_ros.core.geometry.odometry_noise import OdometryNoiseConfig, horizontal_sigma_m
from lpr_ros.core.retrieval.match_statistics import MatchStatistics
from lpr_ros.core.types import Keyframe, Match

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
