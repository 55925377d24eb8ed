"""A simulated drive that needs no file: two laps around a block, with odometry that drifts.

It shows a new installation at work. Scans are computed on demand, by intersecting the rays of a
LiDAR with boxes; training/lpr_training/simulator has the simulator for measurements.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.geometry.se3 import pose_from_euler
from lpr_ros.core.recordings.base import (
    DEFAULT_OPTIONS,
    DriveTable,
    Recording,
    RecordingOptions,
    odometry_of_scans,
    refuse_topics,
)
from lpr_ros.core.timing import NS_PER_S

NAME = 'simulated_drive'
SEED = 1
LAPS, RADIUS_M, SPEED_MPS, RATE_HZ = 2, 40.0, 6.0, 5.0
SIDESTEP_M = 1.0  # of the second lap
START_NS = 1_700_000_000 * NS_PER_S
# As of a car: errors within the default odometry noise, but visible.
SCALE_ERROR, HEADING_DEG_PER_M = 0.01, 0.006
BEAMS, COLUMNS, FIELD_OF_VIEW_DEG = 32, 512, (-25.0, 10.0)
SENSOR_HEIGHT_M, RANGE_M, NOISE_M = 1.8, 80.0, 0.01
HOUSES, TREES, BLOCK_M, CLEARANCE_M = 40, 60, 75.0, 5.0


class DemoRecording(Recording):
    """The simulated drive; its name stands for a path."""

    description = f'{NAME} (needs no file)'

    def __init__(self, path: Path, options: RecordingOptions = DEFAULT_OPTIONS):
        refuse_topics(path, options)
        step_m = SPEED_MPS / RATE_HZ
        count = int(LAPS * 2.0 * np.pi * RADIUS_M / step_m)
        stamps = START_NS + np.arange(count) * int(NS_PER_S / RATE_HZ)
        T_world = np.stack([_pose(i * step_m) for i in range(count)])
        odometry = odometry_of_scans(_drifting(T_world), stamps, options.max_step_m)
        about = dict.fromkeys(('clouds', 'odometry', 'truth'), NAME)
        super().__init__(NAME, DriveTable(stamps, odometry.T, T_world, about, odometry.segments))
        self._low, self._high = _boxes(np.random.default_rng(SEED))
        self._rays = _rays()

    @classmethod
    def matches(cls, path: Path) -> bool:
        """Return whether the path is the name of this drive."""
        return str(path) == NAME

    def points(self, index: int) -> NDArray[np.float32]:
        """Compute one scan."""
        T = self.T_world_sensor[index]
        origin, rays = T[:3, 3], self._rays @ T[:3, :3].T
        distance = _distance_to_ground(origin, rays)
        nearest = np.clip(origin, self._low, self._high)
        for box in np.flatnonzero(np.linalg.norm(nearest - origin, axis=1) < RANGE_M):
            hit = _distance_to_box(origin, rays, self._low[box], self._high[box])
            np.minimum(distance, hit, out=distance)
        is_seen = distance < RANGE_M
        noise = NOISE_M * np.random.default_rng((SEED, index)).standard_normal(is_seen.sum())
        points = self._rays[is_seen] * (distance[is_seen] + noise)[:, None]
        return np.asarray(points, dtype=np.float32)


def _pose(traveled_m: float) -> NDArray[np.float64]:
    """Return T_world_sensor on the circle; the second lap keeps to another side of the road."""
    angle = traveled_m / RADIUS_M
    radius = RADIUS_M + SIDESTEP_M * np.sin(angle / 2.0)
    position = [radius * np.cos(angle), radius * np.sin(angle), SENSOR_HEIGHT_M]
    return pose_from_euler(position, [0.0, 0.0, angle + np.pi / 2.0])


def _drifting(T_world: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return odometry with a constant error of scale and heading, starting at the identity."""
    T_odom = np.tile(np.eye(4), (len(T_world), 1, 1))
    for i in range(1, len(T_world)):
        step = np.linalg.inv(T_world[i - 1]) @ T_world[i]
        turn = np.radians(HEADING_DEG_PER_M) * float(np.linalg.norm(step[:3, 3]))
        step[:3, 3] *= 1.0 + SCALE_ERROR
        T_odom[i] = T_odom[i - 1] @ step @ pose_from_euler([0.0, 0.0, 0.0], [0.0, 0.0, turn])
    return T_odom


def _boxes(rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the lower and upper corners (N, 3) of houses and trees beside the road."""
    center = rng.uniform(-BLOCK_M, BLOCK_M, (HOUSES + TREES, 2))
    half = rng.uniform(2.0, 7.0, (HOUSES + TREES, 2))
    half[HOUSES:] = rng.uniform(0.15, 0.6, (TREES, 1))
    height = rng.uniform(3.0, 12.0, HOUSES + TREES)
    to_road = np.abs(np.linalg.norm(center, axis=1) - RADIUS_M)
    is_beside = to_road - np.linalg.norm(half, axis=1) > CLEARANCE_M
    low = np.column_stack([center - half, np.zeros(len(center))])
    high = np.column_stack([center + half, height])
    return low[is_beside], high[is_beside]


def _rays() -> NDArray[np.float64]:
    """Return the directions of the beams in the sensor frame, (N, 3)."""
    elevation = np.radians(np.linspace(*FIELD_OF_VIEW_DEG, BEAMS))[:, None]
    azimuth = np.linspace(-np.pi, np.pi, COLUMNS, endpoint=False)[None]
    parts = np.broadcast_arrays(
        np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)
    )
    return np.stack(parts, axis=-1).reshape(-1, 3)


def _distance_to_ground(
    origin: NDArray[np.float64], rays: NDArray[np.float64]
) -> NDArray[np.float64]:
    with np.errstate(divide='ignore'):
        return np.where(rays[:, 2] < 0.0, -origin[2] / rays[:, 2], np.inf)


def _distance_to_box(
    origin: NDArray[np.float64],
    rays: NDArray[np.float64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the distance along each ray to a box, infinite where it misses: the slab method."""
    with np.errstate(divide='ignore'):
        ends = np.stack([(low - origin) / rays, (high - origin) / rays])
    enters, leaves = ends.min(axis=0).max(axis=1), ends.max(axis=0).min(axis=1)
    return np.where((enters <= leaves) & (enters > 0.0), enters, np.inf)
