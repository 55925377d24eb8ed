"""KITTI odometry, bird's-eye counts and packed scans."""

import numpy as np
import pytest
from toy_recordings import SHARED_DATA, assert_same_places, make_scans

from lpr_ros.core.errors import DatasetError
from lpr_training.datasets.base import Subset
from lpr_training.datasets.kitti import KittiDataset, write_kitti
from lpr_training.datasets.kitti_bev import KittiBevDataset, lift
from lpr_training.datasets.packed_scans import ScansDataset
from lpr_training.datasets.registry import make_dataset


@pytest.fixture
def root(tmp_path):
    write_kitti(tmp_path / 'kitti', '00', make_scans(4))
    return tmp_path / 'kitti'


def test_written_sequence_reads_back(root):
    assert_same_places(KittiDataset(root), make_scans(4))
    dataset = make_dataset('kitti', root, sequences=['00'])
    assert dataset.runs == ('00',) * 4
    assert dataset.names[1] == '000001'


def test_scans_have_intensity_as_fourth_column(root):
    raw = np.fromfile(root / 'sequences/00/velodyne/000000.bin', np.float32).reshape(-1, 4)
    np.testing.assert_array_equal(raw[:, 3], next(make_scans(1)).intensity)


def test_real_scans_and_poses_have_lidar_axes(tmp_path):
    if not SHARED_DATA.exists():
        pytest.skip(f'{SHARED_DATA} not found')
    velodyne = tmp_path / 'sequences/00/velodyne'
    velodyne.mkdir(parents=True)
    for i in range(3):
        source = SHARED_DATA / f'kitti_full/00000{i}.bin'
        (velodyne / source.name).write_bytes(source.read_bytes())
    poses = (SHARED_DATA / 'kitti_poses/00.txt').read_text().splitlines()
    (tmp_path / 'poses').mkdir()
    (tmp_path / 'poses/00.txt').write_text('\n'.join([poses[0], poses[1], poses[100]]))
    dataset = KittiDataset(tmp_path)
    assert dataset[0].points.shape == (123397, 3)
    x, _, z = dataset.positions[2]
    assert x > 50.0  # forward is z of the camera and x of the LiDAR
    assert abs(z) < 5.0
    assert dataset.stamps_ns[2] == 200_000_000  # without times.txt: 10 Hz


@pytest.mark.parametrize(
    'numbers',
    [
        '2 0 0 0 0 1 0 0 0 0 1 0',
        '1e300 0 0 0 0 1 0 0 0 0 1 0',
        '1 0 0 inf 0 1 0 0 0 0 1 0',
        'nan 0 0 0 0 1 0 0 0 0 1 0',
    ],
)
def test_invalid_calibration_is_rejected(root, numbers):
    (root / 'sequences/00/calib.txt').write_text(f'Tr: {numbers}\n')
    with pytest.raises(DatasetError, match='line 1: expected a rotation'):
        KittiDataset(root)


def test_calibration_transforms_the_poses(root):
    """A rotation about the camera moves a LiDAR mounted ahead of it."""
    calib = root / 'sequences/00/calib.txt'
    calib.write_text('P0: 1 0 0 0 0 1 0 0 0 0 1 0\nTr: 0 -1 0 0 0 0 -1 0 1 0 0 -0.27\n')
    cos, sin = np.cos(0.5), np.sin(0.5)
    rotation = f'{cos} 0 {sin} 0 0 1 0 0 {-sin} 0 {cos} 0'  # about y of the camera
    (root / 'poses/00.txt').write_text('\n'.join(['1 0 0 0 0 1 0 0 0 0 1 0'] * 3 + [rotation]))
    T = KittiDataset(root).T_world_sensor[3]
    camera_in_lidar = np.array([0.27, 0.0, 0.0, 1.0])
    np.testing.assert_allclose(T @ camera_in_lidar, camera_in_lidar, atol=1e-12)
    assert not np.allclose(T[:3, 3], 0.0)


def test_a_pose_file_with_too_few_poses_is_rejected(root):
    path = root / 'poses/00.txt'
    path.write_text('\n'.join(path.read_text().splitlines()[:2]))
    with pytest.raises(DatasetError, match=r'00.txt: expected one pose for each of the 4 clouds'):
        KittiDataset(root)


def test_a_truncated_cloud_is_reported_with_its_file(root):
    path = root / 'sequences/00/velodyne/000002.bin'
    path.write_bytes(path.read_bytes()[:-5])
    dataset = KittiDataset(root)
    with pytest.raises(DatasetError, match=r'000002.bin: expected rows of 4 float32 = 16 bytes'):
        dataset[2]


def test_non_finite_points_are_removed(root):
    path = root / 'sequences/00/velodyne/000000.bin'
    raw = np.fromfile(path, np.float32).reshape(-1, 4)
    raw[3, 1] = np.nan
    raw.tofile(path)
    assert len(KittiDataset(root)[0].points) == len(raw) - 1


@pytest.mark.parametrize(
    ('name', 'text', 'expected'),
    [
        ('calib.txt', 'Tr: 1 2 3\n', 'line 1: expected 12 numbers after Tr'),
        ('calib.txt', 'P0: 1\n', 'expected a line "Tr: <12 numbers>"'),
        ('times.txt', '0.0\n0.1\n', 'expected 4 times, got 2'),
        ('times.txt', '0 1 2 soon\n', "expected a time, got 'soon'"),
    ],
)
def test_invalid_calibration_and_times_are_rejected(root, name, text, expected):
    (root / 'sequences/00' / name).write_text(text)
    with pytest.raises(DatasetError, match=expected):
        KittiDataset(root)


def test_missing_files_are_reported(tmp_path):
    (tmp_path / 'sequences').mkdir()
    (tmp_path / 'sequences' / 'readme').touch()
    with pytest.raises(
        DatasetError, match=r'expected .*/sequences/<seq>/velodyne/\*.bin .*found readme in'
    ):
        KittiDataset(tmp_path)
    with pytest.raises(DatasetError, match='unknown dataset'):
        make_dataset('kitty', tmp_path)


def test_an_interrupted_writer_leaves_no_files(tmp_path):
    def broken():
        yield from make_scans(2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_kitti(tmp_path, '00', broken())
    assert not [p for p in tmp_path.rglob('*') if p.is_file()]


def test_a_subset_reads_the_same_places(root):
    dataset = KittiDataset(root)
    subset = Subset(dataset, np.array([3, 1]))
    np.testing.assert_array_equal(subset[0].points, dataset[3].points)
    assert subset.names == ('000003', '000001')
    with pytest.raises(IndexError):
        dataset[4]


def test_lift_stacks_counts_and_points_forward():
    counts = np.zeros((151, 151), np.uint8)
    counts[0, 75], counts[75, 0] = 2, 1  # far ahead, and to the left
    expected = [[30.2, 0.2, 0.2], [30.2, 0.2, 0.6], [0.2, 30.2, 0.2]]
    np.testing.assert_allclose(lift(counts), np.float32(expected), rtol=1e-6)


def test_lift_keeps_every_count():
    counts = np.random.default_rng(0).integers(0, 11, size=(151, 151)).astype(np.uint8)
    points = lift(counts)
    assert len(points) == counts.sum()
    assert len(np.unique(points, axis=0)) == len(points)


def test_packed_scans_are_in_centimeters_and_ordered_by_run(tmp_path):
    rng = np.random.default_rng(0)
    for run, sizes in (('a', (3, 5)), ('b', (4,))):
        np.savez(
            tmp_path / f'scans_{run}.npz',
            points_cm=rng.integers(-9999, 9999, size=(sum(sizes), 3)).astype(np.int16),
            offsets=np.cumsum([0, *sizes]),
            stamps_ns=np.arange(len(sizes)) * 10**8,
            T_odom_sensor=np.tile(np.eye(4), (len(sizes), 1, 1)),
        )
    dataset = ScansDataset(tmp_path)
    assert [len(dataset[i].points) for i in range(3)] == [3, 5, 4]
    assert dataset.runs == ('a', 'a', 'b')
    raw = np.load(tmp_path / 'scans_a.npz')['points_cm'][3:]
    np.testing.assert_allclose(dataset[1].points, raw / 100.0, atol=1e-5)
    with pytest.raises(DatasetError, match=r'expected .*scans_c.npz, found scans_a.npz'):
        ScansDataset(tmp_path, runs=['c'])


def test_npz_files_of_another_format_are_rejected(tmp_path):
    np.savez(tmp_path / 'kitti_bev_00.npz', other=np.zeros(3))
    with pytest.raises(DatasetError, match=r"expected arrays \['counts'.*got \['other'\]"):
        KittiBevDataset(tmp_path)
    (tmp_path / 'kitti_bev_00.npz').write_bytes(b'PK nonsense')
    with pytest.raises(DatasetError, match='expected an npz file'):
        KittiBevDataset(tmp_path)


def test_real_packed_scans():
    if not SHARED_DATA.exists():
        pytest.skip(f'{SHARED_DATA} not found')
    dataset = ScansDataset(SHARED_DATA, runs=['nuscenes_0001'])
    assert len(dataset) == 194
    place = dataset[193]
    assert place.points.shape[1] == 3
    assert np.isfinite(place.points).all()
    traveled = np.linalg.norm(np.diff(dataset.positions, axis=0), axis=1).sum()
    assert 100.0 < traveled < 110.0


def test_real_birds_eye_counts_are_consistent_with_the_poses():
    """Rows point forward: content ahead comes nearer."""
    if not SHARED_DATA.exists():
        pytest.skip(f'{SHARED_DATA} not found')
    dataset = KittiBevDataset(SHARED_DATA, sequences=['05'])
    assert len(dataset) == 2761
    first, later = dataset[100], dataset[103]
    T = np.linalg.inv(first.T_world_sensor) @ later.T_world_sensor
    assert T[0, 3] > 1.0
    moved = later.points @ T[:3, :3].T + T[:3, 3]

    def overlap(a, b):
        cells = [set(map(tuple, np.floor(p[:, :2] / 0.8).astype(int))) for p in (a, b)]
        return len(cells[0] & cells[1]) / len(cells[0] | cells[1])

    backwards = later.points - (moved - later.points)
    assert overlap(first.points, moved) > overlap(first.points, later.points)
    assert overlap(first.points, moved) > overlap(first.points, backwards)
