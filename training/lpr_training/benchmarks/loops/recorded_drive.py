"""A drive of the loop benchmark: scans, odometry and ground truth."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.database.place_database import DatabaseConfig
from lpr_ros.core.geometry.odometry_noise import OdometryNoiseConfig
from lpr_ros.core.offline.evaluation import MAX_LOOP_ERROR_M, REVISIT_RADIUS_M
from lpr_ros.core.types import Scan
from lpr_training.simulator import OdometryConfig
from lpr_training.simulator.drive.odometry import drifting

SPACING_M = 2.0
# Matches the defaults of OdometryNoiseConfig. The scale error is small because loop closures
# cannot reveal it.
ODOMETRY = OdometryConfig(
    scale_sigma=0.001, heading_bias_deg=0.5, heading_walk_deg=0.4, position_walk_m=0.2
)


@dataclass(frozen=True)
class Exclusion:
    """How recent a keyframe may be to count as a revisit; defaults to the database's rule."""

    exclude_s: float = DatabaseConfig().exclude_s
    exclude_m: float = DatabaseConfig().exclude_m


@dataclass(frozen=True, eq=False)
class RecordedDrive:
    """Scans of a drive, each of them a keyframe, with ground-truth poses."""

    name: str
    scans: Sequence[Scan]
    T_world_sensor: NDArray[np.float64]  # (N, 4, 4)
    exclusion: Exclusion = Exclusion()
    odometry: OdometryConfig = ODOMETRY  # how its odometry was made
    odometry_noise: OdometryNoiseConfig | None = None  # what the pipeline is told, if not defaults
    max_place_error_m: float = MAX_LOOP_ERROR_M  # a loop further off is wrong in place
    revisit_radius_m: float = REVISIT_RADIUS_M
    session_starts: tuple[int, ...] = (0,)
    trajectory_draws: int = 5  # of the odometry that trajectories are corrected for

    @property
    def T_odom_sensor(self) -> NDArray[np.float64]:
        """Return the odometry of every scan, (N, 4, 4)."""
        return np.stack([s.T_odom_sensor for s in self.scans if s.T_odom_sensor is not None])

    def session_of(self, index: int) -> int:
        """Return the number of the session of a scan, from 0."""
        return sum(start <= index for start in self.session_starts) - 1

    def draw_odometry(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw other odometry from the same model, (N, 4, 4); each session has its own frame."""
        sessions = np.split(self.T_world_sensor, self.session_starts[1:])
        return np.concatenate([drifting(T, self.odometry, rng) for T in sessions])


def join_sessions(sessions: Sequence[RecordedDrive]) -> RecordedDrive:
    """Return drives through one world as the sessions of one drive."""
    starts = np.cumsum([0, *(len(drive.scans) for drive in sessions[:-1])])
    return RecordedDrive(
        sessions[0].name,
        [scan for drive in sessions for scan in drive.scans],
        np.concatenate([drive.T_world_sensor for drive in sessions]),
        odometry=sessions[0].odometry,
        session_starts=tuple(starts.tolist()),
    )
