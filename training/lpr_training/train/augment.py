"""Random augmentation of training clouds; functions take points (N, 3) and a Generator.

The defaults are those of MinkLoc3Dv2 for clouds scaled to [-1, 1]. For metric clouds, set the
lengths in meters, `removed: delete`, and `yaw_deg: 180` for descriptors of any heading.
"""

from dataclasses import dataclass
import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.config import Config, option
from lpr_ros.core.geometry.se3 import yaw_matrix

Points: TypeAlias = NDArray[np.float32]
Mask: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True)
class AugmentConfig(Config):
    """Augmentation steps; lengths are in the unit of the cloud, 0 disables a step."""

    removed: str = option(
        'zero', 'Move removed points to the origin or delete them', choices=('zero', 'delete')
    )
    scale: float = option(
        0.0, 'Maximum relative change of the cloud scale, uniform', low=0.0, high=0.9
    )
    height_scale: float = option(
        0.0,
        'Maximum relative change of the z scale, as from other beam layouts',
        low=0.0,
        high=0.9,
    )
    height_cut: float = option(
        0.0,
        'Lower the cloud by up to this length and remove points below zero, as from a higher '
        'ground cut',
        low=0.0,
    )
    yaw_deg: float = option(
        0.0, 'Maximum rotation of each cloud about z', unit='deg', low=0.0, high=180.0
    )
    shift: float = option(0.0, 'Maximum horizontal shift of each cloud', low=0.0)
    jitter_sigma: float = option(
        0.001, 'Standard deviation of the noise on every coordinate', low=0.0
    )
    jitter_limit: float = option(0.002, 'Maximum noise on every coordinate', low=0.0)
    dropout: float = option(0.1, 'Maximum fraction of points removed', low=0.0, high=1.0)
    translation_sigma: float = option(
        0.01, 'Standard deviation of the translation of each cloud, per axis', low=0.0
    )
    block_probability: float = option(
        0.4, 'Probability of removing a rectangular block', low=0.0, high=1.0
    )
    block_area: tuple[float, float] = option(
        (0.02, 0.33),
        'Range of the block area, as a fraction of the bounding box',
        low=0.0,
        high=1.0,
    )
    block_aspect: tuple[float, float] = option(
        (0.3, 3.3), 'Range of the block aspect ratio, y over x', low=0.01
    )
    sector_probability: float = option(0.0, 'Probability of an occluded sector', low=0.0, high=1.0)
    sector_deg: tuple[float, float] = option(
        (10.0, 60.0), 'Range of the width of the occluded sector', unit='deg', low=0.0, high=360.0
    )
    sector_range: tuple[float, float] = option(
        (0.0, 0.0), 'Range of the distance where the occluded sector starts', low=0.0
    )
    stretch: float = option(
        0.0,
        'Maximum stretch of the world of a batch in one direction, with compression across it, '
        'as from other street widths and crossing angles',
        low=0.0,
        high=1.0,
    )
    move: float = option(
        0.0,
        'Maximum displacement of the sensor of each place; positives and negatives follow from '
        'the displaced positions',
        unit='m',
        low=0.0,
    )
    batch_yaw_deg: float = option(
        5.0, 'Maximum rotation of the whole batch about z', unit='deg', low=0.0, high=180.0
    )
    flip_x: float = option(0.25, 'Probability of mirroring the batch in x', low=0.0, high=0.5)
    flip_y: float = option(0.25, 'Probability of mirroring the batch in y', low=0.0, high=0.5)


def augment_cloud(points: Points, config: AugmentConfig, rng: np.random.Generator) -> Points:
    """Apply every step for a single cloud, in the order of the configuration."""
    if config.scale > 0:
        points = scale(points, config.scale, rng)
    if config.height_scale > 0:
        points = scale_height(points, config.height_scale, rng)
    if config.height_cut > 0:
        points = lower(points, config.height_cut, rng)
        points = remove(points, points[:, 2] < 0.0, config.removed)
    if config.yaw_deg > 0:
        points = rotate(points, config.yaw_deg, rng)
    if config.shift > 0:
        points = shift(points, config.shift, rng)
    if config.jitter_sigma > 0:
        points = jitter(points, config.jitter_sigma, config.jitter_limit, rng)
    if config.dropout > 0:
        points = remove(points, draw_dropout(points, config.dropout, rng), config.removed)
    if config.translation_sigma > 0:
        points = translate(points, config.translation_sigma, rng)
    if rng.random() < config.block_probability:
        block = draw_block(points, config.block_area, config.block_aspect, rng)
        points = remove(points, block, config.removed)
    if rng.random() < config.sector_probability:
        sector = draw_sector(points, config.sector_deg, config.sector_range, rng)
        points = remove(points, sector, config.removed)
    return points


def draw_batch_matrix(config: AugmentConfig, rng: np.random.Generator) -> NDArray[np.float32]:
    """Draw the rotation about z and the mirroring (3, 3) of a batch."""
    matrix = yaw_matrix(math.radians(rng.uniform(-config.batch_yaw_deg, config.batch_yaw_deg)))
    u = rng.random()
    if u < config.flip_x:
        matrix = np.diag(np.array([-1, 1, 1], dtype=np.float32)) @ matrix
    elif u < config.flip_x + config.flip_y:
        matrix = np.diag(np.array([1, -1, 1], dtype=np.float32)) @ matrix
    return matrix


def draw_stretch(config: AugmentConfig, rng: np.random.Generator) -> NDArray[np.float32]:
    """Draw the deformation of the world (3, 3) of a batch, in the world frame."""
    along, across = (1.0 + rng.random(2) * config.stretch) ** np.array([1.0, -1.0])
    direction = yaw_matrix(rng.uniform(-math.pi, math.pi))
    return direction @ np.diag([along, across, 1.0]).astype(np.float32) @ direction.T


def draw_moves(config: AugmentConfig, count: int, rng: np.random.Generator) -> Points:
    """Draw the displacement (count, 3) of every sensor of a batch, in the world frame.

    The distance is uniform up to the limit; uniform over the disc, most would be large.
    """
    angle = rng.uniform(-math.pi, math.pi, count)
    direction = np.column_stack([np.cos(angle), np.sin(angle), np.zeros(count)])
    return (direction * rng.uniform(0.0, config.move, (count, 1))).astype(np.float32)


def view_from(
    points: Points,
    T_world_sensor: NDArray[np.float64],
    deformation: NDArray[np.float32],
    displacement: NDArray[np.float32],
) -> Points:
    """Return a cloud after the world is deformed and the sensor displaced.

    Points that become visible at the new pose are missing, as if occluded.
    """
    heading = yaw_matrix(math.atan2(T_world_sensor[1, 0], T_world_sensor[0, 0]))
    return points @ (heading.T @ deformation @ heading).T - displacement @ heading


def scale(points: Points, amount: float, rng: np.random.Generator) -> Points:
    """Scale the cloud by a factor within 1 +- amount."""
    return points * np.float32(rng.uniform(1.0 - amount, 1.0 + amount))


def scale_height(points: Points, amount: float, rng: np.random.Generator) -> Points:
    """Scale z by a factor within 1 +- amount."""
    factor = rng.uniform(1.0 - amount, 1.0 + amount)
    return points * np.array([1.0, 1.0, factor], dtype=np.float32)


def lower(points: Points, limit: float, rng: np.random.Generator) -> Points:
    """Lower the cloud by up to `limit`."""
    return points - np.array([0.0, 0.0, rng.uniform(0.0, limit)], dtype=np.float32)


def rotate(points: Points, limit_deg: float, rng: np.random.Generator) -> Points:
    """Rotate the cloud about z by up to `limit_deg` in either direction."""
    return points @ yaw_matrix(math.radians(rng.uniform(-limit_deg, limit_deg))).T


def shift(points: Points, radius: float, rng: np.random.Generator) -> Points:
    """Shift the cloud in x-y, uniformly over a disc, as seen from another lane."""
    angle, r = rng.uniform(0.0, 2.0 * math.pi), radius * math.sqrt(rng.random())
    return points + np.array([r * math.cos(angle), r * math.sin(angle), 0.0], dtype=np.float32)


def jitter(points: Points, sigma: float, limit: float, rng: np.random.Generator) -> Points:
    """Add clipped Gaussian noise to every coordinate."""
    noise = sigma * rng.standard_normal(points.shape, dtype=np.float32)
    return points + np.clip(noise, -limit, limit).astype(np.float32)


def translate(points: Points, sigma: float, rng: np.random.Generator) -> Points:
    """Shift the cloud by one Gaussian offset per axis."""
    return points + (sigma * rng.standard_normal(3)).astype(np.float32)


def draw_dropout(points: Points, max_fraction: float, rng: np.random.Generator) -> Mask:
    """Select a random fraction of the points, uniform in [0, max_fraction]."""
    count = int(len(points) * rng.uniform(0.0, max_fraction))
    mask = np.zeros(len(points), dtype=bool)
    mask[rng.choice(len(points), count, replace=False)] = True
    return mask


def draw_block(
    points: Points,
    area: tuple[float, float],
    aspect: tuple[float, float],
    rng: np.random.Generator,
) -> Mask:
    """Select the points inside a random x-y rectangle of the bounding box."""
    if len(points) == 0:
        return np.zeros(0, dtype=bool)
    low = points[:, :2].min(axis=0)
    span = points[:, :2].max(axis=0) - low
    size, ratio = rng.uniform(*area) * float(span[0] * span[1]), rng.uniform(*aspect)
    sides = np.array([math.sqrt(size / ratio), math.sqrt(size * ratio)])
    corner = low + rng.random(2) * (span - sides)
    inside = (points[:, :2] >= corner) & (points[:, :2] < corner + sides)
    return inside.all(axis=1)


def draw_sector(
    points: Points,
    width_deg: tuple[float, float],
    start_range: tuple[float, float],
    rng: np.random.Generator,
) -> Mask:
    """Select the points of a sector beyond a range, as occluded by a nearby object."""
    width = math.radians(rng.uniform(*width_deg))
    start = rng.uniform(-math.pi, math.pi)
    min_range = rng.uniform(*start_range)
    azimuth = np.arctan2(points[:, 1], points[:, 0])
    inside = (azimuth - start) % (2.0 * math.pi) < width
    return inside & (np.hypot(points[:, 0], points[:, 1]) >= min_range)


def remove(points: Points, mask: Mask, mode: str) -> Points:
    """Move the selected points to the origin ('zero') or delete them ('delete')."""
    if mode == 'delete':
        return points[~mask]
    return np.where(mask[:, None], np.float32(0), points)
