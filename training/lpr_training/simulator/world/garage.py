"""A parking garage: floors that are copies of each other, joined by ramps; only cars differ."""

import numpy as np
from numpy.typing import NDArray

from lpr_training.simulator.geometry import mesh as m
from lpr_training.simulator.geometry.ground import Ground
from lpr_training.simulator.geometry.materials import Material
from lpr_training.simulator.geometry.mesh import Mesh
from lpr_training.simulator.objects import vehicles
from lpr_training.simulator.world.build import Day, Groves
from lpr_training.simulator.world.occupancy_plan import Plan
from lpr_training.simulator.world.recipes import Recipe
from lpr_training.simulator.world.roads import RoadGraph
from lpr_training.simulator.world.sites import Sites
from lpr_training.simulator.world.world import MARGIN_M, World

FLOORS = 4
FLOOR_M = 3.2  # from floor to floor
SLAB_M = 0.3
LENGTH_M, WIDTH_M = 72.0, 40.0
RAMP_M = (16.0, 56.0)  # from where to where along x; it rises toward the smaller x
RAMP_WIDTH_M = 6.0
DOOR_M = 10.0  # width of the openings between floor and ramp
AISLE_M = 8.5  # of the middle of the aisle from the walls
PARKED = 0.25
Points = NDArray[np.float64]


def make_garage(seed: int) -> World:
    """Return the garage."""
    rng = np.random.default_rng([seed, 4])
    levels = np.arange(FLOORS) * FLOOR_M
    floor = _floor()
    parts = [m.moved(floor, (0.0, 0.0, z)) for z in levels]
    parts += [m.moved(_ramp(), (0.0, 0.0, z)) for z in levels[:-1]]
    parts.append(_slab(FLOORS * FLOOR_M))
    cars = m.merge(_cars(z, rng) for z in levels)
    circuit = garage_path()[:, :2]
    roads = RoadGraph(circuit[[0, -1]], ((0, 1),), (circuit,))
    plan = Plan(roads.lines, MARGIN_M)
    ground = Ground(np.full((2, 2), -1.0), plan.origin, max(plan.size_m))
    groves = Groves(m.empty(), m.empty())
    surface = ground.mesh(np.full((1, 1), Material.GRASS, np.uint8))
    fixed = m.merge([*parts, surface])
    recipe = Recipe(traffic=0.0, road_width_m=6.0)
    return World('garage', seed, Day(), recipe, roads, plan, ground, Sites(), groves, fixed, cars)


def garage_path() -> Points:
    """Return the corners (N, 3) of a drive: two rounds per floor up to the top, one down."""
    near, far = AISLE_M, WIDTH_M - AISLE_M
    west, east = AISLE_M, LENGTH_M - AISLE_M
    ring = [(west, near), (west, far), (east, far), (east, near)]
    lane = -RAMP_WIDTH_M / 2
    ramp = [(east, lane, 0.0), (RAMP_M[1], lane, 0.0), (RAMP_M[0], lane, 1.0), (west, lane, 1.0)]
    corners = [(*xy, 0.0) for xy in (*ring, *ring)]
    for k in range(FLOORS - 1):
        corners += [(x, y, k + rise) for x, y, rise in ramp]
        corners += [(*xy, k + 1.0) for xy in (*ring, *ring)]
    corners.append((west, near, FLOORS - 1.0))
    for k in reversed(range(FLOORS - 1)):
        corners += [(x, y, k + rise) for x, y, rise in reversed(ramp)]
        corners += [(*xy, float(k)) for xy in reversed(ring)]
    return np.array(corners) * (1.0, 1.0, FLOOR_M)


def _floor() -> Mesh:
    """Return slab, walls with two openings, columns and a stairwell of one floor."""
    height = FLOOR_M - SLAB_M
    half = height / 2
    parts = [_slab(0.0)]
    parts.append(m.box((LENGTH_M, 0.3, height), (LENGTH_M / 2, WIDTH_M, half), Material.CONCRETE))
    for x in (0.0, LENGTH_M):
        parts.append(m.box((0.3, WIDTH_M, height), (x, WIDTH_M / 2, half), Material.CONCRETE))
    closed = LENGTH_M - 2.0 * (DOOR_M + 3.0)
    parts.append(m.box((closed, 0.3, height), (LENGTH_M / 2, 0.0, half), Material.CONCRETE))
    for x in (1.5, LENGTH_M - 1.5):
        parts.append(m.box((3.0, 0.3, height), (x, 0.0, half), Material.CONCRETE))
    outer = -RAMP_WIDTH_M
    parts.append(m.box((LENGTH_M, 0.3, FLOOR_M), (LENGTH_M / 2, outer, half), Material.CONCRETE))
    for x in (0.0, LENGTH_M):
        size = (0.3, RAMP_WIDTH_M, FLOOR_M)
        parts.append(m.box(size, (x, outer / 2, half), Material.CONCRETE))
    for x in np.arange(16.0, LENGTH_M - 12.0, 8.0):
        for y in (5.5, 13.5, WIDTH_M - 13.5, WIDTH_M - 5.5):
            parts.append(m.box((0.5, 0.5, height), (x, y, half), Material.CONCRETE))
    parts.append(m.box((6.0, 5.0, height), (24.0, WIDTH_M / 2, half), Material.BRICK))
    return m.merge(parts)


def _slab(z: float) -> Mesh:
    """Return a slab with its top at z, and the landings at both ends of the ramp."""
    parts = [
        m.box((LENGTH_M, WIDTH_M, SLAB_M), (LENGTH_M / 2, WIDTH_M / 2, z - SLAB_M / 2),
              Material.CONCRETE)
    ]  # fmt: skip
    for low, high in ((0.0, RAMP_M[0]), (RAMP_M[1], LENGTH_M)):
        size = (high - low, RAMP_WIDTH_M, SLAB_M)
        center = ((low + high) / 2, -RAMP_WIDTH_M / 2, z - SLAB_M / 2)
        parts.append(m.box(size, center, Material.CONCRETE))
    return m.merge(parts)


def _ramp() -> Mesh:
    """Return the ramp from this floor to the next: its upper and its lower side."""
    top, bottom = RAMP_M
    sides = []
    for drop in (0.0, SLAB_M):
        low, high = -drop, FLOOR_M - drop
        sides.append([(bottom, -RAMP_WIDTH_M, low), (bottom, 0.0, low),
                      (top, 0.0, high), (top, -RAMP_WIDTH_M, high)])  # fmt: skip
    return m.quads(sides, Material.CONCRETE)


def _cars(z: float, rng: np.random.Generator) -> Mesh:
    """Park cars of one floor: along the far wall, and on both sides of the middle."""
    parts = []
    for x in np.arange(13.0, LENGTH_M - 12.0, 2.7):
        for y in (2.8, WIDTH_M / 2 - 4.5, WIDTH_M / 2 + 4.5, WIDTH_M - 2.8):
            in_stairwell = abs(x - 24.0) < 4.5 and abs(y - WIDTH_M / 2) < 5.0
            if rng.random() >= PARKED or in_stairwell:
                continue
            name = vehicles.PARKED[int(rng.integers(len(vehicles.PARKED)))]
            yaw = float(rng.choice([-1.0, 1.0]) * np.pi / 2 + rng.normal(scale=0.03))
            parts.append(m.moved(vehicles.build(name), (x, y, z), yaw))
    return m.merge(parts)
