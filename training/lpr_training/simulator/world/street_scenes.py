"""Things that stand in a street on one day and not, or elsewhere, on another."""

from dataclasses import replace

import numpy as np

from lpr_training.simulator.geometry import mesh as m
from lpr_training.simulator.geometry.materials import Material
from lpr_training.simulator.geometry.mesh import Mesh
from lpr_training.simulator.geometry.polylines import Line, left_normals, resample, yaw_of
from lpr_training.simulator.objects import street, vehicles
from lpr_training.simulator.world.world import World

FURNITURE_M = 9.0  # mean distance between pieces of furniture on one side of a road
QUEUE_M = 9.0  # mean distance between vehicles in a queue
LANE_M = 2.0  # of the queue from the center line
CLEARANCE_M = 2.4  # of standing vehicles from the path of the sensor


def with_furniture(world: World, *, moved: float, seed: int) -> World:
    """Return a world with market stalls, skips and bins, a fraction of them moved elsewhere.

    The same seed gives the same furniture; with `moved` a fraction of it stands at other places.
    """
    rng = np.random.default_rng([seed, 5])
    spots = [spot for line in world.roads.lines for spot in _curb_spots(world, line, rng)]
    order = rng.permutation(len(spots))
    standing, free = order[: len(spots) // 2], order[len(spots) // 2 :]
    kind = rng.integers(3, size=len(spots))
    makers = (_stall(), _skip(), street.bin_container())
    parts = []
    for i, index in enumerate(standing):
        where = spots[free[i] if i < moved * len(standing) else index]
        z = float(world.ground.height(where[:2]))
        parts.append(m.moved(makers[kind[i]], (where[0], where[1], z), where[2]))
    return replace(world, daily=m.merge([world.daily, *parts]))


def with_standing_traffic(world: World, path: Line, *, seed: int) -> World:
    """Return a world with queues in both lanes of all roads, except on the path of the sensor."""
    rng = np.random.default_rng([seed, 6])
    names = list(vehicles.SHAPES)
    near = resample(path, 1.0)
    parts = []
    for line in world.roads.lines:
        for side in (1.0, -1.0):
            lane = resample(line + side * LANE_M * left_normals(line), 1.0)
            yaw = yaw_of(lane) + (np.pi if side > 0 else 0.0)
            at = 12.0
            while at < len(lane) - 12.0:
                xy = lane[int(at)]
                if np.linalg.norm(near - xy, axis=1).min() > CLEARANCE_M:
                    z = float(world.ground.height(xy))
                    car = vehicles.build(names[int(rng.integers(len(names)))])
                    parts.append(m.moved(car, (xy[0], xy[1], z), float(yaw[int(at)])))
                at += QUEUE_M * rng.uniform(0.9, 1.4)
    return replace(world, daily=m.merge([world.daily, *parts]))


def _curb_spots(
    world: World, line: Line, rng: np.random.Generator
) -> list[tuple[float, float, float]]:
    """Return possible spots of furniture beside the sidewalk: x, y, yaw."""
    offset = world.recipe.road_width_m / 2 + world.recipe.walk_m
    spots = []
    for side in (1.0, -1.0):
        curb = line + side * offset * left_normals(line)
        curb, yaw = resample(curb, 0.5), yaw_of(resample(curb, 0.5))
        for k in np.arange(24, len(curb) - 24, int(FURNITURE_M)):  # half of the spots are free
            i = int(k + rng.integers(-6, 7))
            if world.plan.road_distance(curb[i]) > offset - 0.6:
                spots.append((float(curb[i, 0]), float(curb[i, 1]), float(yaw[i])))
    return spots


def _stall() -> Mesh:
    """Make a market stall: a counter, a back wall and a roof."""
    return m.merge([
        m.box((3.0, 0.8, 1.0), (0.0, -0.5, 0.5), Material.WOOD),
        m.box((3.0, 0.1, 2.2), (0.0, 0.7, 1.1), Material.WOOD),
        m.box((3.4, 2.0, 0.1), (0.0, 0.0, 2.3), Material.PLASTER),
    ])  # fmt: skip


def _skip() -> Mesh:
    """Make a skip for rubble."""
    return m.box((3.6, 1.7, 1.5), (0.0, 0.0, 0.75), Material.METAL)
