"""Synthetic drives for database tests: descriptors that change smoothly with position."""

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.database.place_database import DatabaseConfig, PlaceDatabase
from lpr_ros.core.geometry.se3 import pose_from_euler
from lpr_ros.core.types import Keyframe

S = 1_000_000_000
DIM = 16


def describe(
    xy: NDArray[np.float64], rng: np.random.Generator, dim: int = DIM, noise: float = 0.02
) -> NDArray[np.float32]:
    """Return (N, dim) descriptors of (N, 2) positions, similar within a few meters."""
    fixed = np.random.default_rng(7)
    waves, phases = fixed.normal(size=(2, dim)) / 8.0, fixed.uniform(0, 2 * np.pi, dim)
    clean = np.cos(xy @ waves + phases) * np.sqrt(2.0 / dim)
    return (clean + rng.normal(size=clean.shape, scale=noise)).astype(np.float32)


def empty(dim: int = DIM, **options: object) -> PlaceDatabase:
    return PlaceDatabase(DatabaseConfig(**options), dim, fingerprint='checkpoint')


def drive(
    database: PlaceDatabase,
    xy: NDArray[np.float64],
    rng: np.random.Generator,
    session: str = 'robot/0',
    points: int = 20,
    with_odometry: bool = True,
    step_s: float = 1.0,
    start_s: float = 0.0,
) -> list[Keyframe]:
    """Add a keyframe at each position; return the keyframes."""
    added = []
    for i, descriptor in enumerate(describe(xy, rng, database.dim)):
        T = pose_from_euler([*xy[i], 0.0], [0.0, 0.0, 0.0]) if with_odometry else None
        cloud = rng.uniform(-50.0, 50.0, (points, 3)).astype(np.float32)
        keyframe = database.make_keyframe(
            descriptor,
            cloud,
            session=session,
            stamp_ns=int((start_s + i * step_s) * S),
            T_odom_sensor=T,
        )
        database.add(keyframe)
        added.append(keyframe)
    return added


def circle(count: int, laps: float = 2.0, radius_m: float = 40.0) -> NDArray[np.float64]:
    angle = np.linspace(0.0, 2.0 * np.pi * laps, count, endpoint=False)
    return radius_m * np.column_stack([np.cos(angle), np.sin(angle)])
