import numpy as np
import pytest
from toy_recordings import make_pose

from lpr_ros.core.geometry.se3 import (
    invert,
    pose_from_euler,
    pose_from_quaternion,
    quaternion_from_pose,
    transform_points,
)

POSES = np.stack([make_pose(i) for i in range(4)])


def test_quaternions_round_trip_at_any_yaw():
    for yaw in (0.0, 1.0, np.pi, -np.pi, -3.0):
        T = pose_from_euler([1.0, 2.0, 3.0], [0.1, -0.2, yaw])
        back = pose_from_quaternion(T[:3, 3], quaternion_from_pose(T))
        np.testing.assert_allclose(back, T, atol=1e-12)


def test_euler_angles_rotate_about_fixed_axes_roll_first():
    T = pose_from_euler([0.0, 0.0, 0.0], [np.pi / 2, 0.0, np.pi / 2])
    np.testing.assert_allclose(T[:3, :3] @ [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], atol=1e-12)
    np.testing.assert_allclose(T[:3, :3] @ [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], atol=1e-12)


def test_invert_works_on_single_and_stacked_poses():
    np.testing.assert_allclose(invert(POSES) @ POSES, np.tile(np.eye(4), (4, 1, 1)), atol=1e-12)
    np.testing.assert_allclose(invert(POSES[2]) @ POSES[2], np.eye(4), atol=1e-12)


def test_transform_points_maps_from_b_to_a():
    T_a_b = pose_from_euler([10.0, 0.0, 0.0], [0.0, 0.0, np.pi / 2])
    points_b = np.array([[1.0, 0.0, 0.0]], dtype=np.float32)
    np.testing.assert_allclose(transform_points(T_a_b, points_b), [[10.0, 1.0, 0.0]], atol=1e-6)


@pytest.mark.parametrize('length', [1e-300, 1e-9, 7.0, 1e200, 1.7e308])
def test_quaternion_scale_does_not_matter(length):
    quaternion = np.array([0.1, -0.2, 0.3, 0.5])
    scaled = pose_from_quaternion(np.zeros(3), quaternion / np.abs(quaternion).max() * length)
    np.testing.assert_allclose(scaled, pose_from_quaternion(np.zeros(3), quaternion), atol=1e-12)
