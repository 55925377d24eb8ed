"""Registration recovers a known pose at any yaw, and returns None if it fails."""

import numpy as np
import pytest
from simulated_pairs import simulate

from lpr_ros.core.errors import CloudError
from lpr_ros.core.geometry.points import points_in_range
from lpr_ros.core.geometry.se3 import (
    adjoint,
    covariance_in_parent,
    invert,
    local_error,
    pose_from_euler,
    rotation_angle_rad,
    transform_points,
)
from lpr_ros.core.loop_closure.global_registration import register_globally
from lpr_ros.core.loop_closure.registration import (
    RegistrationConfig,
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
    from lpr_training.datasets import make_dataset

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
    assert len(upright_points(ground, 1.0, 0.0)) == 2
    assert len(upright_points(ground[:0], 1.0, 0.5)) == 0


def test_the_adjoint_maps_small_motions_between_frames(rng):
    T_a_b = pose_from_euler(rng.normal(size=3), rng.normal(size=3))
    small = 1e-5 * rng.normal(size=6)
    step = pose_from_euler(small[:3], small[3:])
    moved = local_error(np.eye(4), T_a_b @ step @ invert(T_a_b))
    np.testing.assert_allclose(moved, adjoint(T_a_b) @ small, atol=1e-9)


def test_covariance_in_parent_rotates_the_axes(rng):
    """The query faces left of the match: its x axis is the y axis of the match."""
    T_match_query = pose_from_euler([3.0, 2.0, 0.0], [0.0, 0.0, np.pi / 2])
    covariance = np.diag([0.25, 0.01, 0.01, 0.001, 0.002, 0.003])
    expected = np.diag([0.01, 0.25, 0.01, 0.002, 0.001, 0.003])
    np.testing.assert_allclose(
        covariance_in_parent(T_match_query, covariance), expected, atol=1e-12
    )
