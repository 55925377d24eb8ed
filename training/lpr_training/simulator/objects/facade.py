"""A wall with rows of recessed windows, as quadrilaterals."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lpr_training.simulator.geometry import mesh as m
from lpr_training.simulator.geometry.materials import Material
from lpr_training.simulator.geometry.mesh import Mesh


@dataclass(frozen=True)
class Facade:
    """The pattern of a wall in the x-z plane that faces -y."""

    width_m: float
    floors: int
    floor_height_m: float
    bays: int
    window_width: float  # fraction of a bay
    window_height: float  # fraction of a floor
    recess_m: float
    wall: Material
    doors: tuple[int, ...] = ()  # bays of the ground floor with a door
    blank: float = 0.0  # fraction of bays without a window


def build_facade(facade: Facade, rng: np.random.Generator) -> Mesh:
    """Build the wall: a frame, four reveals and a pane for each opening."""
    outer, hole, pane = _cells(facade, rng)
    is_open = hole[:, 1] > hole[:, 0]
    parts = [_flat(outer[~is_open], 0.0, facade.wall)]
    if is_open.any():
        outer, hole, pane = outer[is_open], hole[is_open], pane[is_open]
        parts += [_frame(outer, hole, facade.wall), _reveals(hole, facade)]
        parts.append(_flat(hole, facade.recess_m, pane))
    return m.merge(parts)


def _cells(
    facade: Facade, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.uint8]]:
    """Return rectangles (x0, x1, z0, z1) of bays and openings, and the pane materials."""
    bay, floor = facade.width_m / facade.bays, facade.floor_height_m
    column, row = np.meshgrid(np.arange(facade.bays), np.arange(facade.floors))
    column, row = column.ravel(), row.ravel()
    outer = np.stack([column * bay, (column + 1) * bay, row * floor, (row + 1) * floor], axis=1)
    side = 0.5 * bay * (1.0 - facade.window_width)
    sill = 0.55 * floor * (1.0 - facade.window_height)
    top = 0.45 * floor * (1.0 - facade.window_height)
    hole = outer + np.array([side, -side, sill, -top])
    pane = np.full(len(outer), Material.GLASS, np.uint8)
    closed = rng.random(len(outer)) < facade.blank
    hole[closed, 1] = hole[closed, 0]
    door = (row == 0) & np.isin(column, facade.doors)
    hole[door] = (outer + np.array([0.25 * bay, -0.25 * bay, 0.02, -0.2 * floor]))[door]
    pane[door] = Material.WOOD
    return outer, hole, pane


def _flat(rect: NDArray[np.float64], y: float, material: NDArray[np.uint8] | Material) -> Mesh:
    x0, x1, z0, z1 = rect.T
    depth = np.full_like(x0, y)
    corners = [(x0, depth, z0), (x1, depth, z0), (x1, depth, z1), (x0, depth, z1)]
    return m.quads(np.stack([np.stack(c, axis=1) for c in corners], axis=1), material)


def _frame(outer: NDArray[np.float64], hole: NDArray[np.float64], wall: Material) -> Mesh:
    x0, x1, z0, z1 = outer.T
    a, b, c, d = hole.T
    strips = [(x0, a, z0, z1), (b, x1, z0, z1), (a, b, z0, c), (a, b, d, z1)]
    return m.merge(_flat(np.stack(s, axis=1), 0.0, wall) for s in strips)


def _reveals(hole: NDArray[np.float64], facade: Facade) -> Mesh:
    a, b, c, d = hole.T
    front, back = np.zeros_like(a), np.full_like(a, facade.recess_m)
    corners = [(a, c), (b, c), (b, d), (a, d)]
    sides = []
    for (xa, za), (xb, zb) in zip(corners, corners[1:] + corners[:1], strict=True):
        ring = [(xa, front, za), (xb, front, zb), (xb, back, zb), (xa, back, za)]
        sides.append(np.stack([np.stack(p, axis=1) for p in ring], axis=1))
    return m.quads(np.concatenate(sides), facade.wall)
