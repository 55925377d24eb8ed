"""Submaps from raw RobotCar recordings."""

import numpy as np
import pytest
from toy_oxford_raw import CONFIG, RUN, START_US, write_raw_run

from lpr_ros.core.errors import CloudError, DatasetError
from lpr_training.datasets.oxford_raw import OxfordRawDataset, SubmapConfig, plan_submaps, read_ins
from lpr_training.datasets.oxford_submaps import POINTS, normalize, remove_ground, voxel_means
from lpr_training.datasets.registry import make_dataset


@pytest.fixture(scope='module')
def root(tmp_path_factory):
    return write_raw_run(tmp_path_factory.mktemp('robotcar'))


def test_submaps_cover_20_m_every_10_or_20(root):
    # 196 scans over 48.75 m remain
    training = OxfordRawDataset(root, part='training', config=CONFIG)
    evaluation = make_dataset('oxford_raw', root, config=CONFIG)
    assert [len(training), len(evaluation)] == [3, 2]
    np.testing.assert_allclose(np.diff(training.positions[:, 1]), 10.0, atol=1e-6)
    np.testing.assert_allclose(np.diff(evaluation.positions[:, 1]), 20.0, atol=1e-6)
    # The middle of the first 20 m; x is easting, y is northing.
    np.testing.assert_allclose(evaluation.positions[0], [620000.0, 5735010.5, 120.0], atol=1e-5)
    assert evaluation.names[0] == str(START_US + 2 * 20_000)


def test_scans_are_gathered_along_the_drive(root):
    points = OxfordRawDataset(root, config=CONFIG).gather(0)  # forward, right, down of the INS
    # The laser is 2.5 m ahead of the INS; the last scan is 20 m further.
    np.testing.assert_allclose([points[:, 0].min(), points[:, 0].max()], [2.5, 22.5], atol=1e-6)
    np.testing.assert_allclose(points[:, 1].max(), 9.0, atol=1e-6)
    np.testing.assert_allclose(
        points[:, 2].max(), 0.9, atol=1e-6
    )  # the ground: 1.9 m below the laser, which is 1 m above the INS


def test_clouds_have_the_format_of_the_benchmark(root):
    dataset = OxfordRawDataset(root, config=CONFIG)
    points = dataset[0].points
    assert points.shape == (POINTS, 3)
    assert points.dtype == np.float32
    assert np.abs(points).max() <= 1.0
    np.testing.assert_array_equal(points, OxfordRawDataset(root, config=CONFIG)[0].points)
    # Coordinates are negated: the wall on the right is at negative y, the roof is high.
    roof = points[:, 1] > 0.2
    assert 0.5 < (points[:, 1] < 0).mean() < 1.0
    assert points[roof, 2].min() > points[~roof, 2].mean()


def test_ground_is_removed(root):
    gathered = OxfordRawDataset(root, config=CONFIG).gather(0)
    kept = remove_ground(gathered, np.random.default_rng(0))
    is_ground = np.abs(gathered[:, 2] - 0.9) < 1e-6
    assert is_ground.sum() > 1000
    assert not (np.abs(kept[:, 2] - 0.9) < 0.3).any()
    wall = np.abs(gathered[:, 1] - 9.0) < 1e-6
    assert (np.abs(kept[:, 1] - 9.0) < 1e-6).sum() > 0.8 * wall.sum()


def test_a_facade_is_not_ground():
    rng = np.random.default_rng(0)
    wall = np.column_stack([rng.uniform(0, 20, 5000), np.zeros(5000), rng.uniform(0, 20, 5000)])
    floor = np.column_stack([rng.uniform(0, 20, 500), rng.uniform(0, 20, 500), np.zeros(500)])
    kept = remove_ground(np.concatenate([wall, floor]), rng)
    assert len(kept) > 4500


def test_normalized_clouds_have_the_published_scale():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(30_000, 3)) * [8.0, 5.0, 2.0] + [100.0, 50.0, 3.0]
    cloud, center = normalize(points, rng)
    assert cloud.shape == (POINTS, 3)
    assert np.abs(cloud).max() <= 1.0
    assert np.linalg.norm(center - [100.0, 50.0, 3.0]) < 1.0
    assert 0.40 < np.linalg.norm(cloud, axis=1).mean() <= 0.5  # points outside were replaced


def test_normalize_rejects_too_few_or_equal_points():
    rng = np.random.default_rng(0)
    with pytest.raises(CloudError, match='expected at least 4096 points, got 100'):
        normalize(rng.normal(size=(100, 3)), rng)
    with pytest.raises(CloudError, match='expected distinct points'):
        normalize(np.ones((5000, 3)), rng)


def test_voxel_means_average_each_voxel():
    points = np.array([[0.1, 0.1, 0.1], [0.3, 0.1, 0.1], [5.0, 0.1, 0.1]])
    np.testing.assert_allclose(
        sorted(voxel_means(points, 1.0).tolist()), [[0.2, 0.1, 0.1], [5.0, 0.1, 0.1]]
    )


def test_scans_of_a_stationary_car_are_used_once():
    T = np.tile(np.eye(4), (100, 1, 1))
    T[:, 0, 3] = [*np.zeros(50), *np.linspace(0.5, 25.0, 50)]
    (window,) = plan_submaps(T, np.arange(100), 20.0, SubmapConfig())
    assert window[0] == 0
    assert window[1] == 50


def test_chunks_are_not_joined(tmp_path):
    root = write_raw_run(tmp_path)
    path = root / RUN / 'lms_front.timestamps'
    lines = path.read_text().splitlines()
    path.write_text('\n'.join(x if i < 100 else x[:-1] + '2' for i, x in enumerate(lines)))
    dataset = OxfordRawDataset(root, config=CONFIG)
    assert len(dataset) == 2
    assert dataset.positions[1, 1] - dataset.positions[0, 1] > 23.0


def test_missing_or_invalid_files_are_reported(tmp_path):
    with pytest.raises(DatasetError, match=r'/<run>/lms_front.timestamps, .*gps/ins.csv'):
        OxfordRawDataset(tmp_path)
    root = write_raw_run(tmp_path)
    dataset = OxfordRawDataset(root, config=CONFIG)
    scan = root / RUN / 'lms_front' / f'{START_US + 60_000}.bin'
    scan.write_bytes(scan.read_bytes()[:-4])
    with pytest.raises(DatasetError, match=rf'{scan.name}: expected rows of 3 float64'):
        dataset[0]
    (root / 'extrinsics/ins.txt').write_text('1 2 3')
    with pytest.raises(DatasetError, match=r'ins.txt: expected 6 numbers, got 3'):
        OxfordRawDataset(root, config=CONFIG)
    ins = root / RUN / 'gps/ins.csv'
    ins.write_text(ins.read_text().replace('5735000.250000', 'NaN'))
    with pytest.raises(DatasetError, match=r"line 4, column 'northing': .* got 'NaN'"):
        read_ins(ins)


def test_a_drive_without_a_submap_is_rejected(tmp_path):
    root = write_raw_run(tmp_path, scans=30)
    with pytest.raises(DatasetError, match=r'expected 20.0 m of trajectory, got 26 scans'):
        OxfordRawDataset(root, config=CONFIG)
