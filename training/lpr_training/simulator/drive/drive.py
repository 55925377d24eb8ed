"""Drives: a path over the roads of a world, with a speed, and the poses of the vehicle on it."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import gaussian_filter1d
from scipy.spatial.transform import Rotation

from lpr_ros.core.errors import ConfigError
from lpr_training.simulator.curves import (
    Line,
    arc_length,
    left_normals,
    resample,
    smooth,
    tangents,
    yaw_of,
)
from lpr_training.simulator.ground import Ground
from lpr_training.simulator.routes import Route, find_route, split_at_turns
from lpr_training.simulator.worlds import World

SPACING_M = 0.25
DEFAULT_LENGTH_M = 1500.0
WHEELBASE_M = 2.7
TRACK_M = 1.6
SIDE_ACCELERATION = 2.0  # m/s^2, how fast bends are taken


@dataclass(frozen=True, eq=False)
class Drive:
    """A path (M, 2) and the time at each of its points."""

    xy: Line
    time_s: NDArray[np.float64]  # (M,), starts at 0

    @property
    def length_m(self) -> float:
        """Length of the path."""
        return float(arc_length(self.xy)[-1])

    @property
    def duration_s(self) -> float:
        """Time from start to end."""
        return float(self.time_s[-1])

    def sample_times(self, rate_hz: float, spacing_m: float = 0.0) -> NDArray[np.float64]:
        """Return times of scans: at a rate, or every `spacing_m` where that is above 0."""
        if spacing_m > 0.0:
            s = arc_length(self.xy)
            return np.interp(np.arange(0.0, s[-1] - 1e-6, spacing_m), s, self.time_s)
        return np.arange(0.0, self.duration_s, 1.0 / rate_hz)

    def poses(self, ground: Ground, time_s: ArrayLike) -> NDArray[np.float64]:
        """T_world_base (N, 4, 4): x forward, z up, wheels on the ground."""
        t = np.asarray(time_s, np.float64)
        xy = np.stack([np.interp(t, self.time_s, self.xy[:, i]) for i in range(2)], axis=1)
        yaw = np.interp(t, self.time_s, yaw_of(self.xy))
        return poses_on(ground, xy, yaw)


def poses_on(
    ground: Ground, xy: NDArray[np.float64], yaw: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Stand vehicles on the ground: tilted as the ground under their wheels is."""
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
    """Drive along the world's recorded trajectory, or along a route that comes back.

    Without a length: the whole trajectory, or 1500 m. Drives with one `route_seed` take the same
    roads, each keeping its lanes in its own way, or `backwards` on the other side.
    """
    for name, value in (('length', length_m), ('speed', speed_mps)):
        if value is not None and not 0.0 < value < np.inf:
            raise ConfigError(f'{name} of a drive: {value!r} is not above 0 and finite')
    for number in (seed, route_seed or 0):
        if number < 0:
            raise ConfigError(f'seed of a drive: {number!r} is not 0 or above')
    rng = np.random.default_rng([seed, world.seed, 7])
    if world.trajectory is not None:
        if route_seed is not None or backwards:
            raise ConfigError(
                f'route_seed {route_seed!r}, backwards {backwards!r}: this world has one recorded '
                'trajectory, expected neither'
            )
        path = _wander(world.trajectory.xy, seed, rng)
    else:
        length_m = DEFAULT_LENGTH_M if length_m is None else length_m
        route_rng = rng if route_seed is None else np.random.default_rng([route_seed, world.seed])
        route = find_route(world.roads, length_m, route_rng)
        path = lane_path(world, route[::-1] if backwards else route, rng)
    path = resample(path, SPACING_M)
    if length_m is not None:
        kept = int(length_m / SPACING_M) + 1
        # Routes are longer than asked for: what is cut off is the same both ways.
        path = path[-kept:] if backwards else path[:kept]
    return Drive(path, _timing(path, speed_mps))


def lane_path(world: World, route: Route, rng: np.random.Generator) -> Line:
    """Follow a route on the right of its roads, every time a little differently."""
    half = world.recipe.road_width_m / 2
    path = np.concatenate([_lane(world, part, half, rng) for part in split_at_turns(route)])
    return smooth(resample(path, 2 * SPACING_M), 2 * SPACING_M, 2.0)


def _lane(world: World, route: Route, half_m: float, rng: np.random.Generator) -> Line:
    """Follow a route that nowhere turns round."""
    pieces, offsets = [], []
    for start, end in pairwise(route):
        piece = resample(world.roads.line(start, end), 2 * SPACING_M)
        pieces.append(piece)
        offsets.append(np.full(len(piece), half_m * rng.uniform(0.18, 0.38)))
    centre = resample(np.concatenate(pieces), 2 * SPACING_M)
    centre = smooth(centre, 2 * SPACING_M, 3.0)
    offset = np.concatenate(offsets)
    at = np.linspace(0.0, 1.0, len(centre))
    offset = np.interp(at, np.linspace(0.0, 1.0, len(offset)), offset)
    offset = gaussian_filter1d(offset, 12.0, mode='nearest')
    return centre - offset[:, None] * left_normals(centre)


def _wander(line: Line, seed: int, rng: np.random.Generator) -> Line:
    """Follow a recorded line; seed 0 exactly, others up to half a metre beside it."""
    if seed == 0:
        return line
    sway = gaussian_filter1d(rng.normal(size=len(line)), 40.0, mode='nearest')
    sway *= 0.5 / max(float(np.abs(sway).max()), 1e-9)
    return line + sway[:, None] * left_normals(line)


def _timing(path: Line, speed_mps: float) -> NDArray[np.float64]:
    """Time along the path: the set speed, slower in bends."""
    heading = tangents(path)
    curvature = np.linalg.norm(np.gradient(heading, axis=0), axis=1) / SPACING_M
    limit = np.sqrt(SIDE_ACCELERATION / np.maximum(curvature, 1e-6))
    speed = np.minimum(speed_mps, limit)
    speed = gaussian_filter1d(speed, 5.0 / SPACING_M, mode='nearest')
    pace = 0.5 * (1.0 / speed[1:] + 1.0 / speed[:-1])
    step = np.linalg.norm(np.diff(path, axis=0), axis=1)
    return np.concatenate([[0.0], np.cumsum(step * pace)])
