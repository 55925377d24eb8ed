"""Interpolation, alignment and errors of trajectories."""

import warnings

import numpy as np
import pytest
from toy_recordings import make_pose

from lpr_ros.core.geometry.se3 import invert, pose_from_euler, rotation_angle_rad
from lpr_ros.core.geometry.trajectory import (
    Trajectory,
    align,
    interpolate,
    position_errors_m,
    root_mean_square,
)

STAMPS = np.array([10, 20, 40, 70], dtype=np.int64) * 1_000_000_000 + 17
POSES = np.stack([make_pose(i) for i in range(4)])


@pytest.mark.parametrize('fraction', [0.0, 0.25, 0.5, 1.0])
def test_interpolate_moves_and_turns_at_a_constant_rate(fraction):
    start = pose_from_euler([1.0, 2.0, 3.0], [0.0, 0.0, 0.5])
    end = pose_from_euler([5.0, 0.0, 3.0], [0.0, 0.0, 1.5])
    T = interpolate(start, end, fraction)
    np.testing.assert_allclose(T[:3, 3], [1.0 + 4.0 * fraction, 2.0 - 2.0 * fraction, 3.0])
    assert rotation_angle_rad(invert(start) @ T) == pytest.approx(fraction, abs=1e-7)
    np.testing.assert_array_equal(T[3], [0.0, 0.0, 0.0, 1.0])


def test_at_returns_known_poses_and_none_outside_or_in_gaps():
    trajectory = Trajectory(STAMPS, POSES)
    for stamp, T in zip(STAMPS, POSES, strict=True):
        np.testing.assert_array_equal(trajectory.at(int(stamp)), T)
    assert trajectory.at(int(STAMPS[0]) - 1) is None
    assert trajectory.at(int(STAMPS[-1]) + 1) is None
    between = int(STAMPS[2]) + 1
    assert trajectory.at(between) is not None
    assert trajectory.at(between, max_gap_ns=29_999_999_999) is None
    assert trajectory.at(between, max_gap_ns=30_000_000_000) is not None


def test_at_interpolates_between_the_neighbors():
    T = Trajectory(STAMPS, POSES).at(int(STAMPS[1]) + 5_000_000_000)
    np.testing.assert_allclose(T, interpolate(POSES[1], POSES[2], 0.25), atol=1e-12)


def test_known_poses_are_returned_as_copies():
    trajectory = Trajectory(STAMPS, POSES.copy())
    trajectory.at(int(STAMPS[0]))[:] = 0.0
    np.testing.assert_array_equal(trajectory.T, POSES)


@pytest.mark.parametrize('max_gap_ns', [None, 30 * 10**9, 25 * 10**9, 20 * 10**9, 10**9])
def test_sample_equals_at(max_gap_ns):
    trajectory = Trajectory(STAMPS, POSES)
    wanted = np.linspace(STAMPS[0] - 5e9, STAMPS[-1] + 5e9, 41).astype(np.int64)
    wanted = np.concatenate([wanted, STAMPS, STAMPS - 1, STAMPS + 1])
    T, covered = trajectory.sample(wanted, max_gap_ns)
    for stamp, pose, inside in zip(wanted, T, covered, strict=True):
        alone = trajectory.at(int(stamp), max_gap_ns)
        assert inside == (alone is not None)
        if alone is not None:
            np.testing.assert_allclose(pose, alone, atol=1e-9)


def test_a_single_pose_is_sampled_at_its_stamp_only():
    trajectory = Trajectory(STAMPS[:1], POSES[1:2])
    T, covered = trajectory.sample(STAMPS[0] + np.array([-1, 0, 1]), max_gap_ns=10**9)
    assert covered.tolist() == [False, True, False]
    np.testing.assert_array_equal(T, np.tile(POSES[1], (3, 1, 1)))


def test_from_unordered_sorts_and_drops_repeated_stamps():
    trajectory = Trajectory.from_unordered([30, 10, 30], POSES[:3])
    assert trajectory.stamps_ns.tolist() == [10, 30]
    np.testing.assert_array_equal(trajectory.T, POSES[[1, 0]])
    assert len(trajectory) == 2


def test_alignment_recovers_a_rigid_motion(rng):
    true = rng.normal(size=(20, 3)) * 30.0
    T = pose_from_euler([5.0, -70.0, 3.0], [0.1, -0.2, 2.5])
    moved = true @ T[:3, :3].T + T[:3, 3]
    np.testing.assert_allclose(align(true, moved), T, atol=1e-9)
    np.testing.assert_allclose(position_errors_m(true, moved), 0.0, atol=1e-9)
    mirrored = align(true, true * (1.0, 1.0, -1.0))  # a reflection fits best, but is no motion
    assert np.linalg.det(mirrored[:3, :3]) == pytest.approx(1.0)


def test_alignment_minimizes_the_squared_errors(rng):
    """No nearby rigid motion of mirrored, noisy positions is better."""
    true = rng.normal(size=(30, 3)) * [30.0, 10.0, 1.0]
    for estimate in (true + rng.normal(size=true.shape), true * (1.0, 1.0, -1.0)):
        T = align(estimate, true)

        def squared_error(T, estimate=estimate):
            return np.square(estimate @ T[:3, :3].T + T[:3, 3] - true).sum()

        for motion in rng.normal(size=(50, 6), scale=0.01):
            nearby = T @ pose_from_euler(motion[:3], motion[3:])
            assert squared_error(nearby) > squared_error(T)


def test_trajectory_error_of_a_scaled_line():
    """10 m measured as 12 m: each end is off by 1 m."""
    true = np.array([[-5.0, 0.0, 0.0], [5.0, 0.0, 0.0]])
    np.testing.assert_allclose(position_errors_m(true * 1.2, true), [1.0, 1.0])
    assert position_errors_m(true[:1], true[1:]).tolist() == [0.0]
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert position_errors_m(true[:0], true[:0]).shape == (0,)
    assert root_mean_square(np.array([3.0, 4.0])) == pytest.approx(np.sqrt(12.5))
    assert np.isnan(root_mean_square(np.zeros(0)))
