"""Rigid transforms: inverses, round trips, and stacks of poses that equal each pose alone."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from toy_recordings import make_pose

from lpr_ros.core.errors import DatabaseError
from lpr_ros.core.geometry.se3 import (
    MAX_POSITION_M,
    adjoint,
    checked_pose,
    covariance_in_parent,
    invert,
    is_pose,
    local_error,
    pose_from_euler,
    pose_from_quaternion,
    propagate,
    quaternion_from_pose,
    rotation_angle_rad,
    transform_points,
    yaw_matrix,
)

POSES = np.stack([make_pose(i) for i in range(4)])


@pytest.fixture
def poses(rng):
    """A (2, 5) stack of arbitrary poses."""
    return pose_from_euler(rng.normal(size=(2, 5, 3)), rng.uniform(-3.0, 3.0, (2, 5, 3)))


def random_covariances(rng, *shape):
    A = rng.normal(size=(*shape, 6, 6))
    return A @ np.swapaxes(A, -1, -2)


def test_quaternions_round_trip_at_any_yaw():
    for yaw in (0.0, 1.0, np.pi, -np.pi, -3.0):
        T = pose_from_euler([1.0, 2.0, 3.0], [0.1, -0.2, yaw])
        back = pose_from_quaternion(T[:3, 3], quaternion_from_pose(T))
        np.testing.assert_allclose(back, T, atol=1e-12)


def test_quaternions_of_equal_rotations_are_equal(poses):
    """q and -q are the same rotation; w is never negative."""
    quaternions = quaternion_from_pose(poses)
    assert (quaternions[..., 3] >= 0.0).all()
    negated = pose_from_quaternion(poses[..., :3, 3], -quaternions)
    np.testing.assert_allclose(quaternion_from_pose(negated), quaternions, atol=1e-12)


def test_euler_angles_rotate_about_fixed_axes_roll_first():
    T = pose_from_euler([0.0, 0.0, 0.0], [np.pi / 2, 0.0, np.pi / 2])
    np.testing.assert_allclose(T[:3, :3] @ [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], atol=1e-12)
    np.testing.assert_allclose(T[:3, :3] @ [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], atol=1e-12)


def test_stacks_of_poses_equal_each_pose_alone(rng):
    xyz, rpy = rng.normal(size=(2, 2, 5, 3))
    T = pose_from_euler(xyz, rpy)
    np.testing.assert_array_equal(T[..., 3, :], np.tile([0.0, 0.0, 0.0, 1.0], (2, 5, 1)))
    np.testing.assert_array_equal(T[..., :3, 3], xyz)
    other = pose_from_euler(rpy, xyz)
    covariance = random_covariances(rng, 2, 5)
    for i in np.ndindex(2, 5):
        alone = {
            'pose': (T[i], pose_from_euler(xyz[i], rpy[i])),
            'quaternion': (quaternion_from_pose(T)[i], quaternion_from_pose(T[i])),
            'inverse': (invert(T)[i], invert(T[i])),
            'error': (local_error(T, other)[i], local_error(T[i], other[i])),
            'adjoint': (adjoint(T)[i], adjoint(T[i])),
            'covariance': (
                propagate(adjoint(T), covariance)[i],
                propagate(adjoint(T[i]), covariance[i]),
            ),
        }
        for name, (stacked, single) in alone.items():
            np.testing.assert_allclose(stacked, single, atol=1e-12, err_msg=name)


def test_invert_works_on_single_and_stacked_poses():
    np.testing.assert_allclose(invert(POSES) @ POSES, np.tile(np.eye(4), (4, 1, 1)), atol=1e-12)
    np.testing.assert_allclose(invert(POSES[2]) @ POSES[2], np.eye(4), atol=1e-12)


def test_transform_points_maps_from_b_to_a():
    T_a_b = pose_from_euler([10.0, 20.0, 30.0], [0.0, 0.0, np.pi / 2])
    points_b = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 2.0]], dtype=np.float32)
    expected = [[10.0, 21.0, 30.0], [10.0, 20.0, 32.0]]
    np.testing.assert_allclose(transform_points(T_a_b, points_b), expected, atol=1e-5)


@pytest.mark.parametrize('length', [1e-300, 1e-9, 7.0, 1e200, 1.7e308])
def test_quaternion_scale_does_not_matter(length):
    quaternion = np.array([0.1, -0.2, 0.3, 0.5])
    scaled = pose_from_quaternion(np.zeros(3), quaternion / np.abs(quaternion).max() * length)
    np.testing.assert_allclose(scaled, pose_from_quaternion(np.zeros(3), quaternion), atol=1e-12)


def test_a_zero_quaternion_is_an_error():
    with np.errstate(all='raise'), pytest.raises(ValueError, match='zero norm'):
        pose_from_quaternion(np.zeros(3), np.zeros(4))


@pytest.mark.parametrize('yaw', [-2.5, 0.0, 1.0])
def test_the_rotation_angle_has_no_sign(yaw):
    T = pose_from_euler([1.0, 2.0, 3.0], [0.0, 0.0, yaw])
    assert rotation_angle_rad(T) == pytest.approx(abs(yaw))
    np.testing.assert_allclose(yaw_matrix(yaw), T[:3, :3], atol=1e-6)


def test_poses_have_an_orthonormal_right_handed_rotation(poses):
    assert is_pose(poses).all()
    assert is_pose(poses).shape == (2, 5)
    assert is_pose(poses[0, 0])
    assert is_pose(np.round(poses, 4)).all()
    assert is_pose(0.9999 * poses).all()
    for bad in (1.001 * poses, -poses, poses @ np.diag([1.0, 1.0, -1.0, 1.0])):
        assert not is_pose(bad).any()
    shear = np.eye(4)
    shear[0, 1] = 0.01
    assert not is_pose(poses @ shear).any()
    mixed = np.stack([poses[0, 0], -poses[0, 0], 2.0 * poses[0, 0]])
    assert is_pose(mixed).tolist() == [True, False, False]


@pytest.mark.parametrize('axis', [0, 1, 2])
@pytest.mark.parametrize('sign', [-1.0, 1.0])
def test_poses_have_a_position_within_the_limit(poses, axis, sign):
    poses[1, :, axis, 3] = sign * MAX_POSITION_M
    assert is_pose(poses).all()
    poses[1, 2, axis, 3] = sign * 1.001 * MAX_POSITION_M
    assert np.argwhere(~is_pose(poses)).tolist() == [[1, 2]]
    assert not is_pose(poses[1, 2])


def test_checked_pose_accepts_rigid_transforms_only():
    T = pose_from_euler([1.0, 2.0, 3.0], [0.1, 0.2, 0.3])
    np.testing.assert_array_equal(checked_pose(T.tolist()), T)
    invalid = np.where(np.eye(4) == 1.0, np.nan, T)
    for bad in (T[:3], T[:, :3], np.tile(T, (2, 1, 1)), invalid):
        with pytest.raises(DatabaseError, match='4 x 4 matrix of finite'):
            checked_pose(bad)
    for bad in (2.0 * T, np.zeros((4, 4)), T * [1.0, 1.0, -1.0, 1.0]):
        with pytest.raises(DatabaseError, match='rotation matrix'):
            checked_pose(bad)


def test_local_error_leads_from_the_pose_to_the_true_one(poses):
    T, T_true = poses[0], poses[1]
    error = local_error(T, T_true)
    step = np.tile(np.eye(4), (5, 1, 1))
    step[:, :3, :3] = Rotation.from_rotvec(error[:, 3:]).as_matrix()
    step[:, :3, 3] = error[:, :3]
    np.testing.assert_allclose(T @ step, T_true, atol=1e-12)


def test_the_adjoint_maps_small_motions_between_frames(poses, rng):
    for T_a_b in poses[0]:
        small = 1e-5 * rng.normal(size=6)
        step = pose_from_euler(small[:3], small[3:])
        moved = local_error(np.eye(4), T_a_b @ step @ invert(T_a_b))
        np.testing.assert_allclose(moved, adjoint(T_a_b) @ small, atol=1e-9)


def test_propagated_covariances_are_exactly_symmetric(rng):
    for shape in ((), (3,)):
        A, C = rng.normal(size=(*shape, 6, 6)), random_covariances(rng, *shape)
        moved = propagate(A, C)
        np.testing.assert_array_equal(moved, np.swapaxes(moved, -1, -2))
        np.testing.assert_allclose(moved, A @ C @ np.swapaxes(A, -1, -2), atol=1e-9)


def test_covariance_in_parent_rotates_the_axes(poses, rng):
    """The query faces left of the match: its x axis is the y axis of the match."""
    T_match_query = pose_from_euler([3.0, 2.0, 0.0], [0.0, 0.0, np.pi / 2])
    covariance = np.diag([0.25, 0.01, 0.01, 0.001, 0.002, 0.003])
    expected = np.diag([0.01, 0.25, 0.01, 0.002, 0.001, 0.003])
    np.testing.assert_allclose(
        covariance_in_parent(T_match_query, covariance), expected, atol=1e-12
    )
    T, covariance = poses[0, 0], random_covariances(rng)
    R = np.kron(np.eye(2), T[:3, :3])
    np.testing.assert_allclose(covariance_in_parent(T, covariance), R @ covariance @ R.T)
