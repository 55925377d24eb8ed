"""Street furniture: lamp posts, signs, bins, walls and fences."""

import numpy as np

from lpr_training.simulator.geometry import mesh as m
from lpr_training.simulator.geometry.materials import Material
from lpr_training.simulator.geometry.mesh import Mesh


def lamp_post(height_m: float = 7.0) -> Mesh:
    """Make a lamp post with an arm toward +x."""
    return m.merge([
        m.tube((0, 0, -0.5), (0, 0, height_m), (0.11, 0.07), Material.METAL, 8),
        m.tube((0, 0, height_m), (1.8, 0, height_m + 0.3), (0.05, 0.05), Material.METAL, 5),
        m.box((0.7, 0.25, 0.15), (1.9, 0.0, height_m + 0.3), Material.METAL),
    ])  # fmt: skip


def sign(rng: np.random.Generator) -> Mesh:
    """Make a traffic sign that faces along x."""
    height, side = rng.uniform(2.0, 2.8), rng.uniform(0.5, 0.9)
    return m.merge([
        m.tube((0, 0, -0.5), (0, 0, height), (0.035, 0.035), Material.METAL, 6),
        m.box((0.04, side, side), (-0.05, 0.0, height - side / 2), Material.SIGN),
    ])  # fmt: skip


def bin_container() -> Mesh:
    """Make a wheeled refuse bin."""
    return m.box((0.6, 0.7, 1.1), (0.0, 0.0, 0.55), Material.METAL)


def bus_shelter() -> Mesh:
    """Make a bus shelter open toward +y."""
    return m.merge([
        m.box((4.0, 1.6, 0.12), (0.0, 0.0, 2.4), Material.METAL),
        m.box((4.0, 0.05, 2.3), (0.0, -0.75, 1.2), Material.GLASS),
        m.box((0.05, 1.4, 2.3), (-1.95, 0.0, 1.2), Material.GLASS),
        m.box((2.5, 0.4, 0.08), (0.0, -0.4, 0.5), Material.WOOD),
    ])  # fmt: skip


def wall(length_m: float, height_m: float, material: Material) -> Mesh:
    """Make a wall, fence or hedge along x."""
    thick = 0.6 if material is Material.LEAF else 0.15
    return m.box((length_m, thick, height_m + 0.8), (0.0, 0.0, (height_m - 0.8) / 2), material)


def person() -> Mesh:
    """Make a walking person of 1.75 m facing along x."""
    return m.merge([
        m.tube((0.2, 0.1, 0.0), (0.0, 0.08, 0.85), (0.06, 0.09), Material.WOOD, 5),
        m.tube((-0.2, -0.1, 0.0), (0.0, -0.08, 0.85), (0.06, 0.09), Material.WOOD, 5),
        m.hull([(x, y, z) for x in (-0.11, 0.11) for y in (-0.2, 0.2) for z in (0.85, 1.45)],
               Material.PLASTER),
        m.tube((0.2, 0.27, 0.85), (0.0, 0.22, 1.42), (0.04, 0.06), Material.PLASTER, 5),
        m.tube((-0.2, -0.27, 0.85), (0.0, -0.22, 1.42), (0.04, 0.06), Material.PLASTER, 5),
        m.box((0.19, 0.16, 0.26), (0.02, 0.0, 1.62), Material.WOOD),
    ])  # fmt: skip
