"""The named values that stages hand to each other. Arrays are never modified in place."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Scan:
    """One LiDAR scan as it arrived, in the sensor frame."""

    points: NDArray[np.float32]  # (N, 3), metres, finite
    stamp_ns: int
    T_odom_sensor: NDArray[np.float64] | None = None  # (4, 4); None without odometry


@dataclass(frozen=True, eq=False)
class Keyframe:
    """One remembered place. Ids count up from 0 in a database, whatever session they came in."""

    id: int
    session: str  # which robot and run: poses of one session share an odometry frame
    stamp_ns: int
    descriptor: NDArray[np.float32]  # (D,)
    points: NDArray[np.float32]  # (N, 3), metres, sensor frame, thinned for verification
    T_odom_sensor: NDArray[np.float64] | None  # (4, 4) in its session; None without odometry
    travelled_m: float  # along its session so far


@dataclass(frozen=True, eq=False)
class Place:
    """Where a keyframe stands in its drive, without its descriptor and cloud."""

    id: int
    session: str
    order: int  # counts up from 0 in its session, while ids count over all sessions
    stamp_ns: int
    T_odom_sensor: NDArray[np.float64] | None
    travelled_m: float


@dataclass(frozen=True)
class Match:
    """A retrieval: a keyframe whose descriptor is near the query's."""

    keyframe_id: int
    distance: float  # between descriptors, Euclidean
    probability: float  # that it is the same place, by the checkpoint's calibration; NaN without


@dataclass(frozen=True, eq=False)
class LoopClosure:
    """A verified match: the query keyframe's pose seen from the matched keyframe."""

    query_id: int
    match_id: int
    T_match_query: NDArray[np.float64]  # (4, 4); p_match = T_match_query @ p_query
    covariance: NDArray[np.float64]  # (6, 6), x y z roll pitch yaw of T_match_query, m and rad
    overlap: float  # share of the query's voxels explained by the match, in [0, 1]
    inliers: int
    match: Match
