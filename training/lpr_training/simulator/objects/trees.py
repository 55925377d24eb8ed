"""Trees and bushes, with wood and leaves separate for the seasons."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lpr_training.simulator.geometry import mesh as m
from lpr_training.simulator.geometry.materials import Material
from lpr_training.simulator.geometry.mesh import Mesh


@dataclass(frozen=True, eq=False)
class Tree:
    """One tree; `leaves` are those that fall, empty for evergreens."""

    wood: Mesh
    leaves: Mesh


def leaf_cloud(
    rng: np.random.Generator,
    center: NDArray[np.float64],
    radii: NDArray[np.float64],
    count: int,
    size_m: float,
    material: Material = Material.LEAF,
) -> Mesh:
    """Scatter separate triangles in an ellipsoid, denser toward its surface."""
    direction = rng.normal(size=(count, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    radius = rng.uniform(0.25, 1.0, (count, 1)) ** 0.5
    middle = center + direction * radius * radii
    corners = middle[:, None] + rng.normal(scale=0.6 * size_m, size=(count, 3, 3))
    return m.triangles(corners, material)


def broadleaf(rng: np.random.Generator, height_m: float, leaves: int) -> Tree:
    """Grow a trunk, forking branches, and a crown of leaf clusters at their ends."""
    bole = height_m * rng.uniform(0.25, 0.4)
    thick = 0.014 * height_m + rng.uniform(0.03, 0.12)
    top = np.array([*rng.normal(scale=0.03 * height_m, size=2), 0.8 * height_m])
    fork = top * (bole / top[2])
    wood = [
        m.tube((0.0, 0.0, -0.5), fork, (1.2 * thick, 0.8 * thick), Material.BARK, 8),
        m.tube(fork, top, (0.8 * thick, 0.15 * thick), Material.BARK, 6),
    ]
    size = 0.3 * (420 / max(leaves, 1)) ** 0.5  # larger if there are few, to keep the crown dense
    crown = [leaf_cloud(rng, top, np.full(3, 0.16 * height_m), leaves // 6, size)]
    count = int(rng.integers(5, 9))
    for i in range(count):
        azimuth = 2.0 * np.pi * (i + rng.uniform(-0.3, 0.3)) / count
        start = fork + (top - fork) * rng.uniform(0.0, 0.6)
        reach = height_m * rng.uniform(0.18, 0.32)
        lift = height_m * rng.uniform(0.08, 0.25)
        end = start + np.array([np.cos(azimuth) * reach, np.sin(azimuth) * reach, lift])
        wood.append(m.tube(start, end, (0.4 * thick, 0.1 * thick), Material.BARK, 4))
        radii = height_m * rng.uniform(0.1, 0.17, 3)
        crown.append(leaf_cloud(rng, end, radii, leaves // count, size))
    return Tree(m.merge(wood), m.merge(crown))


def conifer(rng: np.random.Generator, height_m: float, leaves: int) -> Tree:
    """Grow a straight trunk with whorls of evergreen branches."""
    thick = 0.012 * height_m + rng.uniform(0.03, 0.08)
    wood = [m.tube((0, 0, -0.5), (0, 0, height_m), (thick, 0.03), Material.BARK, 7)]
    bare = height_m * rng.uniform(0.12, 0.35)
    whorls = 7
    for i in range(whorls):
        share = i / (whorls - 1)
        z = bare + (height_m - bare) * (0.05 + 0.9 * share)
        reach = 0.2 * height_m * (1.0 - 0.85 * share)
        center, radii = np.array([0.0, 0.0, z]), np.array([reach, reach, 0.06 * height_m])
        wood.append(leaf_cloud(rng, center, radii, leaves // whorls, 0.35))
    return Tree(m.merge(wood), m.empty())


def dead_trunk(rng: np.random.Generator, height_m: float, _leaves: int) -> Tree:
    """Grow a bare, slightly leaning trunk with a few stubs."""
    lean = rng.normal(scale=0.06 * height_m, size=2)
    top = np.array([lean[0], lean[1], height_m])
    wood = [m.tube((0, 0, -0.5), top, (0.18, 0.1), Material.BARK, 7)]
    for _ in range(3):
        start = top * rng.uniform(0.4, 0.9)
        end = start + np.array([*rng.normal(scale=0.8, size=2), 0.4])
        wood.append(m.tube(start, end, (0.06, 0.02), Material.BARK, 4))
    return Tree(m.merge(wood), m.empty())


def fallen_log(rng: np.random.Generator, height_m: float, _leaves: int) -> Tree:
    """Lay a log on the ground."""
    ends = (-height_m / 2, 0.0, 0.2), (height_m / 2, 0.0, rng.uniform(0.2, 0.5))
    return Tree(m.tube(*ends, (0.25, 0.18), Material.BARK, 7), m.empty())


def bush(rng: np.random.Generator, height_m: float, leaves: int) -> Tree:
    """Grow a bush, with twigs that remain when the leaves fall."""
    center = np.array([0.0, 0.0, 0.55 * height_m])
    radii = np.array([0.55, 0.55, 0.5]) * height_m
    twigs = leaf_cloud(rng, center, radii, leaves // 4, 0.12, Material.BARK)
    return Tree(twigs, leaf_cloud(rng, center, radii, leaves, 0.18))


MAKERS = {
    'broadleaf': broadleaf,
    'conifer': conifer,
    'dead': dead_trunk,
    'log': fallen_log,
    'bush': bush,
}
