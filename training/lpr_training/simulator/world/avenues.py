"""Three avenues that are copies of each other, joined by streets that are not.

Whoever enters the second avenue for the first time sees exactly the first one: every match is
wrong until the streets at its end come into sight. Hedges hide everything beside the avenues.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lpr_training.simulator.geometry import mesh as m
from lpr_training.simulator.geometry.ground import Ground
from lpr_training.simulator.geometry.materials import Material
from lpr_training.simulator.geometry.mesh import Mesh
from lpr_training.simulator.geometry.polylines import resample
from lpr_training.simulator.objects import street, trees
from lpr_training.simulator.world.build import Day, build_daily, build_fixed, build_groves
from lpr_training.simulator.world.occupancy_plan import Plan, rectangle
from lpr_training.simulator.world.recipes import recipe_of
from lpr_training.simulator.world.roads import RoadGraph
from lpr_training.simulator.world.sites import choose_sites
from lpr_training.simulator.world.world import MARGIN_M, World

AVENUES = 3
AVENUE_M = 120.0
STREET_M = 40.0  # at both ends of an avenue
APART_M = 36.0
RETURN_M = 80.0  # from the last avenue to the street that leads back
HEDGE_M = 8.5  # from the middle of the road
HEDGE_HEIGHT_M = 2.6
TREE_SPACING_M = 9.0
LEAVES = 420
# Junctions: (2k, 2k + 1) are west and east of avenue k, the last two are of the street back.
WEST_BACK, EAST_BACK = 2 * AVENUES, 2 * AVENUES + 1


def avenue_route() -> list[int]:
    """Return junctions: every avenue once with a detour between, then the first two again."""
    route = []
    for k in (*range(AVENUES), 0):
        approach = range(WEST_BACK, 2 * k, -2) if route else ()
        route += [*approach, 2 * k, 2 * k + 1]
        if route.count(0) < 2:
            route += range(2 * k + 3, EAST_BACK + 1, 2)
    return [*route, 3, 2]


def make_avenues(seed: int) -> World:
    """Return the avenues in a part of a city."""
    recipe = replace(recipe_of('city'), hills_m=0.0, rough_m=0.0, halls=4)
    rng = np.random.default_rng([seed, 1])
    roads = _roads()
    plan = Plan(roads.lines, MARGIN_M)
    for y in _rows():
        middle = (STREET_M + AVENUE_M / 2, float(y))
        plan.claim(rectangle(middle, 0.0, AVENUE_M, 3.0 * HEDGE_M), 0.0)
    columns, rows = (int(np.ceil(side / 2.0)) + 1 for side in plan.size_m)
    ground = Ground(np.zeros((rows, columns)), plan.origin, 2.0)
    sites = choose_sites(roads, plan, recipe, rng)
    groves = build_groves(sites, recipe, ground, rng)
    fixed = build_fixed(sites, roads, plan, recipe, ground, rng)
    avenue = _avenue(np.random.default_rng([seed, 2]))
    copies = m.instances(avenue, [(STREET_M, y, 0.0) for y in _rows()], 0.0)
    day = Day()
    daily = build_daily(sites, plan, recipe, ground, groves, day, np.random.default_rng([seed, 3]))
    fixed = m.merge([fixed, groves.wood, copies])
    return World('avenues', seed, day, recipe, roads, plan, ground, sites, groves, fixed, daily)


def _rows() -> NDArray[np.float64]:
    return np.arange(AVENUES) * APART_M


def _roads() -> RoadGraph:
    """Return the avenues with the streets at their ends, and the street back."""
    length = AVENUE_M + 2.0 * STREET_M
    heights = [*_rows(), _rows()[-1] + RETURN_M]
    nodes = np.array([(x, y) for y in heights for x in (0.0, length)])
    edges = [(2 * k, 2 * k + 1) for k in range(AVENUES + 1)]
    edges += [(i, i + 2) for i in range(2 * AVENUES)]
    lines = tuple(resample(nodes[[a, b]], 2.0) for a, b in edges)
    return RoadGraph(nodes, tuple(edges), lines)


def _avenue(rng: np.random.Generator) -> Mesh:
    """Return hedges, lamp posts and irregular trees along x, from 0 to AVENUE_M."""
    hedge = street.wall(AVENUE_M, HEDGE_HEIGHT_M, Material.LEAF)
    parts = [m.moved(hedge, (AVENUE_M / 2, side * HEDGE_M, 0.0)) for side in (-1.0, 1.0)]
    templates = [trees.broadleaf(rng, 8.0, LEAVES) for _ in range(4)]
    for side in (-1.0, 1.0):
        for x in np.arange(TREE_SPACING_M / 2, AVENUE_M, TREE_SPACING_M):
            template = templates[int(rng.integers(len(templates)))]
            tree = m.merge([template.wood, template.leaves])
            spot = (x + rng.normal(scale=1.2), side * (HEDGE_M - 1.6), 0.0)
            scale = [np.full(3, rng.uniform(0.7, 1.2))]
            parts.append(m.instances(tree, [spot], rng.uniform(-np.pi, np.pi), scale))
        lamp = m.moved(street.lamp_post(), (0, 0, 0), -side * np.pi / 2)
        spots = [(x, side * (HEDGE_M - 2.6), 0.0) for x in np.arange(10.0, AVENUE_M, 33.0)]
        parts.append(m.instances(lamp, spots, 0.0))
    return m.merge(parts)
