"""convert.py: keyframes and submaps, interruption, kill, bad messages and options."""

import os
from pathlib import Path
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from toy_recordings import (
    MESSAGES,
    SHARED_DATA,
    assert_same_places,
    bad_rows,
    make_scans,
    write_messages,
)

from convert import main
from lpr_ros.core.errors import DatasetError
from lpr_training.datasets.bag import BagDataset
from lpr_training.datasets.bag_writer import write_bag
from lpr_training.datasets.base import RecordedScan
from lpr_training.datasets.convert import convert
from lpr_training.datasets.places import PlacesDataset, cloud_path, write_places
from lpr_training.datasets.registry import make_dataset

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def bag(tmp_path):
    write_bag(tmp_path / 'drive', make_scans(12))
    return tmp_path / 'drive'


def files(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob('*') if p.is_file()}


def test_convert_writes_every_keyframe(bag, tmp_path, capsys):
    out = tmp_path / 'dataset'
    assert main([str(bag), '--out', str(out), '--distance', '0.01']) == 0
    assert 'drive: 12 places' in capsys.readouterr().out
    assert_same_places(make_dataset('places', out), make_scans(12), atol=1e-9)


def test_convert_writes_submaps(bag, tmp_path):
    assert main([str(bag), '--out', str(tmp_path / 'a'), '--distance', '3']) == 0
    options = ['--distance', '3', '--submap', '8', '--voxel', '0.2']
    assert main([str(bag), '--out', str(tmp_path / 'b'), *options]) == 0
    scans, submaps = PlacesDataset(tmp_path / 'a'), PlacesDataset(tmp_path / 'b')
    assert len(scans) == len(submaps) < 12
    assert len(submaps[-1].points) > 2 * len(scans[-1].points)


def test_convert_writes_one_run_per_bag(tmp_path):
    for name in ('monday', 'tuesday'):
        write_bag(tmp_path / name, make_scans(4))
    bags = [str(tmp_path / name) for name in ('monday', 'tuesday')]
    assert main([*bags, '--out', str(tmp_path / 'out'), '--distance', '1']) == 0
    assert set(PlacesDataset(tmp_path / 'out').runs) == {'monday', 'tuesday'}
    assert main([bags[0], bags[0], '--out', str(tmp_path / 'out')]) == 1


def test_an_interrupted_conversion_resumes_with_the_same_result(bag, tmp_path, capsys):
    settings = {'bag': 'drive'}

    def stop_after(count):
        def progress(items, total):
            for i in items:
                if i == count:
                    raise KeyboardInterrupt
                yield i

        return progress

    complete, resumed = tmp_path / 'complete', tmp_path / 'resumed'
    dataset = BagDataset(bag)
    convert(dataset, complete, 'drive', settings)
    with pytest.raises(KeyboardInterrupt):
        convert(dataset, resumed, 'drive', settings, progress=stop_after(2))
    assert not (resumed / 'drive/places.csv').exists()
    assert len(list((resumed / 'drive/clouds').iterdir())) == 2
    done = convert(dataset, resumed, 'drive', settings)
    assert done.written == done.places - 2
    assert files(resumed) == files(complete)


def test_a_killed_conversion_leaves_no_partial_clouds(tmp_path):
    write_bag(tmp_path / 'drive', make_scans(50, points=20_000))
    out = tmp_path / 'out'
    command = [
        sys.executable,
        str(ROOT / 'training/convert.py'),
        str(tmp_path / 'drive'),
        '--out',
        str(out),
        '--distance',
        '0.01',
    ]
    environment = {**os.environ, 'PYTHONPATH': str(ROOT)}
    process = subprocess.Popen(
        command, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while len(list(out.glob('drive/clouds/*.npy'))) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    clouds = list(out.glob('drive/clouds/*.npy'))
    assert len(clouds) >= 3
    assert all(np.load(path).shape == (20_000, 3) for path in clouds)
    assert main([*command[2:]]) == 0
    assert_same_places(PlacesDataset(out), make_scans(50, points=20_000), atol=1e-9)
    assert not list(out.rglob('*.partial'))


def test_a_finished_conversion_is_not_repeated(bag, tmp_path, capsys):
    arguments = [str(bag), '--out', str(tmp_path / 'out')]
    assert main(arguments) == 0
    before = files(tmp_path / 'out')
    assert main(arguments) == 0
    assert 'already converted' in capsys.readouterr().out
    assert files(tmp_path / 'out') == before
    assert main([*arguments, '--distance', '5']) == 1
    assert 'converted with other settings (keyframes' in capsys.readouterr().err


def test_ambiguous_topics_are_listed(tmp_path, capsys):
    scans = list(make_scans(3))
    rows = [('/front', s.stamp_ns, MESSAGES.cloud(s)) for s in scans]
    rows += [('/rear', s.stamp_ns, MESSAGES.cloud(s)) for s in scans]
    rows += [
        ('/odom', s.stamp_ns, MESSAGES.odometry(s.stamp_ns, 'odom', s.T_odom_sensor))
        for s in scans
    ]
    path = write_messages(tmp_path / 'drive', rows)
    arguments = [str(path), '--out', str(tmp_path / 'out'), '--distance', '0.01']
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert 'choose one of the PointCloud2 topics: /front' in error
    assert '/rear (sensor_msgs/msg/PointCloud2, 3 messages)' in error
    assert main([*arguments, '--points', '/rear']) == 0
    assert len(PlacesDataset(tmp_path / 'out')) == 3


def test_extrinsic_transforms_the_poses(bag, tmp_path):
    extrinsic = ['--extrinsic', '0', '0', '2', '0', '0', '0', '1']
    arguments = [str(bag), '--distance', '0.01', *extrinsic]
    assert main([*arguments, '--out', str(tmp_path / 'out')]) == 0
    for place, scan in zip(PlacesDataset(tmp_path / 'out'), make_scans(12), strict=True):
        expected = scan.T_world_sensor @ [0.0, 0.0, 2.0, 1.0]
        np.testing.assert_allclose(place.T_world_sensor[:3, 3], expected[:3], atol=1e-9)


@pytest.mark.parametrize(
    ('options', 'expected'),
    [
        (['--extrinsic', '0', '0', '0', '0', '0', '0', '0'], 'expected a unit quaternion'),
        (['--distance', '0'], 'distance_m, angle_deg or interval_s above 0'),
        (['--distance', '-1'], 'not within [0.0, inf]'),
        (['--odometry', '/points'], 'expected /points to be one of the odometry topics'),
        (['--truth', '/points'], 'expected /points to be a pose topic'),
        (['--poses', 'absent.txt'], 'absent.txt: expected a TUM or KITTI pose file'),
    ],
)
def test_invalid_options_are_rejected(bag, tmp_path, capsys, options, expected):
    assert main([str(bag), '--out', str(tmp_path / 'out'), *options]) == 1
    assert expected in capsys.readouterr().err
    assert not (tmp_path / 'out').exists()


def test_bad_messages_are_errors_or_skipped(tmp_path, capsys):
    rows = bad_rows() + [
        ('/odom', s.stamp_ns, MESSAGES.odometry(s.stamp_ns, 'odom', s.T_odom_sensor))
        for s in make_scans(5)
    ]
    path = write_messages(tmp_path / 'drive', rows)
    arguments = [str(path), '--out', str(tmp_path / 'out'), '--distance', '0.01']
    assert main(arguments) == 1
    assert 'message 1 of /points: expected fields x, y and z' in capsys.readouterr().err
    assert main([*arguments, '--skip-bad']) == 0
    output = capsys.readouterr().out
    assert 'skipped 2 unreadable messages' in output
    assert 'message 1 of /points' in output
    assert 'message 3 of /points' in output
    assert len(PlacesDataset(tmp_path / 'out')) == 3


def test_a_bag_without_clouds_or_a_missing_bag_is_rejected(tmp_path, capsys):
    rows = [('/odom', 1, MESSAGES.odometry(0, 'odom', np.eye(4)))]
    path = write_messages(tmp_path / 'drive', rows)
    assert main([str(path), '--out', str(tmp_path / 'out')]) == 1
    assert 'no PointCloud2 topic; the bag has /odom' in capsys.readouterr().err
    assert main([str(tmp_path / 'nothing'), '--out', str(tmp_path / 'out')]) == 1
    assert 'nothing: expected a rosbag2 folder' in capsys.readouterr().err


def test_places_round_trip_and_damaged_clouds(tmp_path):
    write_places(tmp_path, 'run', make_scans(3))
    dataset = PlacesDataset(tmp_path)
    assert_same_places(dataset, make_scans(3), atol=1e-12)
    path = cloud_path(tmp_path, 'run', int(dataset.stamps_ns[1]))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DatasetError, match=rf'{path.name}: expected a .npy file'):
        dataset[1]
    np.save(path, np.zeros((4, 2)))
    with pytest.raises(DatasetError, match=r'expected float32 \(N, 3\), got float64 \(4, 2\)'):
        dataset[1]
    (tmp_path / 'empty').mkdir()
    with pytest.raises(DatasetError, match=r'/<run>/places.csv .*found nothing in'):
        PlacesDataset(tmp_path / 'empty')


def test_converted_submaps_of_a_real_drive_are_consistent(tmp_path):
    """Real scans written as a bag and converted; submaps contain the walls of their scans."""
    if not SHARED_DATA.exists():
        pytest.skip(f'{SHARED_DATA} not found')
    real = make_dataset('scans', SHARED_DATA, runs=['nuscenes_0001'])

    def recorded():
        for i in range(60):
            place = real[i]
            T, zeros = place.T_world_sensor, np.zeros(len(place.points), np.float32)
            ring = zeros.astype(np.uint16)
            yield RecordedScan(place.points, zeros, ring, zeros, place.stamp_ns, T, T)

    write_bag(tmp_path / 'nuscenes', recorded())
    arguments = [str(tmp_path / 'nuscenes'), '--out', str(tmp_path / 'out'), '--submap', '10']
    assert main(arguments) == 0
    dataset = PlacesDataset(tmp_path / 'out')
    steps = np.linalg.norm(np.diff(dataset.positions, axis=0), axis=1)
    assert (steps >= 2.0).all()
    assert (steps < 3.5).all()
    # Static walls of a scan are part of its submap.
    submap = dataset[-1]
    index = list(real.stamps_ns).index(submap.stamp_ns)
    own = {tuple(c) for c in np.floor(real[index].points / 0.3).astype(int)}
    merged = {tuple(c) for c in np.floor(submap.points / 0.3).astype(int)}
    assert len(own & merged) > 0.9 * len(own)
    assert len(merged) > 1.5 * len(own)
