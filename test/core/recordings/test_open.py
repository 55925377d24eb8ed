"""Sources of scans: the same drive reads the same from every container."""

import numpy as np
import pytest
from recordings import START_NS, make_scans
from test_bags import MESSAGES, write_messages

from lpr_ros.core import resources
from lpr_ros.core.errors import CheckpointError, DatasetError
from lpr_ros.core.geometry import Trajectory
from lpr_ros.core.poses import write_tum
from lpr_ros.core.scan_sources import SourceOptions, open_source
from lpr_training.datasets.bag_writer import write_bag
from lpr_training.datasets.kitti import write_kitti

COUNT = 6


def write_packed(path, scans):
    points = [np.rint(s.points * 100).astype(np.int16) for s in scans]
    np.savez(
        path,
        points_cm=np.concatenate(points),
        offsets=np.cumsum([0, *map(len, points)]),
        stamps_ns=np.array([s.stamp_ns for s in scans]),
        T_odom_sensor=np.stack([s.T_odom_sensor for s in scans]),
    )
    return path


@pytest.fixture
def scans():
    return list(make_scans(COUNT))


@pytest.fixture
def sources(tmp_path, scans):
    stamps = np.array([s.stamp_ns for s in scans])
    odometry, truth = tmp_path / 'odometry.tum', tmp_path / 'truth.tum'
    write_tum(odometry, Trajectory(stamps, np.stack([s.T_odom_sensor for s in scans])))
    write_tum(truth, Trajectory(stamps, np.stack([s.T_world_sensor for s in scans])))
    write_bag(tmp_path / 'drive', scans)
    write_kitti(tmp_path / 'kitti', '00', scans)
    packed = write_packed(tmp_path / 'scans_drive.npz', scans)
    return {
        'bag': open_source(tmp_path / 'drive'),
        'file': open_source(next((tmp_path / 'drive').glob('*.mcap'))),
        'kitti': open_source(tmp_path / 'kitti/sequences/00', SourceOptions(poses=odometry)),
        'packed': open_source(packed, SourceOptions(truth=str(truth))),
    }


@pytest.mark.parametrize('kind', ['bag', 'file', 'kitti', 'packed'])
def test_every_container_gives_the_same_drive(sources, scans, kind):
    source = sources[kind]
    assert len(source) == COUNT
    assert source.start_ns == START_NS
    assert source.duration_s == pytest.approx(0.5)
    assert source.rate_hz == pytest.approx(10.0)
    assert source.has_odometry
    assert source.has_truth
    for read, true in zip(source, scans, strict=True):
        assert read.scan.stamp_ns == true.stamp_ns
        np.testing.assert_allclose(read.scan.points, true.points, atol=0.006)
        np.testing.assert_allclose(read.scan.T_odom_sensor, true.T_odom_sensor, atol=1e-6)
        np.testing.assert_allclose(read.T_world_sensor, true.T_world_sensor, atol=1e-6)
    np.testing.assert_array_equal(source.points(3), list(source)[3].scan.points)
    assert [s.index for s in source.scans(first=4)] == [4, 5]


def test_the_kitti_poses_are_truth_and_stand_in_for_odometry(tmp_path, scans):
    write_kitti(tmp_path, '00', scans)
    source = open_source(tmp_path / 'sequences/00')
    np.testing.assert_array_equal(source.T_odom_sensor, source.T_world_sensor)
    source = open_source(tmp_path / 'sequences/00/velodyne')
    assert (len(source), source.has_truth) == (COUNT, True)
    (tmp_path / 'poses/00.txt').rename(tmp_path / 'sequences/00/poses.txt')  # as SLAM leaves it
    source = open_source(tmp_path / 'sequences/00')
    assert (source.has_odometry, source.has_truth) == (True, False)


def test_scans_need_no_odometry(tmp_path, scans):
    rows = [('/points', s.stamp_ns, MESSAGES.cloud(s)) for s in scans]
    source = open_source(write_messages(tmp_path / 'bag', rows))
    assert (source.has_odometry, source.has_truth) == (False, False)
    assert all(s.scan.T_odom_sensor is None for s in source)


def test_an_unreadable_scan_goes_to_on_bad(tmp_path, scans):
    write_kitti(tmp_path, '00', scans)
    (tmp_path / 'sequences/00/velodyne/000002.bin').write_bytes(b'123')
    source = open_source(tmp_path / 'sequences/00')
    bad = []
    assert [s.index for s in source.scans(bad.append)] == [0, 1, 3, 4, 5]
    assert '000002.bin' in str(bad[0])
    with pytest.raises(DatasetError, match=r'000002\.bin'):
        list(source)


def test_what_is_no_drive_is_refused(tmp_path, scans):
    with pytest.raises(DatasetError, match=r'no such file or folder; expected a bag'):
        open_source(tmp_path / 'nothing')
    packed = write_packed(tmp_path / 'scans_x.npz', scans)
    with pytest.raises(DatasetError, match=r'has no topics: expected no .*/points'):
        open_source(packed, SourceOptions(points='/points'))
    np.savez(tmp_path / 'scans_bad.npz', points_cm=[], offsets=[0], stamps_ns=[1, 2],
             T_odom_sensor=np.eye(4)[None])  # fmt: skip
    with pytest.raises(DatasetError, match='expected 2 poses'):
        open_source(tmp_path / 'scans_bad.npz')


def test_weights_are_found_in_the_repository_and_below_share(tmp_path, monkeypatch):
    assert resources.default_weights().parent == resources.REPOSITORY / 'weights'
    monkeypatch.setattr(resources, 'REPOSITORY', tmp_path / 'site-packages')
    monkeypatch.setattr('sys.prefix', str(tmp_path / 'venv'))
    monkeypatch.delenv('AMENT_PREFIX_PATH', raising=False)
    with pytest.raises(CheckpointError, match='no weights ship here'):
        resources.default_weights()
    for prefix, name in (('venv', 'b'), ('venv', 'a'), ('workspace', 'c')):
        folder = tmp_path / prefix / 'share/lpr_ros/weights'
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f'{name}.safetensors').touch()
    assert resources.default_weights().stem == 'a'
    monkeypatch.setenv('AMENT_PREFIX_PATH', f'{tmp_path / "other"}:{tmp_path / "workspace"}')
    assert resources.default_weights().stem == 'c'
    assert resources.find_resource('weights', 'a.safetensors') is not None
    assert resources.find_resource('weights', 'd.safetensors') is None
