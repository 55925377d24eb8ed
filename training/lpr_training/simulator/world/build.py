"""Build the meshes of a world: permanent objects once, daily ones for each day."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.config import Config, option
from lpr_training.simulator.geometry import mesh as m
from lpr_training.simulator.geometry.ground import Ground, waves
from lpr_training.simulator.geometry.materials import Material
from lpr_training.simulator.geometry.mesh import Mesh
from lpr_training.simulator.geometry.polylines import left_normals
from lpr_training.simulator.objects import buildings, street, trees, vehicles
from lpr_training.simulator.world.occupancy_plan import Plan
from lpr_training.simulator.world.recipes import Recipe
from lpr_training.simulator.world.roads import RoadGraph
from lpr_training.simulator.world.sites import Sites, Spot

Floats = NDArray[np.float64]
TEMPLATES = 8  # distinct trees per species; copies differ in size and heading
LEAVES = {'broadleaf': 420, 'conifer': 330, 'dead': 0, 'log': 0, 'bush': 30}
CURB_M = 0.12


@dataclass(frozen=True)
class Day(Config):
    """A day in a world: cars and weather change, buildings do not."""

    number: int = option(0, 'Number of the day, which seeds parked cars and people', low=0)
    leaves: bool = option(True, 'Leaves on broadleaf trees and bushes')
    snow: bool = option(False, 'Snow on the ground')


@dataclass(frozen=True, eq=False)
class Groves:
    """All trees of a world, with wood and leaves separate."""

    wood: Mesh
    leaves: Mesh


def build_fixed(
    sites: Sites, roads: RoadGraph, plan: Plan, recipe: Recipe, ground: Ground,
    rng: np.random.Generator,
) -> Mesh:  # fmt: skip
    """Build the permanent objects except trees."""
    parts = [_at(buildings.build(b), ground, [spot]) for b, spot in sites.buildings]
    for length, height, material, spot in sites.walls:
        parts.append(_at(street.wall(length, height, material), ground, [spot]))
    parts.append(_at(street.lamp_post(), ground, sites.lamps))
    parts += [_clutter(spot, ground, rng) for spot in sites.clutter]
    parts += [_sidewalk(line, plan, recipe, ground) for line in roads.lines if recipe.walk_m > 0]
    return m.merge(parts)


def build_groves(sites: Sites, recipe: Recipe, ground: Ground, rng: np.random.Generator) -> Groves:
    """Build all trees and bushes."""
    wood, leaves = [], []
    for species, make in trees.MAKERS.items():
        nominal = 1.0 if species == 'bush' else sum(recipe.tree_height_m) / 2
        chosen = [(h, spot) for name, h, spot in sites.trees if name == species]
        share = 1.0 if species == 'bush' else recipe.leaf_share
        leaf_count = int(LEAVES[species] * share)
        templates = [make(rng, nominal, leaf_count) for _ in range(TEMPLATES)]
        pick = rng.integers(TEMPLATES, size=len(chosen))
        for k, template in enumerate(templates):
            group = [chosen[i] for i in np.flatnonzero(pick == k)]
            scale = np.array([[h / nominal] * 3 for h, _ in group])
            spots = [spot for _, spot in group]
            wood.append(_at(template.wood, ground, spots, scale))
            leaves.append(_at(template.leaves, ground, spots, scale))
    return Groves(m.merge(wood), m.merge(leaves))


def build_daily(
    sites: Sites, plan: Plan, recipe: Recipe, ground: Ground, groves: Groves, day: Day,
    rng: np.random.Generator,
) -> Mesh:  # fmt: skip
    """Build the objects of one day: ground surface, parked cars, people, leaves."""
    parts = [_surface(plan, recipe, ground, day, rng), *_parked(sites, recipe, ground, rng)]
    parts.append(_people(sites, ground, rng))
    if day.leaves:
        parts.append(groves.leaves)
    return m.merge(parts)


def _at(mesh: Mesh, ground: Ground, spots: list[Spot], scale: Floats | None = None) -> Mesh:
    """Copy a mesh to spots on the ground."""
    if not spots or not len(mesh.faces):
        return m.empty()
    where = np.array(spots)
    z = ground.height(where[:, :2])
    return m.instances(mesh, np.column_stack([where[:, :2], z]), where[:, 2], scale)


def _clutter(spot: Spot, ground: Ground, rng: np.random.Generator) -> Mesh:
    """Put a sign, a bin or a shelter at the curb; the yaw of the spot faces the road."""
    x, y, inwards = spot
    choice = rng.random()
    if choice < 0.7:
        return _at(street.sign(rng), ground, [(x, y, inwards + np.pi / 2)])
    if choice < 0.95:
        return _at(street.bin_container(), ground, [(x, y, inwards)])
    back = (x - 0.9 * np.cos(inwards), y - 0.9 * np.sin(inwards), inwards - np.pi / 2)
    return _at(street.bus_shelter(), ground, [back])


def _sidewalk(line: Floats, plan: Plan, recipe: Recipe, ground: Ground) -> Mesh:
    """Build sidewalks with curbs on both sides, except where other roads cross."""
    half, normal, parts = recipe.road_width_m / 2, left_normals(line), []
    for side in (1.0, -1.0):
        inner = line + side * half * normal
        outer = line + side * (half + recipe.walk_m) * normal
        low = np.column_stack([inner, ground.height(inner) - 0.1])
        rim = low + np.array([0.0, 0.0, 0.1 + CURB_M])
        back = np.column_stack([outer, ground.height(outer) + CURB_M])
        clear = plan.road_distance(inner) > half - 0.6
        keep = clear[:-1] & clear[1:]
        for a, b in ((low, rim), (rim, back)):
            corners = np.stack([a[:-1], a[1:], b[1:], b[:-1]], axis=1)[keep]
            parts.append(m.quads(corners, Material.CONCRETE))
    return m.merge(parts)


def _surface(
    plan: Plan, recipe: Recipe, ground: Ground, day: Day, rng: np.random.Generator
) -> Mesh:
    """Build the ground surface; snow is bright, uneven and piled up along the road."""
    xy = ground.grid_xy()
    center = xy[:-1, :-1] + ground.cell_m / 2
    half = recipe.road_width_m / 2
    on_road = plan.road_distance(center) < half
    road = Material.SOIL if recipe.soil == 'SOIL' else Material.ASPHALT
    material = np.where(on_road, road, Material[recipe.soil]).astype(np.uint8)
    if not day.snow:
        return ground.mesh(material)
    distance = plan.road_distance(xy)
    cover = np.clip((distance - half) / 2.0, 0.0, 1.0) * (0.22 + 0.06 * waves(xy, 12.0, rng))
    bank = 0.45 * np.exp(-(((distance - half - 1.2) / 0.8) ** 2)) * (recipe.walk_m > 0.0)
    snowy = ~on_road | (recipe.soil == 'SOIL')
    material = np.where(snowy, Material.SNOW, material).astype(np.uint8)
    return ground.mesh(material, np.maximum(cover, 0.0) + bank)


def _parked(sites: Sites, recipe: Recipe, ground: Ground, rng: np.random.Generator) -> list[Mesh]:
    """Park random cars in some of the slots, slightly misaligned."""
    if not sites.slots:
        return []
    slots = np.array(sites.slots)
    occupied = rng.random(len(slots)) < recipe.parked
    make = rng.integers(len(vehicles.PARKED), size=len(slots))
    shift = rng.normal(scale=(0.25, 0.12), size=(len(slots), 2))
    flip = np.pi * (rng.random(len(slots)) < (0.5 if recipe.perpendicular else 0.1))
    yaw = slots[:, 2]
    heading = np.stack([np.cos(yaw), np.sin(yaw)], axis=1)
    across = np.stack([-heading[:, 1], heading[:, 0]], axis=1)
    xy = slots[:, :2] + shift[:, :1] * heading + shift[:, 1:] * across
    spots = np.column_stack([xy, yaw + flip + rng.normal(scale=0.03, size=len(slots))])
    meshes = []
    for k, name in enumerate(vehicles.PARKED):
        group = [tuple(s) for s in spots[occupied & (make == k)]]
        meshes.append(_at(vehicles.build(name), ground, group))
    return meshes


def _people(sites: Sites, ground: Ground, rng: np.random.Generator) -> Mesh:
    """Put pedestrians at some of their possible spots."""
    if not sites.walks:
        return m.empty()
    walks = np.array(sites.walks)
    present = rng.random(len(walks)) < 0.4
    walks[:, :2] += rng.uniform(-0.8, 0.8, (len(walks), 2))
    walks[:, 2] += rng.uniform(-np.pi, np.pi, len(walks))
    scale = rng.uniform(0.85, 1.1, (len(walks), 1)) * np.ones(3)
    return _at(street.person(), ground, [tuple(w) for w in walks[present]], scale[present])
