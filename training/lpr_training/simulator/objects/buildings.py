"""Town houses, detached houses and halls: facades, ledges, balconies, roofs, wings."""

from dataclasses import dataclass

import numpy as np

from lpr_training.simulator.geometry import mesh as m
from lpr_training.simulator.geometry.materials import Material
from lpr_training.simulator.geometry.mesh import Mesh
from lpr_training.simulator.objects.facade import Facade, build_facade

FOUNDATION_M = 1.5  # below the ground, to close gaps on slopes
WALLS = (Material.BRICK, Material.PLASTER, Material.CONCRETE, Material.WOOD)


@dataclass(frozen=True)
class Building:
    """The shape of a building, centered at the origin with its front toward -y."""

    width_m: float
    depth_m: float
    floors: int
    floor_height_m: float
    roof: str  # 'flat' or 'gable'
    roof_height_m: float
    bay_m: float
    wall: Material
    ledges: bool = False
    balconies: bool = False
    pilasters: bool = False
    wing_m: tuple[float, float] = (0.0, 0.0)  # width and depth of a lower part in front
    detail: int = 0  # seed of windows, doors and balconies

    @property
    def height_m(self) -> float:
        """Return the height of the eaves."""
        return self.floors * self.floor_height_m


def build(building: Building) -> Mesh:
    """Build the mesh of a building."""
    rng = np.random.default_rng(building.detail)
    parts = [_walls(building, rng), _foundation(building)]
    parts.append(_gable(building) if building.roof == 'gable' else _flat_roof(building, rng))
    if building.ledges:
        parts += _ledges(building)
    if building.balconies:
        parts += _balconies(building, rng)
    if building.pilasters:
        parts += _pilasters(building)
    if building.wing_m[0] > 0.0:
        parts.append(_wing(building, rng))
    return m.merge(parts)


def _walls(b: Building, rng: np.random.Generator) -> Mesh:
    """Make four walls: front and back with doors and many windows, sides with few."""
    window = rng.uniform([0.35, 0.45], [0.62, 0.62])
    walls = []
    placed = (
        (b.width_m, (-b.width_m / 2, -b.depth_m / 2), 0.0, 0.0),
        (b.depth_m, (b.width_m / 2, -b.depth_m / 2), np.pi / 2, 0.6),
        (b.width_m, (b.width_m / 2, b.depth_m / 2), np.pi, 0.1),
        (b.depth_m, (-b.width_m / 2, b.depth_m / 2), -np.pi / 2, 0.6),
    )
    for i, (width, (x, y), yaw, blank) in enumerate(placed):
        bays = max(1, round(width / b.bay_m))
        doors = (int(rng.integers(bays)),) if i in (0, 2) else ()
        facade = Facade(
            width, b.floors, b.floor_height_m, bays, window[0], window[1], 0.18, b.wall,
            doors, blank,
        )  # fmt: skip
        walls.append(m.moved(build_facade(facade, rng), (x, y, 0.0), yaw))
    return m.merge(walls)


def _foundation(b: Building) -> Mesh:
    size = (b.width_m, b.depth_m, FOUNDATION_M)
    return m.box(size, (0.0, 0.0, -FOUNDATION_M / 2), Material.CONCRETE)


def _gable(b: Building) -> Mesh:
    """Make a gable roof with eaves, the ridge along x."""
    x, y = b.width_m / 2 + 0.3, b.depth_m / 2 + 0.4
    low, high = b.height_m - 0.1, b.height_m + b.roof_height_m
    points = [(sx * x, sy * y, low) for sx in (-1, 1) for sy in (-1, 1)]
    points += [(-x, 0.0, high), (x, 0.0, high)]
    chimney = m.box((0.7, 0.7, 1.6), (b.width_m / 4, 0.6, high - 0.2), Material.BRICK)
    return m.merge([m.hull(points, Material.ROOF), chimney])


def _flat_roof(b: Building, rng: np.random.Generator) -> Mesh:
    slab = m.box(
        (b.width_m + 0.3, b.depth_m + 0.3, 0.9), (0.0, 0.0, b.height_m + 0.1), Material.CONCRETE
    )
    size = rng.uniform([1.5, 1.5, 1.5], [4.0, 4.0, 3.0])
    spot = rng.uniform(-0.25, 0.25, 2) * (b.width_m, b.depth_m)
    shed = m.box(size.tolist(), (spot[0], spot[1], b.height_m + 1.5), Material.METAL)
    return m.merge([slab, shed])


def _ledges(b: Building) -> list[Mesh]:
    """Make ledges around the building above the ground floor and below the roof."""
    heights = (b.floor_height_m, b.height_m - 0.3)
    size = (b.width_m + 0.5, b.depth_m + 0.5, 0.25)
    return [m.box(size, (0.0, 0.0, z), b.wall) for z in heights]


def _pilasters(b: Building) -> list[Mesh]:
    """Make pilasters between the bays of the front, and a step in front of it."""
    bays = max(1, round(b.width_m / b.bay_m))
    x = np.linspace(-b.width_m / 2 + 0.2, b.width_m / 2 - 0.2, bays // 2 + 1)
    size, y, z = (0.4, 0.35, b.height_m), -b.depth_m / 2 - 0.15, b.height_m / 2
    step = m.box((0.3 * b.width_m, 0.9, 0.3), (0.0, -b.depth_m / 2 - 0.4, 0.15), Material.CONCRETE)
    return [step] + [m.box(size, (float(at), y, z), b.wall) for at in x]


def _balconies(b: Building, rng: np.random.Generator) -> list[Mesh]:
    """Make balconies with a parapet at some bays of the upper floors."""
    bays = max(1, round(b.width_m / b.bay_m))
    step = b.width_m / bays
    columns = rng.choice(bays, size=max(1, bays // 2), replace=False)
    parts = []
    for floor in range(1, b.floors):
        for column in columns:
            x = -b.width_m / 2 + (column + 0.5) * step
            z, y = floor * b.floor_height_m, -b.depth_m / 2
            parts.append(m.box((0.9 * step, 1.2, 0.15), (x, y - 0.6, z), Material.CONCRETE))
            parts.append(m.box((0.9 * step, 0.06, 0.9), (x, y - 1.2, z + 0.5), Material.METAL))
    return parts


def _wing(b: Building, rng: np.random.Generator) -> Mesh:
    """Make a lower part in front of one half, such as a porch, shop or garage."""
    width, depth = b.wing_m
    height = min(b.floor_height_m, b.height_m)
    side = 1.0 if rng.random() < 0.5 else -1.0
    x, y = side * (b.width_m - width) / 2, -(b.depth_m + depth) / 2
    size, z = (width, depth, height + FOUNDATION_M), (height - FOUNDATION_M) / 2
    body = m.box(size, (x, y, z), b.wall)
    roof = m.box((width + 0.4, depth + 0.4, 0.3), (x, y, height + 0.1), Material.ROOF)
    return m.merge([body, roof])
