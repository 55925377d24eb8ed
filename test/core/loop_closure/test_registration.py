"""Registration recovers a known pose from any heading, and says None where it cannot."""

import numpy as np
import pytest
from simulated_pairs import simulate

from lpr_ros.core.errors import CloudError
from lpr_ros.core.geometry import (
    invert,
    pose_from_euler,
    rotation_angle_rad,
    transform_points,
)
from lpr_ros.core.registration import (
    RegistrationConfig,
    finite_points,
    prepare,
    refine,
    register_globally,
    upright_points,
)
from lpr_ros.core.tangent import adjoint, covariance_in_parent, motion_between

CONFIG = RegistrationConfig()


@pytest.fixture(scope='module')
def suburb():
    return simulate('suburb')


@pytest.fixture(scope='module')
def cloud(suburb):
    return suburb.keyframe(0).points


def register(target, source):
    """Search, then refine."""
    target, source = prepare(target, CONFIG), prepare(source, CONFIG)
    found = register_globally(target.sketch, source.sketch, CONFIG.search_voxel_m)
    return refine(target, source, found.T_target_source, CONFIG)


def assert_near(T, T_true, metres=0.15, degrees=0.5):
    difference = invert(T_true) @ T
    assert np.linalg.norm(difference[:3, 3]) < metres
    assert np.degrees(rotation_angle_rad(difference)) < degrees


@pytest.mark.parametrize('yaw_deg', [0.0, 90.0, 180.0, -120.0])
def test_a_real_pair_is_registered_from_any_heading(shared_data, yaw_deg):
    from lpr_training.datasets import make_dataset

    scans = make_dataset('scans', shared_data, runs=['kitti_raw_0005'])
    T_turn = pose_from_euler([0.0, 0.0, 0.0], [0.0, 0.0, np.radians(yaw_deg)])
    source = transform_points(T_turn, scans.points(25))
    T_target_source = invert(scans.T_world_sensor[20]) @ scans.T_world_sensor[25] @ invert(T_turn)
    assert_near(register(scans.points(20), source).T_target_source, T_target_source)


@pytest.mark.parametrize('yaw_deg', [10.0, 100.0, 190.0])
def test_a_simulated_revisit_is_registered_from_any_heading(suburb, yaw_deg):
    match, query = suburb.pairs(count=1, seed=4)[0]
    T_turn = pose_from_euler([0.0, 0.0, 0.0], [0.0, 0.0, np.radians(yaw_deg)])
    source = transform_points(T_turn, suburb.keyframe(query).points)
    T_true = suburb.true_pose(match, query) @ invert(T_turn)
    assert_near(register(suburb.keyframe(match).points, source).T_target_source, T_true)


def test_the_inverse_problem_has_the_inverse_answer(suburb):
    match, query = suburb.pairs(count=1, seed=1)[0]
    a, b = suburb.keyframe(match).points, suburb.keyframe(query).points
    T_a_b, T_b_a = register(a, b).T_target_source, register(b, a).T_target_source
    assert_near(T_a_b @ T_b_a, np.eye(4), metres=0.05, degrees=0.1)


def test_a_cloud_registers_with_itself(cloud):
    found = register(cloud, cloud)
    assert_near(found.T_target_source, np.eye(4), metres=0.01, degrees=0.01)
    assert (np.linalg.eigvalsh(found.information) > 0.0).all()


def test_the_information_is_of_a_small_motion_on_the_right(rng):
    """A wall across x, far ahead: x is known well, and a yaw moves the wall more than a roll."""
    y, z = rng.uniform(-10, 10, (2, 20000))
    noise = 0.01 * rng.standard_normal(20000)
    wall = prepare(np.stack([20.0 + noise, y, z], axis=1).astype(np.float32), CONFIG)
    T_turned = pose_from_euler([0.0, 0.0, 0.0], [0.0, 0.0, np.pi / 2])
    turned = prepare(transform_points(T_turned, wall.points), CONFIG)
    for source, normal, turning in ((wall, 0, 4), (turned, 1, 3)):
        T_guess = np.eye(4) if source is wall else invert(T_turned)
        information = np.diag(refine(wall, source, T_guess, CONFIG).information)
        assert np.argmax(information[:3]) == normal  # in the frame of the source
        assert information[turning] > 5.0 * information[3 + normal]


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
def test_clouds_with_nothing_to_register_give_none(points):
    assert prepare(points, CONFIG) is None


@pytest.mark.parametrize('points', [np.zeros((10, 4)), np.zeros(10), np.zeros((2, 5, 3))])
def test_another_shape_is_refused(points):
    with pytest.raises(CloudError, match='shape'):
        finite_points(points)


def test_bad_points_are_left_out(cloud):
    bad = np.array([[np.nan, 0, 0], [0, np.inf, 0], [0, 0, 1e20]], np.float32)
    kept = finite_points(np.concatenate([bad, cloud]))
    np.testing.assert_array_equal(kept, cloud)


@pytest.mark.parametrize('spread_m', [0.1, 3.0, 30.0, 3000.0])
@pytest.mark.parametrize('count', [1, 10, 60, 300])
def test_few_and_lone_points_do_not_end_the_process(rng, count, spread_m):
    a, b = rng.uniform(-spread_m, spread_m, (2, count, 3)).astype(np.float32)
    for source in (a, b):
        found = register_globally(a, source, 0.5)
        assert found is None or np.isfinite(found.T_target_source).all()


def test_a_guess_far_away_gives_none(cloud):
    prepared = prepare(cloud, CONFIG)
    T_guess = pose_from_euler([500.0, 0.0, 0.0], [0.0, 0.0, 0.0])
    assert refine(prepared, prepared, T_guess, CONFIG) is None


def test_upright_points_are_those_of_tall_columns():
    ground = np.array([[5.2, 0.1, -1.7], [5.8, 0.2, -1.5]], np.float32)
    trunk = np.array([[8.1, 0.1, -1.7], [8.2, 0.2, 0.5], [8.3, 0.3, 1.0]], np.float32)
    kept = upright_points(np.concatenate([ground, trunk]), 1.0, 0.5)
    np.testing.assert_array_equal(np.sort(kept, axis=0), np.sort(trunk, axis=0))
    assert len(upright_points(ground, 1.0, 0.0)) == 2
    assert len(upright_points(ground[:0], 1.0, 0.5)) == 0


def test_motions_move_between_frames_by_the_adjoint(rng):
    T_a_b = pose_from_euler(rng.normal(size=3), rng.normal(size=3))
    small = 1e-5 * rng.normal(size=6)
    step = pose_from_euler(small[:3], small[3:])
    moved = motion_between(np.eye(4), T_a_b @ step @ invert(T_a_b))
    np.testing.assert_allclose(moved, adjoint(T_a_b) @ small, atol=1e-9)


def test_a_covariance_along_the_parents_axes(rng):
    """Half a metre ahead of a query that looks left of the match is along the match's y."""
    T_match_query = pose_from_euler([3.0, 2.0, 0.0], [0.0, 0.0, np.pi / 2])
    covariance = np.diag([0.25, 0.01, 0.01, 0.001, 0.002, 0.003])
    expected = np.diag([0.01, 0.25, 0.01, 0.002, 0.001, 0.003])
    np.testing.assert_allclose(
        covariance_in_parent(T_match_query, covariance), expected, atol=1e-12
    )


@pytest.mark.parametrize('depth_m', [0.02, 0.5])
def test_thickness_is_how_deep_the_surfaces_are(rng, depth_m):
    """Of two walls and a floor: all of them together are no plane."""
    faces = [np.insert(rng.uniform(0, 20, (4000, 2)), axis, rng.normal(0.0, depth_m, 4000), 1)
             for axis in range(3)]  # fmt: skip
    corner = np.concatenate(faces).astype(np.float32)
    turned = corner @ pose_from_euler([0, 0, 0], [0.3, 0.2, 1.0])[:3, :3].T.astype(np.float32)
    config = RegistrationConfig(voxel_m=0.05)
    straight, oblique = (prepare(cloud, config).thickness_m for cloud in (corner, turned))
    # Twenty neighbours in a thick cloud reach less far than it is deep; near edges they see two.
    assert 0.4 * depth_m < straight < 1.1 * depth_m + 0.02
    assert oblique == pytest.approx(straight, rel=0.1)


def test_few_points_have_a_thickness_too(rng):
    few = rng.normal(size=(12, 3)).astype(np.float32)
    config = RegistrationConfig(voxel_m=0.05, fewest_points=10)
    assert np.isfinite(prepare(few, config).thickness_m)
