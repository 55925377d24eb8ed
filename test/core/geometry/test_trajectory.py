import numpy as np
import pytest
from toy_recordings import make_pose

from lpr_ros.core.geometry.se3 import pose_from_euler, rotation_angle_rad
from lpr_ros.core.geometry.trajectory import Trajectory, interpolate

STAMPS = np.array([10, 20, 40, 70], dtype=np.int64) * 1_000_000_000 + 17
POSES = np.stack([make_pose(i) for i in range(4)])


def test_interpolate_halves_position_and_angle():
    T = interpolate(np.eye(4), pose_from_euler([4.0, 2.0, 0.0], [0.0, 0.0, 1.0]), 0.5)
    np.testing.assert_allclose(T[:3, 3], [2.0, 1.0, 0.0])
    assert rotation_angle_rad(T) == pytest.approx(0.5)


def test_at_returns_known_poses_and_none_outside_or_in_gaps():
    trajectory = Trajectory(STAMPS, POSES)
    for stamp, T in zip(STAMPS, POSES, strict=True):
        np.testing.assert_array_equal(trajectory.at(int(stamp)), T)
    assert trajectory.at(int(STAMPS[0]) - 1) is None
    assert trajectory.at(int(STAMPS[-1]) + 1) is None
    between = int(STAMPS[2]) + 1
    assert trajectory.at(between) is not None
    assert trajectory.at(between, max_gap_ns=29_000_000_000) is None


@pytest.mark.parametrize('max_gap_ns', [None, 25 * 10**9, 10**9])
def test_sample_equals_at(max_gap_ns):
    trajectory = Trajectory(STAMPS, POSES)
    wanted = np.linspace(STAMPS[0] - 5e9, STAMPS[-1] + 5e9, 41).astype(np.int64)
    wanted = np.concatenate([wanted, STAMPS])
    T, covered = trajectory.sample(wanted, max_gap_ns)
    for stamp, pose, inside in zip(wanted, T, covered, strict=True):
        alone = trajectory.at(int(stamp), max_gap_ns)
        assert inside == (alone is not None)
        if alone is not None:
            np.testing.assert_allclose(pose, alone, atol=1e-9)


def test_from_unordered_sorts_and_drops_repeated_stamps():
    trajectory = Trajectory.from_unordered([30, 10, 30], POSES[:3])
    assert trajectory.stamps_ns.tolist() == [10, 30]
    np.testing.assert_array_equal(trajectory.T, POSES[[1, 0]])
