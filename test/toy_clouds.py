"""Small clouds for tests: seeded, with neighbors, negative coordinates and different sizes."""

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.model.config import BackboneConfig, InputConfig, ModelConfig, PoolingConfig


def random_cells(rng: np.random.Generator, count: int, extent: int = 6) -> NDArray[np.int32]:
    """Return up to `count` unique cells of a small dense cube around the origin."""
    cells = rng.integers(-extent, extent, size=(count, 3), dtype=np.int32)
    return rng.permutation(np.unique(cells, axis=0))


def random_walk(rng: np.random.Generator, count: int) -> NDArray[np.int32]:
    """Return up to `count` unique cells along a random walk: connected and spread out."""
    steps = rng.integers(-1, 2, size=(count, 3), dtype=np.int32)
    return rng.permutation(np.unique(steps.cumsum(axis=0, dtype=np.int32), axis=0))


def random_scene(rng: np.random.Generator, points: int = 1500) -> NDArray[np.float32]:
    """Return points on a ground plane and the walls of a few boxes, meters, sensor frame."""
    ground = rng.uniform(-25.0, 25.0, (points, 3))
    ground[:, 2] = rng.normal(-1.7, 0.02, points)
    boxes = []
    for center in rng.uniform(-20.0, 20.0, (6, 2)):
        box = rng.uniform(-1.0, 1.0, (points // 6, 3)) * rng.uniform(1.0, 4.0, 3)
        box[:, rng.integers(2)] = rng.uniform(1.0, 3.0)
        boxes.append(box + np.array([*center, 0.5]))
    return np.concatenate([ground, *boxes]).astype(np.float32)


def tiny_config(pooling: str = 'whitened', **options: object) -> ModelConfig:
    """Return a two-level network that builds and runs in milliseconds."""
    return ModelConfig(
        input=InputConfig(step=(0.5, 0.5, 0.5), max_range_m=30.0),
        backbone=BackboneConfig(
            planes=(8, 16), layers=(1, 1), num_top_down=1, conv0_kernel_size=3, feature_size=16
        ),
        pooling=PoolingConfig(
            kind=pooling,
            **{'channels': 6, 'clusters': 5, 'hidden': 12, 'output_dim': 10, **options},
        ),
    )
