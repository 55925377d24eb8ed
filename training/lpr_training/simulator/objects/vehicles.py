"""Cars, vans and trucks: body, cabin, four wheels; x forward, wheels on z = 0."""

import numpy as np
import trimesh

from lpr_training.simulator.geometry import mesh as m
from lpr_training.simulator.geometry.materials import Material
from lpr_training.simulator.geometry.mesh import Mesh

# Length, width, height of the hood, height of the roof, then as fractions of the length from the
# tail: start of the cabin, start of its roof, end of its roof, end of the cabin.
SHAPES: dict[str, tuple[float, ...]] = {
    'hatchback': (3.9, 1.70, 0.92, 1.48, 0.02, 0.12, 0.55, 0.74),
    'sedan': (4.6, 1.80, 0.95, 1.45, 0.14, 0.30, 0.58, 0.74),
    'wagon': (4.7, 1.80, 0.95, 1.50, 0.02, 0.10, 0.58, 0.74),
    'suv': (4.6, 1.90, 1.10, 1.75, 0.02, 0.10, 0.58, 0.72),
    'van': (5.2, 2.00, 1.20, 2.30, 0.00, 0.01, 0.78, 0.90),
    'truck': (7.5, 2.40, 1.40, 3.20, 0.00, 0.00, 0.72, 0.73),
}
PARKED = ('hatchback', 'sedan', 'wagon', 'suv', 'hatchback', 'sedan', 'van')
LENGTH_M = {name: shape[0] for name, shape in SHAPES.items()}


def build(name: str) -> Mesh:
    """Build one vehicle; the name is a key of SHAPES."""
    length, width, hood, roof, *cuts = SHAPES[name]
    x = [(c - 0.5) * length for c in cuts]
    cabin_material = Material.PAINT if name in ('van', 'truck') else Material.GLASS
    parts = [_body(length, width, hood), _cabin(x, width, hood, roof, cabin_material)]
    top = m.box((x[2] - x[1], 0.8 * width, 0.06), ((x[1] + x[2]) / 2, 0.0, roof), Material.PAINT)
    parts += [top, *_wheels(length, width)]
    return m.merge(parts)


def _body(length: float, width: float, hood: float) -> Mesh:
    """Make the lower body, tapered toward nose and tail."""
    nose, tail, half = length / 2, -length / 2, width / 2
    points = []
    for side in (-half, half):
        points += [(tail, 0.85 * side, 0.45), (nose, 0.8 * side, 0.45)]
        points += [(tail, 0.85 * side, 0.9 * hood), (nose, 0.8 * side, 0.75 * hood)]
        for x in (0.42 * tail, 0.42 * nose, 0.8 * tail):
            points += [(x, side, 0.25), (x, side, 0.8 * hood), (x, 0.9 * side, hood)]
        points.append((0.8 * nose, 0.95 * side, 0.85 * hood))
    return m.hull(points, Material.PAINT)


def _cabin(x: list[float], width: float, hood: float, roof: float, material: Material) -> Mesh:
    half = width / 2
    points = []
    for side in (-half, half):
        points += [(x[0], 0.92 * side, 0.9 * hood), (x[3], 0.92 * side, 0.9 * hood)]
        points += [(x[1], 0.75 * side, roof), (x[2], 0.75 * side, roof)]
    return m.hull(points, material)


def _wheels(length: float, width: float) -> list[Mesh]:
    radius, thickness = 0.33, 0.2
    wheel = trimesh.creation.cylinder(radius=radius, height=thickness, sections=10)
    wheel.apply_transform(trimesh.transformations.rotation_matrix(np.pi / 2, [1, 0, 0]))
    solid = m.from_trimesh(wheel, Material.RUBBER)
    spots = [(sx * 0.3 * length, sy * (width - thickness) / 2) for sx in (-1, 1) for sy in (-1, 1)]
    return [m.moved(solid, (x, y, radius)) for x, y in spots]
