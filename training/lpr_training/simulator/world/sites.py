"""Placement of buildings, parking slots, street furniture and trees along the roads."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lpr_training.simulator.geometry.materials import Material
from lpr_training.simulator.geometry.polylines import Line, arc_length, left_normals, tangents
from lpr_training.simulator.objects.buildings import Building
from lpr_training.simulator.world.building_plans import draw_building
from lpr_training.simulator.world.occupancy_plan import Plan, rectangle
from lpr_training.simulator.world.recipes import Recipe
from lpr_training.simulator.world.roads import RoadGraph

Spot = tuple[float, float, float]  # x, y, yaw
MIN_PARKING_OFFSET_M = 3.6  # from the center line to the middle of a parked car
JUNCTION_M = 11.0  # kept clear at both ends of a road


@dataclass
class Sites:
    """The sites of all objects in a world."""

    buildings: list[tuple[Building, Spot]] = field(default_factory=list)
    walls: list[tuple[float, float, Material, Spot]] = field(default_factory=list)
    lamps: list[Spot] = field(default_factory=list)
    clutter: list[Spot] = field(default_factory=list)
    trees: list[tuple[str, float, Spot]] = field(default_factory=list)  # species, height
    slots: list[Spot] = field(default_factory=list)  # where a car may park
    walks: list[Spot] = field(default_factory=list)  # where a person may stand


def choose_sites(roads: RoadGraph, plan: Plan, recipe: Recipe, rng: np.random.Generator) -> Sites:
    """Place all objects, the largest first, without collisions."""
    sites = Sites()
    edge = recipe.road_width_m / 2 + recipe.walk_m
    for line in roads.lines:
        for side in (1.0, -1.0):
            _build_along(sites, plan, recipe, line, side, rng)
    for line in roads.lines:
        _furnish(sites, plan, recipe, line, rng)
        for side in (1.0, -1.0):
            _park_along(sites, plan, recipe, line, side)
            _walk_along(sites, plan, recipe, line, side)
    _place_halls(sites, plan, recipe, rng)
    if recipe.fenced:
        _fence_in(sites, roads, recipe)
    _plant(sites, plan, recipe, edge, rng)
    return sites


def _along(
    line: Line, spacing_m: float, offset_m: float, ends_m: float
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64], float]]:
    """Step along a line; yield the point `offset_m` to the left, left normal and yaw."""
    s, normal, tangent = arc_length(line), left_normals(line), tangents(line)
    for at in np.arange(ends_m, s[-1] - ends_m, spacing_m):
        i = int(np.searchsorted(s, at))
        yaw = float(np.arctan2(tangent[i, 1], tangent[i, 0]))
        point = np.array([np.interp(at, s, line[:, k]) for k in range(2)])
        yield point + offset_m * normal[i], normal[i], yaw


def _build_along(sites: Sites, plan: Plan, recipe: Recipe, line: Line, side: float,
                 rng: np.random.Generator) -> None:  # fmt: skip
    """Place buildings along one side of a road, lot by lot."""
    if recipe.style == 'none':
        return
    s, normal, tangent = arc_length(line), left_normals(line), tangents(line)
    edge = recipe.road_width_m / 2 + recipe.walk_m
    at = edge
    while at < s[-1] - edge:
        building, setback = draw_building(recipe, rng)
        width = building.width_m
        gap = rng.uniform(*recipe.gap_m)
        if rng.random() < recipe.opening:
            at += width * 0.7 + gap
            continue
        i = min(int(np.searchsorted(s, at + width / 2)), len(s) - 1)
        out = side * normal[i]
        yaw = float(np.arctan2(*(side * tangent[i])[::-1]))
        center = line[i] + out * (edge + setback + building.depth_m / 2)
        footprint = rectangle(center, yaw, width, building.depth_m)
        if plan.claim(footprint, edge + min(setback, 0.3)):
            sites.buildings.append((building, (float(center[0]), float(center[1]), yaw)))
            _enclose(sites, plan, recipe, line[i] + out * (edge + 0.4), yaw, width, rng)
            at += width + gap
        else:
            at += 4.0


def _enclose(sites: Sites, plan: Plan, recipe: Recipe, front: NDArray[np.float64], yaw: float,
             width: float, rng: np.random.Generator) -> None:  # fmt: skip
    """Put a wall, fence or hedge in front of part of a lot."""
    if rng.random() >= recipe.wall:
        return
    length = width * rng.uniform(0.3, 0.6)
    shift = rng.choice([-1.0, 1.0]) * (width - length) / 2
    center = front + shift * np.array([np.cos(yaw), np.sin(yaw)])
    if not plan.claim(rectangle(center, yaw, length, 0.6), recipe.road_width_m / 2):
        return
    material = (Material.LEAF, Material.WOOD, Material.BRICK)[int(rng.integers(3))]
    height = rng.uniform(0.7, 1.8)
    sites.walls.append((length, height, material, (float(center[0]), float(center[1]), yaw)))


def _park_along(sites: Sites, plan: Plan, recipe: Recipe, line: Line, side: float) -> None:
    """Mark parking slots along one side of a road, to be filled for each day."""
    if recipe.parking_m <= 0.0:
        return
    half = recipe.road_width_m / 2
    # On narrow roads cars park partly on the sidewalk, to leave room to pass.
    offset = half + 2.5 if recipe.perpendicular else max(half - 0.6, MIN_PARKING_OFFSET_M)
    turn = np.pi / 2 if recipe.perpendicular else (0.0 if side < 0 else np.pi)
    for point, _, yaw in _along(line, recipe.parking_m, side * offset, JUNCTION_M):
        car = rectangle(point, yaw + turn, 4.4, 1.8)
        if plan.road_distance(point) > offset - 0.3 and not plan.is_occupied(car).any():
            sites.slots.append((float(point[0]), float(point[1]), yaw + turn))


def _walk_along(sites: Sites, plan: Plan, recipe: Recipe, line: Line, side: float) -> None:
    """Mark spots on the sidewalk for pedestrians, to be filled for each day."""
    if recipe.people_m <= 0.0:
        return
    offset = recipe.road_width_m / 2 + 1.4
    for point, _, yaw in _along(line, recipe.people_m, side * offset, JUNCTION_M):
        if plan.road_distance(point) > offset - 0.6 and not plan.is_occupied(point):
            sites.walks.append((float(point[0]), float(point[1]), yaw))


def _furnish(sites: Sites, plan: Plan, recipe: Recipe, line: Line,
             rng: np.random.Generator) -> None:  # fmt: skip
    """Place lamp posts, signs and street trees along the curb."""
    half = recipe.road_width_m / 2
    curb = half + 5.2 if recipe.perpendicular else half + 0.9
    irregular = recipe.clutter_m > 0.0
    for side in (1.0, -1.0):
        for spacing, kind in ((recipe.lamp_m, 'lamp'), (recipe.street_tree_m, 'tree'),
                              (recipe.clutter_m, 'clutter')):  # fmt: skip
            if spacing <= 0.0:
                continue
            start = JUNCTION_M + (spacing * rng.random() if irregular else 0.0)
            for point, normal, _ in _along(line, spacing, side * curb, start):
                if irregular and rng.random() < 0.3:
                    continue
                if not plan.claim(point[None], curb - 0.6):
                    continue
                inwards = float(np.arctan2(*(-side * normal)[::-1]))
                _put(sites, kind, (float(point[0]), float(point[1]), inwards), recipe, rng)


def _put(sites: Sites, kind: str, spot: Spot, recipe: Recipe, rng: np.random.Generator) -> None:
    if kind == 'lamp':
        sites.lamps.append(spot)
    elif kind == 'clutter':
        sites.clutter.append(spot)
    else:
        sites.trees.append(('broadleaf', rng.uniform(*recipe.tree_height_m), spot))


def _place_halls(sites: Sites, plan: Plan, recipe: Recipe, rng: np.random.Generator) -> None:
    """Place large buildings away from the roads, visible through gaps."""
    for _ in range(recipe.halls):
        width, depth = rng.uniform([18.0, 12.0], [60.0, 25.0])
        building = Building(width, depth, int(rng.integers(2, 6)), 3.8, 'flat', 0.0, 6.0,
                            Material.METAL, detail=int(rng.integers(2**31)))  # fmt: skip
        for _attempt in range(50):
            center = np.asarray(plan.origin) + rng.random(2) * plan.size_m
            yaw = float(rng.uniform(-np.pi, np.pi))
            if plan.claim(rectangle(center, yaw, width, depth), recipe.road_width_m / 2 + 9.0):
                sites.buildings.append((building, (float(center[0]), float(center[1]), yaw)))
                break


def _fence_in(sites: Sites, roads: RoadGraph, recipe: Recipe) -> None:
    """Place a hedge with gaps around all roads."""
    points = np.concatenate(roads.lines)
    middle = (points.min(axis=0) + points.max(axis=0)) / 2
    half = np.ptp(points, axis=0) / 2 + recipe.road_width_m / 2 + 9.0
    for k in range(4):
        yaw = k * np.pi / 2
        length, away = (half if k % 2 == 0 else half[::-1]) * (2.0, 1.0)
        along, out = (np.array([np.cos(a), np.sin(a)]) for a in (yaw, yaw - np.pi / 2))
        for at in np.arange(-length / 2 + 8.0, length / 2, 17.0):
            x, y = middle + at * along + away * out
            sites.walls.append((15.0, 1.6, Material.LEAF, (float(x), float(y), yaw)))


def _plant(sites: Sites, plan: Plan, recipe: Recipe, edge: float,
           rng: np.random.Generator) -> None:  # fmt: skip
    """Plant trees and bushes on open ground."""
    hectares = plan.size_m[0] * plan.size_m[1] / 1e4
    for density, low, high, bush in (
        (recipe.trees_per_ha, *recipe.tree_height_m, False),
        (recipe.bushes_per_ha, 0.4, 1.8, True),
    ):
        count = int(density * hectares)
        where = np.asarray(plan.origin) + rng.random((count, 2)) * plan.size_m
        height, yaw = rng.uniform(low, high, count), rng.uniform(-np.pi, np.pi, count)
        species = np.where(rng.random(count) < recipe.conifers, 'conifer', 'broadleaf')
        chance = rng.random(count)
        species = np.where(chance < recipe.dead_wood, 'dead', species)
        species = np.where(chance < recipe.dead_wood / 2, 'log', species)
        for k in range(count):
            name = 'bush' if bush else str(species[k])
            area = where[k : k + 1]
            if name == 'log':
                area = rectangle(where[k], yaw[k], height[k], 0.5)
            if plan.claim(area, edge + (0.8 * height[k] if bush else 1.2)):
                spot = (float(where[k, 0]), float(where[k, 1]), float(yaw[k]))
                sites.trees.append((name, float(height[k]), spot))
