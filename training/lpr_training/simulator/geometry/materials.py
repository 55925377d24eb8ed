"""Optical properties of surfaces."""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Material(IntEnum):
    """Index into the tables below; stored per triangle as uint8."""

    ASPHALT = 0
    CONCRETE = 1
    BRICK = 2
    PLASTER = 3
    GLASS = 4
    PAINT = 5
    RUBBER = 6
    BARK = 7
    LEAF = 8
    GRASS = 9
    SOIL = 10
    SNOW = 11
    SIGN = 12
    WOOD = 13
    ROOF = 14
    METAL = 15


# (reflectivity at normal incidence, fraction of shots without a return)
_OPTICS: dict[Material, tuple[float, float]] = {
    Material.ASPHALT: (0.22, 0.0),
    Material.CONCRETE: (0.32, 0.0),
    Material.BRICK: (0.34, 0.0),
    Material.PLASTER: (0.48, 0.0),
    Material.GLASS: (0.10, 0.65),
    Material.PAINT: (0.30, 0.08),
    Material.RUBBER: (0.06, 0.0),
    Material.BARK: (0.28, 0.0),
    Material.LEAF: (0.36, 0.05),
    Material.GRASS: (0.34, 0.02),
    Material.SOIL: (0.24, 0.0),
    Material.SNOW: (0.80, 0.0),
    Material.SIGN: (2.50, 0.0),
    Material.WOOD: (0.38, 0.0),
    Material.ROOF: (0.22, 0.0),
    Material.METAL: (0.40, 0.03),
}

REFLECTIVITY: NDArray[np.float32] = np.array([_OPTICS[m][0] for m in Material], np.float32)
LOSS: NDArray[np.float32] = np.array([_OPTICS[m][1] for m in Material], np.float32)
