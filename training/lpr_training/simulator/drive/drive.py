"""Drives: a path along the roads of a world, its timing, and the poses of the vehicle."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import gaussian_filter1d
from scipy.spatial.transform import Rotation

from lpr_ros.core.errors import ConfigError
from lpr_training.simulator.drive.routes import Route, find_route, split_at_turns
from lpr_training.simulator.geometry.ground import Ground
from lpr_training.simulator.geometry.polylines import (
    Line,
    arc_length,
    left_normals,
    resample,
    smooth,
    tangents,
    yaw_of,
)
from lpr_training.simulator.world.world import World

SPACING_M = 0.25
DEFAULT_LENGTH_M = 1500.0
WHEELBASE_M = 2.7
TRACK_M = 1.6
# What limits the speed of a vehicle in and around curves.
LATERAL_ACCELERATION = 2.0  # m/s^2
MAX_ACCELERATION = 2.0  # m/s^2, along the path; braking too
MAX_YAW_RATE = np.radians(30.0)  # per second; U-turns are as narrow as the street


@dataclass(frozen=True, eq=False)
class Drive:
    """A path (M, 2) and the time at each of its points."""

    xy: Line
    time_s: NDArray[np.float64]  # (M,), starts at 0

    @property
    def length_m(self) -> float:
        """Return the length of the path."""
        return float(arc_length(self.xy)[-1])

    @property
    def duration_s(self) -> float:
        """Return the time from start to end."""
        return float(self.time_s[-1])

    def sample_times(self, rate_hz: float, spacing_m: float = 0.0) -> NDArray[np.float64]:
        """Return the times of scans: every `spacing_m`, or at a rate if that is 0."""
        if spacing_m > 0.0:
            s = arc_length(self.xy)
            return np.interp(np.arange(0.0, s[-1] - 1e-6, spacing_m), s, self.time_s)
        return np.arange(0.0, self.duration_s, 1.0 / rate_hz)

    def poses(self, ground: Ground, time_s: ArrayLike) -> NDArray[np.float64]:
        """Return T_world_base (N, 4, 4): x forward, z up, wheels on the ground."""
        t = np.asarray(time_s, np.float64)
        xy = np.stack([np.interp(t, self.time_s, self.xy[:, i]) for i in range(2)], axis=1)
        yaw = np.interp(t, self.time_s, yaw_of(self.xy))
        return poses_on(ground, xy, yaw)


def poses_on(
    ground: Ground, xy: NDArray[np.float64], yaw: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return poses of vehicles on the ground, tilted by the slope under their wheels."""
    forward = np.stack([np.cos(yaw), np.sin(yaw)], axis=1)
    left = np.stack([-forward[:, 1], forward[:, 0]], axis=1)
    ends = [ground.height(xy + k * WHEELBASE_M / 2 * forward) for k in (-1.0, 1.0)]
    sides = [ground.height(xy + k * TRACK_M / 2 * left) for k in (-1.0, 1.0)]
    pitch = -np.arctan2(ends[1] - ends[0], WHEELBASE_M)
    roll = np.arctan2(sides[1] - sides[0], TRACK_M)
    T_world_base = np.tile(np.eye(4), (len(xy), 1, 1))
    angles = np.stack([yaw, pitch, roll], axis=1)
    T_world_base[:, :3, :3] = Rotation.from_euler('ZYX', angles).as_matrix()
    T_world_base[:, :2, 3] = xy
    T_world_base[:, 2, 3] = sum(ends + sides) / 4.0
    return T_world_base


def make_drive(
    world: World,
    length_m: float | None = None,
    *,
    speed_mps: float = 8.0,
    seed: int = 0,
    route_seed: int | None = None,
    backwards: bool = False,
) -> Drive:
    """Return a drive along the world's recorded trajectory, or along a route with revisits.

    The default length is the whole trajectory, or 1500 m. Drives with the same `route_seed` take
    the same roads with different lateral offsets; `backwards` reverses the direction.
    """
    for name, value in (('length', length_m), ('speed', speed_mps)):
        if value is not None and not 0.0 < value < np.inf:
            raise ConfigError(f'{name} of a drive: {value!r}, expected a finite value above 0')
    for number in (seed, route_seed or 0):
        if number < 0:
            raise ConfigError(f'seed of a drive: {number!r}, expected at least 0')
    rng = np.random.default_rng([seed, world.seed, 7])
    if world.trajectory is not None:
        if route_seed is not None or backwards:
            raise ConfigError(
                f'route_seed {route_seed!r}, backwards {backwards!r}: not available in a '
                'world with a recorded trajectory'
            )
        path = _with_offset(world.trajectory.xy, seed, rng)
    else:
        length_m = DEFAULT_LENGTH_M if length_m is None else length_m
        route_rng = rng if route_seed is None else np.random.default_rng([route_seed, world.seed])
        route = find_route(world.roads, length_m, route_rng)
        path = lane_path(world, route[::-1] if backwards else route, rng)
    path = resample(path, SPACING_M)
    if length_m is not None:
        kept = int(length_m / SPACING_M) + 1
        # Routes are longer than requested; both directions drop the same part.
        path = path[-kept:] if backwards else path[:kept]
    return Drive(path, timing(path, speed_mps))


def drive_route(world: World, route: Route, *, speed_mps: float = 8.0, seed: int = 0) -> Drive:
    """Return a drive in the right lane of a given route."""
    rng = np.random.default_rng([seed, world.seed, 7])
    path = resample(lane_path(world, route, rng), SPACING_M)
    return Drive(path, timing(path, speed_mps))


def lane_path(world: World, route: Route, rng: np.random.Generator) -> Line:
    """Return a path in the right lane of a route, with random lateral offsets."""
    half = world.recipe.road_width_m / 2
    path = np.concatenate([_lane(world, part, half, rng) for part in split_at_turns(route)])
    return smooth(resample(path, 2 * SPACING_M), 2 * SPACING_M, 2.0)


def _lane(world: World, route: Route, half_m: float, rng: np.random.Generator) -> Line:
    """Return the lane along a route without U-turns."""
    pieces, offsets = [], []
    for start, end in pairwise(route):
        piece = resample(world.roads.line(start, end), 2 * SPACING_M)
        pieces.append(piece)
        offsets.append(np.full(len(piece), half_m * rng.uniform(0.18, 0.38)))
    center = resample(np.concatenate(pieces), 2 * SPACING_M)
    center = smooth(center, 2 * SPACING_M, 3.0)
    offset = np.concatenate(offsets)
    at = np.linspace(0.0, 1.0, len(center))
    offset = np.interp(at, np.linspace(0.0, 1.0, len(offset)), offset)
    offset = gaussian_filter1d(offset, 12.0, mode='nearest')
    return center - offset[:, None] * left_normals(center)


def _with_offset(line: Line, seed: int, rng: np.random.Generator) -> Line:
    """Return a recorded line: exactly for seed 0, up to 0.5 m to the side for others."""
    if seed == 0:
        return line
    sway = gaussian_filter1d(rng.normal(size=len(line)), 40.0, mode='nearest')
    sway *= 0.5 / max(float(np.abs(sway).max()), 1e-9)
    return line + sway[:, None] * left_normals(line)


def timing(path: Line, speed_mps: float) -> NDArray[np.float64]:
    """Return the time along the path: at the given speed, slower in curves and before them."""
    step_m = np.linalg.norm(np.diff(path, axis=0), axis=1)
    heading = tangents(path)
    curvature = np.linalg.norm(np.gradient(heading, axis=0), axis=1) / SPACING_M
    curvature = np.maximum(curvature, 1e-6)
    limit = np.minimum(np.sqrt(LATERAL_ACCELERATION / curvature), MAX_YAW_RATE / curvature)
    squared = np.square(np.minimum(speed_mps, limit))
    gain = 2.0 * MAX_ACCELERATION * step_m
    for i, k in enumerate(gain):  # accelerate
        squared[i + 1] = min(squared[i + 1], squared[i] + k)
    for i in range(len(gain) - 1, -1, -1):  # brake in time
        squared[i] = min(squared[i], squared[i + 1] + gain[i])
    speed = np.sqrt(squared)
    pace = 2.0 / (speed[1:] + speed[:-1])
    return np.concatenate([[0.0], np.cumsum(step_m * pace)])
