import numpy as np
import pytest
from recordings import make_pose

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.geometry import (
    Trajectory,
    interpolate,
    invert,
    pose_from_euler,
    pose_from_quaternion,
    quaternion_from_pose,
    rotation_angle_rad,
    transform_points,
)
from lpr_ros.core.poses import (
    ns_from_seconds,
    read_kitti_poses,
    read_tum,
    seconds_from_ns,
    write_kitti_poses,
    write_tum,
)

STAMPS = np.array([10, 20, 40, 70], dtype=np.int64) * 1_000_000_000 + 17
POSES = np.stack([make_pose(i) for i in range(4)])


def test_quaternions_round_trip_also_at_half_turns():
    for yaw in (0.0, 1.0, np.pi, -np.pi, -3.0):
        T = pose_from_euler([1.0, 2.0, 3.0], [0.1, -0.2, yaw])
        back = pose_from_quaternion(T[:3, 3], quaternion_from_pose(T))
        np.testing.assert_allclose(back, T, atol=1e-12)


def test_euler_angles_turn_about_fixed_axes_roll_first():
    T = pose_from_euler([0.0, 0.0, 0.0], [np.pi / 2, 0.0, np.pi / 2])
    np.testing.assert_allclose(T[:3, :3] @ [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], atol=1e-12)
    np.testing.assert_allclose(T[:3, :3] @ [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], atol=1e-12)


def test_inverse_undoes_one_pose_and_many():
    np.testing.assert_allclose(invert(POSES) @ POSES, np.tile(np.eye(4), (4, 1, 1)), atol=1e-12)
    np.testing.assert_allclose(invert(POSES[2]) @ POSES[2], np.eye(4), atol=1e-12)


def test_points_go_from_b_to_a():
    T_a_b = pose_from_euler([10.0, 0.0, 0.0], [0.0, 0.0, np.pi / 2])
    points_b = np.array([[1.0, 0.0, 0.0]], dtype=np.float32)
    np.testing.assert_allclose(transform_points(T_a_b, points_b), [[10.0, 1.0, 0.0]], atol=1e-6)


def test_interpolation_is_halfway_in_place_and_angle():
    T = interpolate(np.eye(4), pose_from_euler([4.0, 2.0, 0.0], [0.0, 0.0, 1.0]), 0.5)
    np.testing.assert_allclose(T[:3, 3], [2.0, 1.0, 0.0])
    assert rotation_angle_rad(T) == pytest.approx(0.5)


def test_trajectory_gives_its_own_poses_and_nothing_outside_its_time():
    trajectory = Trajectory(STAMPS, POSES)
    for stamp, T in zip(STAMPS, POSES, strict=True):
        np.testing.assert_array_equal(trajectory.at(int(stamp)), T)
    assert trajectory.at(int(STAMPS[0]) - 1) is None
    assert trajectory.at(int(STAMPS[-1]) + 1) is None
    between = int(STAMPS[2]) + 1
    assert trajectory.at(between) is not None
    assert trajectory.at(between, max_gap_ns=29_000_000_000) is None


@pytest.mark.parametrize('max_gap_ns', [None, 25 * 10**9, 10**9])
def test_many_times_at_once_equal_one_by_one(max_gap_ns):
    trajectory = Trajectory(STAMPS, POSES)
    wanted = np.linspace(STAMPS[0] - 5e9, STAMPS[-1] + 5e9, 41).astype(np.int64)
    wanted = np.concatenate([wanted, STAMPS])
    T, covered = trajectory.sample(wanted, max_gap_ns)
    for stamp, pose, inside in zip(wanted, T, covered, strict=True):
        alone = trajectory.at(int(stamp), max_gap_ns)
        assert inside == (alone is not None)
        if alone is not None:
            np.testing.assert_allclose(pose, alone, atol=1e-9)


def test_unordered_poses_are_sorted_and_repeated_stamps_dropped():
    trajectory = Trajectory.from_unordered([30, 10, 30], POSES[:3])
    assert trajectory.stamps_ns.tolist() == [10, 30]
    np.testing.assert_array_equal(trajectory.T, POSES[[1, 0]])


@pytest.mark.parametrize('stamp', [0, 1, 999_999_999, 1_700_000_000_123_456_789, -5])
def test_nanoseconds_survive_text(stamp):
    assert ns_from_seconds(seconds_from_ns(stamp)) == stamp


def test_tum_round_trip(tmp_path):
    write_tum(tmp_path / 'poses.txt', Trajectory(STAMPS, POSES))
    back = read_tum(tmp_path / 'poses.txt')
    np.testing.assert_array_equal(back.stamps_ns, STAMPS)
    np.testing.assert_allclose(back.T, POSES, atol=1e-10)


def test_kitti_poses_round_trip(tmp_path):
    write_kitti_poses(tmp_path / '00.txt', POSES)
    np.testing.assert_allclose(read_kitti_poses(tmp_path / '00.txt'), POSES, atol=1e-11)


@pytest.mark.parametrize(
    ('reader', 'text', 'expected'),
    [
        (read_tum, '# head\n1 0 0 0 0 0 0 1\n2 0 0 0 0 0 1\n', 'line 3: expected 8 values'),
        (read_tum, '1 0 0 0 0 0 0 1\n2 nan 0 0 0 0 0 1\n', 'line 2: expected finite'),
        (read_tum, 'now 0 0 0 0 0 0 1\n', "line 1: expected a time, got 'now'"),
        (read_tum, '1 0 0 0 0 0 0 0\n', 'line 1: the quaternion is zero'),
        (read_tum, '# nothing\n', 'found none'),
        (read_kitti_poses, '1 0 0 0 0 1 0 0 0 0 1 0\n1 2 3\n', 'line 2: expected 12 values'),
        (read_kitti_poses, '1 0 0 0 0 1 0 0 0 0 1 x\n', 'line 1: expected numbers'),
    ],
)
def test_bad_pose_files_name_the_line(tmp_path, reader, text, expected):
    path = tmp_path / 'poses.txt'
    path.write_text(text)
    with pytest.raises(DatasetError, match=expected) as error:
        reader(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize('length', [1e-300, 1e-9, 7.0, 1e200, 1.7e308])
def test_the_length_of_a_quaternion_does_not_matter(length):
    quaternion = np.array([0.1, -0.2, 0.3, 0.5])
    scaled = pose_from_quaternion(np.zeros(3), quaternion / np.abs(quaternion).max() * length)
    np.testing.assert_allclose(scaled, pose_from_quaternion(np.zeros(3), quaternion), atol=1e-12)
