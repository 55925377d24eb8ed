"""Registration recovers a known pose at any yaw, and returns None if it fails."""

import numpy as np
import pytest
from simulated_pairs import simulate

from lpr_ros.core.errors import CloudError
from lpr_ros.core.geometry.points import points_in_range
from lpr_ros.core.geometry.se3 import (
    invert,
    pose_from_euler,
    rotation_angle_rad,
    transform_points,
)
from lpr_ros.core.loop_closure.global_registration import register_globally
from lpr_ros.core.loop_closure.registration import (
    RegistrationConfig,
    closest_points,
    prepare,
    refine,
    upright_points,
)

CONFIG = RegistrationConfig()


@pytest.fixture(scope='module')
def suburb():
    return simulate('suburb')


@pytest.fixture(scope='module')
def cloud(suburb):
    return suburb.keyframe(0).points


def register(target, source):
    target, source = prepare(target, CONFIG), prepare(source, CONFIG)
    T_global = register_globally(target.sketch, source.sketch, CONFIG.search_voxel_m)
    return refine(target, source, T_global, CONFIG)


def assert_near(T, T_true, meters=0.15, degrees=0.5):
    difference = invert(T_true) @ T
    assert np.linalg.norm(difference[:3, 3]) < meters
    assert np.degrees(rotation_angle_rad(difference)) < degrees


@pytest.mark.parametrize('yaw_deg', [0.0, 90.0, 180.0, -120.0])
def test_a_real_pair_is_registered_at_any_yaw(shared_data, yaw_deg):
    from lpr_training.datasets.registry import make_dataset

    scans = make_dataset('scans', shared_data, runs=['kitti_raw_0005'])
    T_turn = pose_from_euler([0.0, 0.0, 0.0], [0.0, 0.0, np.radians(yaw_deg)])
    source = transform_points(T_turn, scans.points(25))
    T_target_source = invert(scans.T_world_sensor[20]) @ scans.T_world_sensor[25] @ invert(T_turn)
    assert_near(register(scans.points(20), source).T_target_source, T_target_source)


@pytest.mark.parametrize('yaw_deg', [10.0, 100.0, 190.0])
def test_a_simulated_revisit_is_registered_at_any_yaw(suburb, yaw_deg):
    match, query = suburb.pairs(count=1, seed=4)[0]
    T_turn = pose_from_euler([0.0, 0.0, 0.0], [0.0, 0.0, np.radians(yaw_deg)])
    source = transform_points(T_turn, suburb.keyframe(query).points)
    T_true = suburb.true_pose(match, query) @ invert(T_turn)
    assert_near(register(suburb.keyframe(match).points, source).T_target_source, T_true)


def test_swapping_the_clouds_inverts_the_pose(suburb):
    match, query = suburb.pairs(count=1, seed=1)[0]
    a, b = suburb.keyframe(match).points, suburb.keyframe(query).points
    T_a_b, T_b_a = register(a, b).T_target_source, register(b, a).T_target_source
    assert_near(T_a_b @ T_b_a, np.eye(4), meters=0.05, degrees=0.1)


def test_a_cloud_registers_with_itself(cloud):
    refined = register(cloud, cloud)
    assert_near(refined.T_target_source, np.eye(4), meters=0.01, degrees=0.01)


@pytest.mark.parametrize(
    'points',
    [
        np.zeros((0, 3), np.float32),
        np.zeros((5000, 3), np.float32),
        np.full((5000, 3), np.nan, np.float32),
        np.full((5000, 3), np.inf, np.float32),
        np.full((5000, 3), 1e30, np.float64),
        np.ones((20, 3), np.float32),
    ],
)
def test_degenerate_clouds_are_not_prepared(points):
    assert prepare(points, CONFIG) is None


@pytest.mark.parametrize('points', [np.zeros((10, 4)), np.zeros(10), np.zeros((2, 5, 3))])
def test_other_shapes_are_rejected(points):
    with pytest.raises(CloudError, match='shape'):
        points_in_range(points)


def test_non_finite_points_are_removed(cloud):
    bad = np.array([[np.nan, 0, 0], [0, np.inf, 0], [0, 0, 1e20]], np.float32)
    kept = points_in_range(np.concatenate([bad, cloud]))
    np.testing.assert_array_equal(kept, cloud)


@pytest.mark.parametrize('spread_m', [0.1, 3.0, 30.0, 3000.0])
@pytest.mark.parametrize('count', [1, 10, 60, 300])
def test_global_registration_survives_sparse_and_isolated_points(rng, count, spread_m):
    a, b = rng.uniform(-spread_m, spread_m, (2, count, 3)).astype(np.float32)
    for source in (a, b):
        T_global = register_globally(a, source, 0.5)
        assert T_global is None or np.isfinite(T_global).all()


def test_refining_a_distant_guess_fails(cloud):
    prepared = prepare(cloud, CONFIG)
    T_guess = pose_from_euler([500.0, 0.0, 0.0], [0.0, 0.0, 0.0])
    assert refine(prepared, prepared, T_guess, CONFIG) is None


def test_upright_points_are_those_of_tall_grid_cells():
    ground = np.array([[5.2, 0.1, -1.7], [5.8, 0.2, -1.5]], np.float32)
    trunk = np.array([[8.1, 0.1, -1.7], [8.2, 0.2, 0.5], [8.3, 0.3, 1.0]], np.float32)
    kept = upright_points(np.concatenate([ground, trunk]), 1.0, 0.5)
    np.testing.assert_array_equal(np.sort(kept, axis=0), np.sort(trunk, axis=0))
    assert upright_points(ground, 1.0, 0.0) is ground
    assert len(upright_points(ground[:0], 1.0, 0.5)) == 0
    assert len(upright_points(ground[:1], 1.0, 0.5)) == 0


@pytest.mark.parametrize(('cell_m', 'height_m'), [(1.0, 0.5), (2.0, 0.75), (0.5, 1.5)])
def test_upright_points_are_found_cell_by_cell(rng, cell_m, height_m):
    """Heights are multiples of a quarter meter, so that some cells are exactly at the limit."""
    points = np.round(4.0 * rng.uniform([-15, -3, -1], [9, 2, 1], (300, 3))).astype(np.float32) / 4
    cells = {}
    for point in points:
        cells.setdefault(tuple(np.floor(point[:2] / cell_m)), []).append(point)
    tall = [
        p for column in cells.values() for p in column if np.ptp(column, axis=0)[2] >= height_m
    ]
    assert 0 < len(tall) < 300
    kept = upright_points(points, cell_m, height_m)
    assert sorted(map(tuple, kept)) == sorted(map(tuple, tall))


@pytest.mark.parametrize('count', [1, 50, 100, 200])
def test_the_closest_points_are_kept_in_order(rng, count):
    points = rng.normal(size=(100, 3)).astype(np.float32)
    nearest = np.sort(np.argsort(np.linalg.norm(points, axis=1))[:count])
    np.testing.assert_array_equal(closest_points(points, count), points[nearest])


def test_a_cloud_of_the_minimum_size_is_prepared(rng):
    points = np.floor(rng.permutation(1000)[:100, None] / [1, 10, 100]).astype(np.float32)
    assert len(prepare(points, RegistrationConfig(min_points=100)).points) == 100
    assert prepare(points[1:], RegistrationConfig(min_points=100)) is None


@pytest.mark.parametrize('depth_m', [0.02, 0.5])
def test_thickness_is_the_spread_of_points_across_the_surface(rng, depth_m):
    """Two walls and a floor: together they are not a plane."""
    faces = [np.insert(rng.uniform(0, 20, (4000, 2)), axis, rng.normal(0.0, depth_m, 4000), 1)
             for axis in range(3)]  # fmt: skip
    corner = np.concatenate(faces).astype(np.float32)
    turned = corner @ pose_from_euler([0, 0, 0], [0.3, 0.2, 1.0])[:3, :3].T.astype(np.float32)
    config = RegistrationConfig(voxel_m=0.05)
    moved = turned + np.float32([30.0, -20.0, 10.0])
    straight, oblique, distant = (prepare(c, config).thickness_m for c in (corner, turned, moved))
    # Twenty neighbors in a thick cloud reach less far than it is deep; near edges they see two.
    assert 0.4 * depth_m < straight < 1.1 * depth_m + 0.02
    assert oblique == pytest.approx(straight, rel=0.1)
    assert distant == pytest.approx(straight, rel=0.1)


def test_few_points_have_a_thickness_too(rng):
    few = rng.normal(size=(12, 3)).astype(np.float32)
    config = RegistrationConfig(voxel_m=0.05, min_points=10)
    assert np.isfinite(prepare(few, config).thickness_m)
