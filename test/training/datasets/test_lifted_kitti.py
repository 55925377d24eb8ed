"""Lifted KITTI scans: clouds that give back the images they were lifted from."""

import numpy as np
import pytest

from lpr_training.datasets.kitti_bev import CENTER, PIXEL_M, PREFIX, SIDE, count_image
from lpr_training.datasets.lifted_kitti import (
    FIRST_LAYER_M,
    LAYER_M,
    SENSOR_HEIGHT_M,
    LiftedKittiDataset,
    lift_to_cloud,
)


@pytest.fixture
def counts(rng):
    """Return an image with a tenth of its pixels occupied, the middle row and column included."""
    image = np.zeros((SIDE, SIDE), np.uint8)
    near = slice(CENTER - 40, CENTER + 41)
    image[near, near] = rng.integers(0, 11, (81, 81)) * (rng.random((81, 81)) < 0.1)
    image[CENTER, CENTER + 5] = image[CENTER - 7, CENTER] = 10
    return image


def test_a_lifted_image_is_the_image_of_its_cloud(counts, rng):
    assert np.array_equal(count_image(lift_to_cloud(counts, rng)), counts)


def test_a_pixel_becomes_a_column_above_the_ground(rng):
    image = np.zeros((SIDE, SIDE), np.uint8)
    image[CENTER - 10, CENTER + 20] = 3  # ahead, to the right
    points = lift_to_cloud(image, rng)
    column = points[points[:, 2] > -SENSOR_HEIGHT_M + FIRST_LAYER_M / 2]
    assert len(column) == 3
    low, high = 10 * PIXEL_M, 11 * PIXEL_M
    assert ((column[:, 0] >= low) & (column[:, 0] <= high)).all()
    assert ((column[:, 1] <= -2 * low) & (column[:, 1] >= -2 * low - PIXEL_M)).all()
    expected = FIRST_LAYER_M - SENSOR_HEIGHT_M + LAYER_M * np.arange(3)
    np.testing.assert_allclose(column[:, 2], expected, atol=1e-6)


def test_the_ground_has_a_point_per_square_meter(rng):
    ground = lift_to_cloud(np.zeros((SIDE, SIDE), np.uint8), rng)
    side_m = 2 * CENTER * PIXEL_M
    assert len(ground) == pytest.approx(side_m**2, rel=0.1)
    assert ground[:, 2].mean() == pytest.approx(-SENSOR_HEIGHT_M, abs=0.01)
    assert ground[:, 2].std() == pytest.approx(0.02, rel=0.1)


def test_a_scan_is_the_same_whenever_it_is_read(counts, tmp_path):
    T = np.tile(np.eye(4)[:3], (2, 1, 1))
    np.savez(tmp_path / f'{PREFIX}05.npz', counts=np.stack([counts, counts]), T_world_sensor=T)
    dataset = LiftedKittiDataset(tmp_path, sequences=['05'])
    again = LiftedKittiDataset(tmp_path, sequences=['05'])
    again.points(0)
    assert np.array_equal(dataset.points(1), again.points(1))
    assert not np.array_equal(dataset.points(0), dataset.points(1))
