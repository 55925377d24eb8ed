"""Data types passed between pipeline stages. Arrays are never modified in place."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Scan:
    """One LiDAR scan in the sensor frame."""

    points: NDArray[np.float32]  # (N, 3), meters, finite
    stamp_ns: int
    T_odom_sensor: NDArray[np.float64] | None = None  # (4, 4); None without odometry
    odometry_segment: int = 0  # number of odometry jumps so far; poses of one segment are related
    segment_reason: str = ''  # what ended the segment before, for the log


@dataclass(frozen=True, eq=False)
class Keyframe:
    """One stored place. Ids count from 0 across all sessions of a database."""

    id: int
    session: str  # robot and run; poses of one session share an odometry frame
    stamp_ns: int
    descriptor: NDArray[np.float32]  # (D,)
    points: NDArray[np.float32]  # (N, 3), meters, sensor frame, downsampled for verification
    T_odom_sensor: (
        NDArray[np.float64] | None
    )  # (4, 4), frame of its session; None without odometry
    traveled_m: float  # since the start of its session


@dataclass(frozen=True, eq=False)
class Place:
    """Session, time and pose of a keyframe, without its descriptor and cloud."""

    id: int
    session: str
    order: int  # position in its session, from 0
    stamp_ns: int
    T_odom_sensor: NDArray[np.float64] | None
    traveled_m: float


@dataclass(frozen=True, eq=False)
class Locations:
    """Where many keyframes are."""

    session: NDArray[np.int64]  # (N,), number of the session
    traveled_m: NDArray[np.float64]  # (N,), since the start of the session
    xyz: NDArray[np.float64]  # (N, 3), in the odometry frame of the session; NaN without odometry

    def take(self, rows: NDArray[np.int64]) -> 'Locations':
        """Return the locations in these rows."""
        return Locations(self.session[rows], self.traveled_m[rows], self.xyz[rows])


@dataclass(frozen=True)
class Match:
    """A retrieved keyframe: its descriptor is close to the descriptor of the query."""

    keyframe_id: int
    distance: float  # between descriptors, Euclidean
    probability: float  # of being the same place; NaN before it is judged


@dataclass(frozen=True, eq=False)
class LoopClosure:
    """A verified match: the pose of the query keyframe in the frame of the matched one.

    The covariance is that of a perturbation e = (x y z roll pitch yaw) in the query frame, in m
    and rad: T_true = T_match_query Exp(e). loops.csv and g2o files use the same convention; ROS
    messages have the axes of the match frame (conversions/loops.py).
    """

    query_id: int
    match_id: int
    T_match_query: NDArray[np.float64]  # (4, 4); p_match = T_match_query @ p_query
    covariance: NDArray[np.float64]  # (6, 6)
    overlap: float  # fraction of the query's voxels with an inlier in the match, in [0, 1]
    inliers: int
    match: Match
    log_odds: float = 0.0  # what the geometry says: log-likelihood ratio of same and other place
    alternatives: tuple['LoopClosure', ...] = ()  # other poses at which the two clouds agree

    @property
    def key(self) -> tuple[int, int, bytes]:
        """What identifies a loop closure: two rival poses of one pair are two loop closures."""
        return self.query_id, self.match_id, self.T_match_query.tobytes()


@dataclass(frozen=True)
class Candidate:
    """A match to be verified."""

    match: Match
    support: int  # number of earlier queries with a consistent match


@dataclass(frozen=True, eq=False)
class VerificationResult:
    """Outcome of verifying the candidates of one keyframe."""

    query_id: int
    verified: LoopClosure | None = None  # passed geometric verification
    trusted: tuple[LoopClosure, ...] = ()  # newly consistent, possibly of earlier keyframes
    retracted: tuple[LoopClosure, ...] = ()  # trusted before, now outvoted: take them back
    rejected: tuple[Candidate, ...] = ()  # failed geometric verification
    seconds: dict[str, float] = field(default_factory=dict)  # by stage
    excluded: tuple[Candidate, ...] = ()  # too far away by odometry, not verified


class DescriptorExtractor(Protocol):
    """Interface of the network that turns a cloud into a descriptor."""

    dim: int
    fingerprint: str

    def describe(self, points: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the (D,) descriptor of (N, 3) points."""


@dataclass(frozen=True, eq=False)
class KeyframeQuery:
    """A new keyframe with its matches and the candidates to verify."""

    keyframe: Keyframe
    matches: tuple[Match, ...]
    candidates: tuple[Candidate, ...]
    places: tuple[Keyframe, ...]  # of the candidates: verification needs no database
    seconds: dict[str, float] = field(default_factory=dict)  # by stage
    session_reason: str = ''  # why a session starts with this keyframe; '' within a session
