"""KITTI odometry lifted from bird's-eye counts to 3-D clouds: real drives for a whole pipeline.

A pixel with count n becomes n points, one per counted layer, at random positions inside the
pixel; a sparse ground is added. Heights are invented and the resolution is 0.4 m, but houses,
cars, trees, revisits and look-alikes are real.
"""

import numpy as np
from numpy.typing import NDArray

from lpr_training.datasets.base import METERS
from lpr_training.datasets.kitti_bev import CENTER, PIXEL_M, KittiBevDataset

SENSOR_HEIGHT_M = 1.73
FIRST_LAYER_M = 0.6  # above the ground
LAYER_M = 0.2
GROUND_SPACING_M = 1.0
GROUND_SIGMA_M = 0.02
SEED = 20


class LiftedKittiDataset(KittiBevDataset):
    """Sequences of lifted clouds, one run each; x forward, y left, z up, meters."""

    clouds = METERS

    def points(self, index: int) -> NDArray[np.float32]:
        """Return the points of one scan; the same ones whenever they are asked for."""
        return lift_to_cloud(self.counts(index), np.random.default_rng([SEED, index]))


def lift_to_cloud(counts: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.float32]:
    """Return obstacles and ground (n, 3) of a count image, in the sensor frame."""
    rows, columns = np.nonzero(counts)
    layers = counts[rows, columns].astype(np.int64)
    level = np.arange(layers.sum()) - np.repeat(np.cumsum(layers) - layers, layers)
    cells = np.repeat(CENTER - np.column_stack([rows, columns]), layers, axis=0)
    obstacles = np.column_stack(
        [_inside(cells, rng), FIRST_LAYER_M + LAYER_M * level - SENSOR_HEIGHT_M]
    )
    return np.concatenate([obstacles, _ground(rng)]).astype(np.float32)


def _inside(cells: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return a random position in each cell.

    The images truncate positions toward the sensor, so the cells of the middle row and column
    are twice as wide and reach to both sides.
    """
    side = np.where(cells == 0, rng.choice([-1.0, 1.0], cells.shape), np.sign(cells))
    return side * (np.abs(cells) + rng.random(cells.shape)) * PIXEL_M


def _ground(rng: np.random.Generator) -> NDArray[np.float64]:
    """Return a level grid of ground points."""
    reach_m = CENTER * PIXEL_M
    axis = np.arange(-reach_m, reach_m + GROUND_SPACING_M, GROUND_SPACING_M)
    x, y = (grid.ravel() for grid in np.meshgrid(axis, axis))
    return np.column_stack([x, y, rng.normal(-SENSOR_HEIGHT_M, GROUND_SIGMA_M, len(x))])
