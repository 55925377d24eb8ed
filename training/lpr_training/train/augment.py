"""Random changes of a training cloud; every function takes points (N, 3) and a Generator.

The defaults are those of MinkLoc3Dv2 for clouds scaled to [-1, 1]. For metric clouds set the
lengths in metres, `removed: delete`, and `yaw_deg: 180` where any heading must match.
"""

from dataclasses import dataclass
import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.config import Config, option

Points: TypeAlias = NDArray[np.float32]
Mask: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True)
class AugmentConfig(Config):
    """What is changed at random; lengths are in the unit of the cloud, 0 switches a step off."""

    removed: str = option(
        'zero', 'removed points are moved to the origin or deleted', choices=('zero', 'delete')
    )
    scale: float = option(0.0, 'scale by 1 +- this, uniform', low=0.0, high=0.9)
    height_scale: float = option(
        0.0, 'scale z alone by 1 +- this: a sensor with other layers', low=0.0, high=0.9
    )
    height_cut: float = option(
        0.0, 'lower the cloud by up to this and remove what is below 0 then: on lifted columns, '
        'a ground that is cut off higher', low=0.0,
    )  # fmt: skip
    yaw_deg: float = option(0.0, 'turn each cloud by +- this', unit='deg', low=0.0, high=180.0)
    shift: float = option(0.0, 'move each cloud in x-y within a disc of this radius', low=0.0)
    jitter_sigma: float = option(0.001, 'noise of each coordinate', low=0.0)
    jitter_limit: float = option(0.002, 'the noise is clipped at +- this', low=0.0)
    dropout: float = option(0.1, 'largest share of points removed', low=0.0, high=1.0)
    translation_sigma: float = option(0.01, 'one offset per cloud and axis', low=0.0)
    block_probability: float = option(0.4, 'chance of removing a block', low=0.0, high=1.0)
    block_area: tuple[float, float] = option(
        (0.02, 0.33), 'share of the x-y bounding box', low=0.0, high=1.0
    )
    block_aspect: tuple[float, float] = option((0.3, 3.3), 'y over x side', low=0.01)
    sector_probability: float = option(0.0, 'chance of an occluded sector', low=0.0, high=1.0)
    sector_deg: tuple[float, float] = option(
        (10.0, 60.0), 'width of the sector', unit='deg', low=0.0, high=360.0
    )
    sector_range: tuple[float, float] = option(
        (0.0, 0.0), 'the sector is empty beyond a range drawn from this', low=0.0
    )
    stretch: float = option(
        0.0, 'stretch the world of a batch by up to 1 + this in one direction and squeeze it '
        'across: streets of other widths, crossings at other angles', low=0.0, high=1.0,
    )  # fmt: skip
    move: float = option(
        0.0, 'see each place from a spot up to this far away; which places are the same is then '
        'said by the spots', unit='m', low=0.0,
    )  # fmt: skip
    batch_yaw_deg: float = option(5.0, 'turn the whole batch', unit='deg', low=0.0, high=180.0)
    flip_x: float = option(0.25, 'chance that the batch is mirrored in x', low=0.0, high=0.5)
    flip_y: float = option(0.25, 'chance that the batch is mirrored in y', low=0.0, high=0.5)


def augment_cloud(points: Points, config: AugmentConfig, rng: np.random.Generator) -> Points:
    """Apply every step that concerns one cloud, in the order of the configuration."""
    if config.scale > 0:
        points = scale(points, config.scale, rng)
    if config.height_scale > 0:
        points = scale_height(points, config.height_scale, rng)
    if config.height_cut > 0:
        points = sink(points, config.height_cut, rng)
        points = remove(points, points[:, 2] < 0.0, config.removed)
    if config.yaw_deg > 0:
        points = turn(points, config.yaw_deg, rng)
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
    """Draw the rotation about z and the mirroring (3, 3) that a whole batch shares."""
    matrix = yaw_matrix(math.radians(rng.uniform(-config.batch_yaw_deg, config.batch_yaw_deg)))
    u = rng.random()
    if u < config.flip_x:
        matrix = np.diag(np.array([-1, 1, 1], dtype=np.float32)) @ matrix
    elif u < config.flip_x + config.flip_y:
        matrix = np.diag(np.array([1, -1, 1], dtype=np.float32)) @ matrix
    return matrix


def draw_stretch(config: AugmentConfig, rng: np.random.Generator) -> NDArray[np.float32]:
    """Draw the map (3, 3) of the world, in its own frame, that a whole batch shares."""
    along, across = (1.0 + rng.random(2) * config.stretch) ** np.array([1.0, -1.0])
    direction = yaw_matrix(rng.uniform(-math.pi, math.pi))
    return direction @ np.diag([along, across, 1.0]).astype(np.float32) @ direction.T


def draw_moves(config: AugmentConfig, count: int, rng: np.random.Generator) -> Points:
    """Draw by how much each sensor of a batch is moved, (count, 3) in the frame of the world.

    Every distance up to the limit is as likely: uniform over the disc most would be far.
    """
    angle = rng.uniform(-math.pi, math.pi, count)
    direction = np.column_stack([np.cos(angle), np.sin(angle), np.zeros(count)])
    return (direction * rng.uniform(0.0, config.move, (count, 1))).astype(np.float32)


def see_from(
    points: Points,
    T_world_sensor: NDArray[np.float64],
    world: NDArray[np.float32],
    move: NDArray[np.float32],
) -> Points:
    """Return a cloud seen from one pose when the world is mapped and then the sensor moved.

    What the sensor would see there and did not here is missing, as behind something in the way.
    """
    heading = yaw_matrix(math.atan2(T_world_sensor[1, 0], T_world_sensor[0, 0]))
    return points @ (heading.T @ world @ heading).T - move @ heading


def yaw_matrix(angle_rad: float) -> NDArray[np.float32]:
    """Return the rotation about z, (3, 3)."""
    c, s = math.cos(angle_rad), math.sin(angle_rad)
    return np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]], dtype=np.float32)


def scale(points: Points, amount: float, rng: np.random.Generator) -> Points:
    """Scale the whole cloud by one factor within 1 +- amount."""
    return points * np.float32(rng.uniform(1.0 - amount, 1.0 + amount))


def scale_height(points: Points, amount: float, rng: np.random.Generator) -> Points:
    """Scale z by one factor within 1 +- amount."""
    factor = rng.uniform(1.0 - amount, 1.0 + amount)
    return points * np.array([1.0, 1.0, factor], dtype=np.float32)


def sink(points: Points, limit: float, rng: np.random.Generator) -> Points:
    """Lower the cloud by up to limit."""
    return points - np.array([0.0, 0.0, rng.uniform(0.0, limit)], dtype=np.float32)


def turn(points: Points, limit_deg: float, rng: np.random.Generator) -> Points:
    """Turn the cloud about z by an angle within +- limit_deg."""
    return points @ yaw_matrix(math.radians(rng.uniform(-limit_deg, limit_deg))).T


def shift(points: Points, radius: float, rng: np.random.Generator) -> Points:
    """Move the cloud in x-y, uniformly over a disc: the same place from another lane."""
    angle, r = rng.uniform(0.0, 2.0 * math.pi), radius * math.sqrt(rng.random())
    return points + np.array([r * math.cos(angle), r * math.sin(angle), 0.0], dtype=np.float32)


def jitter(points: Points, sigma: float, limit: float, rng: np.random.Generator) -> Points:
    """Add clipped Gaussian noise to every coordinate."""
    noise = sigma * rng.standard_normal(points.shape, dtype=np.float32)
    return points + np.clip(noise, -limit, limit).astype(np.float32)


def translate(points: Points, sigma: float, rng: np.random.Generator) -> Points:
    """Move the cloud by one Gaussian offset per axis."""
    return points + (sigma * rng.standard_normal(3)).astype(np.float32)


def draw_dropout(points: Points, largest: float, rng: np.random.Generator) -> Mask:
    """Mark a random share of the points, the share itself uniform in [0, largest]."""
    count = int(len(points) * rng.uniform(0.0, largest))
    mask = np.zeros(len(points), dtype=bool)
    mask[rng.choice(len(points), count, replace=False)] = True
    return mask


def draw_block(
    points: Points,
    area: tuple[float, float],
    aspect: tuple[float, float],
    rng: np.random.Generator,
) -> Mask:
    """Mark the points inside a random x-y rectangle of the bounding box, at every height."""
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
    beyond: tuple[float, float],
    rng: np.random.Generator,
) -> Mask:
    """Mark the points hidden by something beside the sensor: one sector beyond one range."""
    width = math.radians(rng.uniform(*width_deg))
    start = rng.uniform(-math.pi, math.pi)
    from_range = rng.uniform(*beyond)
    azimuth = np.arctan2(points[:, 1], points[:, 0])
    inside = (azimuth - start) % (2.0 * math.pi) < width
    return inside & (np.hypot(points[:, 0], points[:, 1]) >= from_range)


def remove(points: Points, mask: Mask, how: str) -> Points:
    """Return the cloud with the marked points at the origin ('zero') or gone ('delete')."""
    if how == 'delete':
        return points[~mask]
    return np.where(mask[:, None], np.float32(0), points)
