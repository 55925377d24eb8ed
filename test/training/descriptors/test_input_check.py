"""Cropping before augmentation removes exactly the points that cannot come into range."""

import numpy as np
import pytest

from lpr_ros.core.model.config import InputConfig
from lpr_ros.core.model.quantize import quantize
from lpr_training.descriptors.input_check import crop_to_range
from lpr_training.train.augment import AugmentConfig, augment_cloud, rotate, shift


@pytest.fixture
def cloud(rng):
    return rng.uniform(-100.0, 100.0, (20_000, 3)).astype(np.float32)


@pytest.mark.parametrize('quantizer', ['cartesian', 'bev'])
def test_cropping_does_not_change_the_cells_of_a_moved_cloud(cloud, quantizer):
    config = InputConfig(quantizer=quantizer, step=(1.0, 1.0, 1.0), max_range_m=30.0)
    for seed in range(5):
        cells = [
            quantize(shift(rotate(points, 180.0, moves), 2.0, moves), config)
            for points, moves in (
                (cloud, np.random.default_rng(seed)),
                (crop_to_range(cloud, config, 2.0), np.random.default_rng(seed)),
            )
        ]
        assert np.array_equal(*cells)
    assert len(crop_to_range(cloud, config, 2.0)) < len(cloud) / 4


def test_cropping_without_a_range_keeps_the_cloud(cloud):
    assert crop_to_range(cloud, InputConfig(), 1.0) is cloud


def test_block_removal_leaves_most_of_the_visible_cells(cloud, rng):
    # A fifth of the bounding box of the uncropped scan would cover the 30 m around the sensor.
    config = InputConfig(step=(1.0, 1.0, 1.0), max_range_m=30.0)
    block = AugmentConfig(
        removed='delete',
        block_probability=1.0,
        block_area=(0.2, 0.2),
        dropout=0.0,
        jitter_sigma=0.0,
        translation_sigma=0.0,
    )
    cells = len(quantize(cloud, config))
    left = [
        len(quantize(augment_cloud(crop_to_range(cloud, config, 1.0), block, rng), config))
        for _ in range(30)
    ]
    assert min(left) > 0.5 * cells
