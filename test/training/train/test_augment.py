"""Each augmentation step has the documented effect, range and distribution."""

import numpy as np
import pytest

from lpr_training.train import augment
from lpr_training.train.augment import AugmentConfig, augment_cloud, draw_batch_matrix

OFF = {
    'jitter_sigma': 0.0,
    'dropout': 0.0,
    'translation_sigma': 0.0,
    'block_probability': 0.0,
    'batch_yaw_deg': 0.0,
    'flip_x': 0.0,
    'flip_y': 0.0,
}


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def cloud():
    return np.random.default_rng(1).uniform(-1, 1, (4096, 3)).astype(np.float32)


def test_disabled_augmentation_changes_nothing(cloud, rng):
    config = AugmentConfig(**OFF)
    changed = augment_cloud(cloud, config, rng) @ draw_batch_matrix(config, rng).T
    np.testing.assert_array_equal(changed, cloud)


@pytest.mark.parametrize('removed', ['zero', 'delete'])
def test_augmentation_keeps_its_input_and_dtype(cloud, rng, removed):
    before = cloud.copy()
    config = AugmentConfig(
        removed=removed, scale=0.1, yaw_deg=180.0, shift=1.0, sector_probability=1.0
    )
    for points in (cloud, cloud[:100]):
        changed = augment_cloud(points, config, rng)
        assert changed.dtype == np.float32
        assert np.isfinite(changed).all()
    np.testing.assert_array_equal(cloud, before)


def test_augmentation_is_deterministic_per_seed(cloud):
    first, second = (augment_cloud(cloud, AugmentConfig(), np.random.default_rng(3)) for _ in '12')
    np.testing.assert_array_equal(first, second)


def test_jitter_is_clipped(cloud, rng):
    moved = augment.jitter(cloud, 0.001, 0.002, rng) - cloud
    assert np.abs(moved).max() <= 0.002 + 1e-6
    assert moved.std() == pytest.approx(0.001, rel=0.1)


def test_dropout_fraction_is_uniform_up_to_its_limit(cloud):
    fractions = [
        augment.draw_dropout(cloud, 0.1, np.random.default_rng(s)).mean() for s in range(300)
    ]
    assert max(fractions) <= 0.1
    assert np.mean(fractions) == pytest.approx(0.05, abs=0.006)


def test_removed_points_are_zeroed_or_deleted(cloud, rng):
    mask = augment.draw_dropout(cloud, 0.5, rng)
    zeroed = augment.remove(cloud, mask, 'zero')
    deleted = augment.remove(cloud, mask, 'delete')
    assert zeroed.shape == cloud.shape
    assert (zeroed[mask] == 0).all()
    np.testing.assert_array_equal(zeroed[~mask], deleted)


def test_translation_is_constant_per_cloud(cloud, rng):
    moved = augment.translate(cloud, 0.01, rng) - cloud
    np.testing.assert_allclose(moved, np.broadcast_to(moved[0], moved.shape), atol=1e-6)
    assert 0 < np.abs(moved[0]).max() < 0.05


def test_block_is_a_rectangle_of_the_given_area_at_every_height(cloud):
    for seed in range(50):
        mask = augment.draw_block(cloud, (0.1, 0.1), (1.0, 1.0), np.random.default_rng(seed))
        assert mask.mean() == pytest.approx(0.1, abs=0.03)  # the cloud is uniform
        inside = cloud[mask]
        low, high = inside[:, :2].min(axis=0), inside[:, :2].max(axis=0)
        in_box = ((cloud[:, :2] >= low) & (cloud[:, :2] <= high)).all(axis=1)
        np.testing.assert_array_equal(in_box, mask)
        assert np.ptp(inside[:, 2]) > 1.8


def test_block_aspect_is_y_over_x(cloud, rng):
    inside = cloud[augment.draw_block(cloud, (0.2, 0.2), (3.0, 3.0), rng)]
    x, y = np.ptp(inside[:, 0]), np.ptp(inside[:, 1])
    assert y / x == pytest.approx(3.0, rel=0.1)


def test_sector_selects_a_wedge_beyond_its_range(cloud, rng):
    mask = augment.draw_sector(cloud, (90.0, 90.0), (0.5, 0.5), rng)
    ranges = np.hypot(cloud[:, 0], cloud[:, 1])
    assert ranges[mask].min() >= 0.5
    assert mask[ranges >= 0.5].mean() == pytest.approx(0.25, abs=0.04)
    direction = cloud[mask, :2] / ranges[mask, None]
    assert (direction @ direction.T).min() > -0.01  # all within 90 degrees of each other


def test_rotate_keeps_heights_and_ranges_and_covers_all_headings(cloud):
    headings = []
    for seed in range(200):
        rotated = augment.rotate(cloud[:5], 180.0, np.random.default_rng(seed))
        np.testing.assert_allclose(rotated[:, 2], cloud[:5, 2])
        np.testing.assert_allclose(
            np.hypot(*rotated[:, :2].T), np.hypot(*cloud[:5, :2].T), rtol=1e-5
        )
        headings.append(np.arctan2(rotated[0, 1], rotated[0, 0]))
    assert np.histogram(headings, 4, (-np.pi, np.pi))[0].min() > 30


def test_shift_is_horizontal_and_uniform_over_the_disc(cloud):
    moved = np.array(
        [augment.shift(cloud, 2.0, np.random.default_rng(s))[0] - cloud[0] for s in range(200)]
    )
    radius = np.hypot(moved[:, 0], moved[:, 1])
    assert radius.max() <= 2.0 + 1e-5
    assert (radius**2).mean() == pytest.approx(2.0, rel=0.15)  # uniform over the disc
    np.testing.assert_allclose(moved[:, 2], 0, atol=1e-6)


def test_scale_is_uniform(cloud, rng):
    ratio = augment.scale(cloud, 0.1, rng) / cloud
    assert np.ptp(ratio) < 1e-5
    assert 0.9 <= ratio[0, 0] <= 1.1


def test_scale_height_changes_z_only(cloud, rng):
    changed = augment.scale_height(cloud, 0.4, rng)
    np.testing.assert_array_equal(changed[:, :2], cloud[:, :2])
    ratio = changed[:, 2] / cloud[:, 2]
    assert np.ptp(ratio) < 1e-5
    assert 0.6 <= ratio[0] <= 1.4


def test_height_cut_lowers_the_cloud_and_removes_points_below_zero(rng):
    column = np.stack([np.zeros(100), np.zeros(100), np.linspace(0.0, 4.0, 100)], axis=1)
    config = AugmentConfig(**{**OFF, 'height_cut': 0.8, 'removed': 'delete'})
    tops = []
    for _ in range(200):
        changed = augment.augment_cloud(column.astype(np.float32), config, rng)
        assert changed[:, 2].min() >= 0.0
        assert len(changed) == (column[:, 2] >= 4.0 - changed[:, 2].max() - 1e-5).sum()
        tops.append(changed[:, 2].max())
    assert min(tops) == pytest.approx(3.2, abs=0.05)
    assert max(tops) == pytest.approx(4.0, abs=0.05)


def test_batch_matrix_flips_and_rotates_within_limits():
    config = AugmentConfig()
    matrices = np.array(
        [augment.draw_batch_matrix(config, np.random.default_rng(s)) for s in range(800)]
    )
    gram = matrices @ matrices.transpose(0, 2, 1)
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(3), gram.shape), atol=1e-5)
    flip_x = (matrices[:, 0, 0] < 0).mean()
    flip_y = (matrices[:, 1, 1] < 0).mean()
    assert flip_x == pytest.approx(0.25, abs=0.05)
    assert flip_y == pytest.approx(0.25, abs=0.05)
    assert not ((matrices[:, 0, 0] < 0) & (matrices[:, 1, 1] < 0)).any()
    assert np.abs(matrices[:, 0, 1]).max() <= np.sin(np.radians(5)) + 1e-6


def test_view_from_is_consistent_between_poses(cloud, rng):
    config = AugmentConfig(stretch=0.3, move=4.0)
    deformation = augment.draw_stretch(config, rng)
    for heading, position in ((0.4, [3.0, -2.0, 0.5]), (-2.0, [-7.0, 1.0, 0.0])):
        T = np.eye(4)
        T[:3, :3], T[:3, 3] = augment.yaw_matrix(heading), position
        seen = (cloud - T[:3, 3]) @ T[:3, :3]  # in the sensor frame
        (move,) = augment.draw_moves(config, 1, rng)
        stretched = augment.view_from(seen.astype(np.float32), T, deformation, move)
        T[:3, 3] = deformation @ T[:3, 3] + move
        in_world = stretched @ T[:3, :3].T + T[:3, 3]
        np.testing.assert_allclose(in_world, cloud @ deformation.T, atol=1e-4)


def test_moves_are_horizontal_and_uniform_in_length(rng):
    moves = augment.draw_moves(AugmentConfig(move=4.0), 2000, rng)
    length = np.linalg.norm(moves, axis=1)
    assert 3.9 < length.max() <= 4.0
    assert length.mean() == pytest.approx(2.0, abs=0.1)
    np.testing.assert_allclose(moves.mean(axis=0), 0.0, atol=0.15)
    np.testing.assert_array_equal(moves[:, 2], 0.0)
    assert not augment.draw_moves(AugmentConfig(), 3, rng).any()


def test_stretch_is_limited_and_keeps_heights():
    draws = [
        augment.draw_stretch(AugmentConfig(stretch=0.25), np.random.default_rng(s))
        for s in range(200)
    ]
    sizes = np.linalg.svd([d[:2, :2] for d in draws], compute_uv=False)
    assert 1.23 < sizes.max() <= 1.25
    assert 0.8 <= sizes.min() < 0.82
    np.testing.assert_array_equal(
        [d[2] for d in draws], np.broadcast_to(np.float32([0, 0, 1]), (200, 3))
    )


@pytest.mark.parametrize('removed', ['zero', 'delete'])
@pytest.mark.parametrize('count', [0, 1, 2])
def test_augmentation_accepts_tiny_clouds(count, removed, rng):
    points = np.ones((count, 3), dtype=np.float32)
    config = AugmentConfig(removed=removed, block_probability=1.0, sector_probability=1.0)
    assert augment_cloud(points, config, rng).shape[1] == 3
