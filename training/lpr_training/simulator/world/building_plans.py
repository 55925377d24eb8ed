"""Draw random buildings within the limits of a recipe."""

import numpy as np

from lpr_training.simulator.objects.buildings import WALLS, Building
from lpr_training.simulator.world.recipes import Recipe


def draw_building(recipe: Recipe, rng: np.random.Generator) -> tuple[Building, float]:
    """Draw a building and its distance from the sidewalk."""
    width, depth = rng.uniform(*recipe.front_m), rng.uniform(*recipe.depth_m)
    setback = rng.uniform(*recipe.setback_m)
    floors = int(rng.integers(int(recipe.floors[0]), int(recipe.floors[1]) + 1))
    identical = recipe.front_m[0] == recipe.front_m[1]
    gabled = recipe.style == 'house' or (recipe.style == 'town' and rng.random() < 0.4)
    wing_depth = min(setback - 0.5, rng.uniform(1.5, 4.5))
    has_wing = wing_depth > 1.0 and rng.random() < recipe.wing
    floor_height, roof, bay = rng.uniform([2.7, 1.5, 2.2], [3.4, 4.0, 4.2])
    wall = WALLS[int(rng.integers(len(WALLS)))]
    detail = int(rng.integers(2**31))
    if identical:
        floor_height, roof, bay, wall, detail, wing_depth = 2.8, 3.0, 3.0, WALLS[0], 1, 2.5
    building = Building(
        width_m=width,
        depth_m=depth,
        floors=floors,
        floor_height_m=float(floor_height),
        roof='gable' if gabled else 'flat',
        roof_height_m=float(roof),
        bay_m=float(bay),
        wall=wall,
        ledges=recipe.style == 'town' and rng.random() < 0.6,
        balconies=recipe.style == 'town' and rng.random() < 0.35,
        pilasters=recipe.style in ('town', 'hall') and rng.random() < 0.4,
        wing_m=(0.45 * width, float(wing_depth)) if has_wing else (0.0, 0.0),
        detail=detail,
    )
    return building, setback
