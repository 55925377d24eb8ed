import numpy as np
import pytest
from toy_recordings import make_pose

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.geometry.trajectory import Trajectory
from lpr_ros.core.io.pose_files import (
    ns_from_seconds,
    read_kitti_poses,
    read_tum,
    seconds_from_ns,
    write_kitti_poses,
    write_tum,
)

STAMPS = np.array([10, 20, 40, 70], dtype=np.int64) * 1_000_000_000 + 17
POSES = np.stack([make_pose(i) for i in range(4)])


@pytest.mark.parametrize('stamp', [0, 1, 999_999_999, 1_700_000_000_123_456_789, -5])
def test_nanoseconds_round_trip_as_text(stamp):
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
        (read_tum, '1 0 0 0 0 0 0 0\n', 'line 1: expected a unit quaternion'),
        (read_tum, '# nothing\n', 'found none'),
        (read_kitti_poses, '1 0 0 0 0 1 0 0 0 0 1 0\n1 2 3\n', 'line 2: expected 12 values'),
        (read_kitti_poses, '1 0 0 0 0 1 0 0 0 0 1 x\n', 'line 1: expected numbers'),
        (read_kitti_poses, '1 0 -4e18 0 0 1 0 0 0 0 1 0\n', 'line 1: expected a rotation'),
        (read_kitti_poses, '1 0 0 1e30 0 1 0 0 0 0 1 0\n', 'line 1: expected a rotation'),
    ],
)
def test_bad_pose_files_are_reported_with_the_line(tmp_path, reader, text, expected):
    path = tmp_path / 'poses.txt'
    path.write_text(text)
    with pytest.raises(DatasetError, match=expected) as error:
        reader(path)
    assert str(path) in str(error.value)
