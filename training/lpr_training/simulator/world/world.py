"""A world: roads, ground, permanent objects and the objects of one day."""

from dataclasses import dataclass, replace
import zlib

import numpy as np

from lpr_ros.core.errors import ConfigError
from lpr_training.simulator.geometry.ground import Ground, waves
from lpr_training.simulator.geometry.mesh import Mesh, merge
from lpr_training.simulator.geometry.polylines import left_normals
from lpr_training.simulator.world.build import Day, Groves, build_daily, build_fixed, build_groves
from lpr_training.simulator.world.occupancy_plan import Plan
from lpr_training.simulator.world.recipes import Recipe, recipe_of
from lpr_training.simulator.world.recorded_route import Trajectory, terrain
from lpr_training.simulator.world.roads import RoadGraph, graph_along, make_graph
from lpr_training.simulator.world.sites import Sites, choose_sites

MARGIN_M = 55.0
LANE_OFFSET = 0.18  # of the road width: assumed offset of a recorded drive to the right


@dataclass(frozen=True, eq=False)
class World:
    """A world on one day; `fixed` is the same every day, `daily` is not."""

    kind: str
    seed: int
    day: Day
    recipe: Recipe
    roads: RoadGraph
    plan: Plan
    ground: Ground
    sites: Sites
    groves: Groves
    fixed: Mesh
    daily: Mesh
    trajectory: Trajectory | None = None

    def mesh(self) -> Mesh:
        """Return all triangles of this day."""
        return merge([self.fixed, self.daily])


def make_world(
    kind: str,
    seed: int,
    day: Day | None = None,
    *,
    size_m: float | None = None,
    trajectory: Trajectory | None = None,
) -> World:
    """Generate a world from a kind and a seed; its road follows the trajectory, if given."""
    if seed < 0:
        raise ConfigError(f'seed of a world: {seed!r}, expected at least 0')
    recipe = recipe_of(kind)
    recipe = recipe if size_m is None else replace(recipe, size_m=size_m)
    rng = _rng(kind, seed, 'fixed')
    if trajectory is None:
        roads = make_graph(recipe.layout, recipe.size_m, recipe.block_m, rng)
    else:
        lane = LANE_OFFSET * recipe.road_width_m
        roads = graph_along(trajectory.xy + lane * left_normals(trajectory.xy))
    plan = Plan(roads.lines, MARGIN_M)
    ground = _ground(plan, recipe, trajectory, rng)
    sites = choose_sites(roads, plan, recipe, rng)
    groves = build_groves(sites, recipe, ground, rng)
    fixed = merge([build_fixed(sites, roads, plan, recipe, ground, rng), groves.wood])
    today = day or Day()
    daily = build_daily(sites, plan, recipe, ground, groves, today, _day_rng(kind, seed, today))
    return World(
        kind, seed, today, recipe, roads, plan, ground, sites, groves, fixed, daily, trajectory
    )


def on_day(world: World, day: Day) -> World:
    """Return the same world on another day, with other cars, leaves and snow."""
    rng = _day_rng(world.kind, world.seed, day)
    daily = build_daily(
        world.sites, world.plan, world.recipe, world.ground, world.groves, day, rng
    )
    return replace(world, day=day, daily=daily)


def _rng(kind: str, seed: int, purpose: str, *more: int) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(f'{kind}/{purpose}'.encode()), *more])


def _day_rng(kind: str, seed: int, day: Day) -> np.random.Generator:
    return _rng(kind, seed, 'day', day.number)


def _ground(
    plan: Plan, recipe: Recipe, trajectory: Trajectory | None, rng: np.random.Generator
) -> Ground:
    """Generate hills, and roughness that fades out on the roads."""
    cell = 1.0 if recipe.rough_m > 0.1 else 2.0
    columns, rows = (int(np.ceil(side / cell)) + 1 for side in plan.size_m)
    ground = Ground(np.zeros((rows, columns)), plan.origin, cell)
    xy = ground.grid_xy()
    if trajectory is None:
        hills = recipe.hills_m * waves(xy, recipe.hill_length_m, rng)
    else:
        hills = terrain(trajectory, xy)
    off_road = np.clip(plan.road_distance(xy) / recipe.road_width_m - 0.4, 0.12, 1.0)
    bumps = waves(xy, 5.0, rng) + 0.5 * rng.normal(size=(rows, columns))
    rough = recipe.rough_m * off_road * bumps
    return replace(ground, heights=hills + rough)
