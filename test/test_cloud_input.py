"""What is cut away before augmentation: nothing that could come into range, all that cannot."""

import numpy as np
import pytest

from lpr_ros.core.model.config import InputConfig
from lpr_ros.core.model.quantise import quantise
from lpr_training.augment import AugmentConfig, augment_cloud, shift, turn
from lpr_training.cloud_input import in_reach


@pytest.fixture
def cloud(rng):
    return rng.uniform(-100.0, 100.0, (20_000, 3)).astype(np.float32)


@pytest.mark.parametrize('quantizer', ['cartesian', 'bev'])
def test_a_moved_cloud_gives_the_same_cells_with_and_without_the_rest(cloud, rng, quantizer):
    config = InputConfig(quantizer=quantizer, step=(1.0, 1.0, 1.0), max_range_m=30.0)
    for seed in range(5):
        cells = [
            quantise(shift(turn(points, 180.0, moves), 2.0, moves), config)
            for points, moves in (
                (cloud, np.random.default_rng(seed)),
                (in_reach(cloud, config, 2.0), np.random.default_rng(seed)),
            )
        ]
        assert np.array_equal(*cells)
    assert len(in_reach(cloud, config, 2.0)) < len(cloud) / 4


def test_a_model_without_a_range_sees_all(cloud):
    assert in_reach(cloud, InputConfig(), 1.0) is cloud


def test_a_block_leaves_most_of_what_the_model_sees(cloud, rng):
    # A fifth of the bounding box of the whole scan would cover the 30 m around the sensor.
    config = InputConfig(step=(1.0, 1.0, 1.0), max_range_m=30.0)
    block = AugmentConfig(removed='delete', block_probability=1.0, block_area=(0.2, 0.2),
                          dropout=0.0, jitter_sigma=0.0, translation_sigma=0.0)  # fmt: skip
    whole = len(quantise(cloud, config))
    left = [
        len(quantise(augment_cloud(in_reach(cloud, config, 1.0), block, rng), config))
        for _ in range(30)
    ]
    assert min(left) > 0.5 * whole
