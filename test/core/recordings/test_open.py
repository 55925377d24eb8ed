"""open_recording: the same drive reads the same from every format."""

from dataclasses import replace
import os
import re

import numpy as np
import pytest
from toy_recordings import MESSAGES, START_NS, make_scans, write_messages

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.geometry.se3 import pose_from_euler
from lpr_ros.core.geometry.trajectory import Trajectory
from lpr_ros.core.io.pose_files import write_tum
from lpr_ros.core.recordings.base import (
    RecordingOptions,
    known,
    odometry_at,
    odometry_of_scans,
)
from lpr_ros.core.recordings.open import open_recording
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
def recordings(tmp_path, scans):
    stamps = np.array([s.stamp_ns for s in scans])
    odometry, truth = tmp_path / 'odometry.tum', tmp_path / 'truth.tum'
    write_tum(odometry, Trajectory(stamps, np.stack([s.T_odom_sensor for s in scans])))
    write_tum(truth, Trajectory(stamps, np.stack([s.T_world_sensor for s in scans])))
    write_bag(tmp_path / 'drive', scans)
    write_kitti(tmp_path / 'kitti', '00', scans)
    packed = write_packed(tmp_path / 'scans_drive.npz', scans)
    return {
        'bag': open_recording(tmp_path / 'drive'),
        'file': open_recording(next((tmp_path / 'drive').glob('*.mcap'))),
        'kitti': open_recording(tmp_path / 'kitti/sequences/00', RecordingOptions(poses=odometry)),
        'packed': open_recording(packed, RecordingOptions(truth=str(truth))),
    }


@pytest.mark.parametrize('kind', ['bag', 'file', 'kitti', 'packed'])
def test_every_format_gives_the_same_drive(recordings, scans, kind):
    source = recordings[kind]
    assert len(source) == COUNT
    assert source.start_ns == START_NS
    assert source.duration_s == pytest.approx(0.5)
    assert source.has_odometry
    assert source.has_truth
    for read, true in zip(source, scans, strict=True):
        assert read.scan.stamp_ns == true.stamp_ns
        np.testing.assert_allclose(read.scan.points, true.points, atol=0.006)
        np.testing.assert_allclose(read.scan.T_odom_sensor, true.T_odom_sensor, atol=1e-6)
        np.testing.assert_allclose(read.T_world_sensor, true.T_world_sensor, atol=1e-6)
    np.testing.assert_array_equal(source.points(3), list(source)[3].scan.points)
    assert [s.index for s in source.scans(first=4)] == [4, 5]


JUMP = pose_from_euler([500.0, 0.0, 0.0], [0.0, 0.0, 1.0])


@pytest.mark.parametrize('kind', ['bag', 'kitti', 'packed'])
def test_every_format_numbers_the_segments_between_odometry_jumps(tmp_path, scans, kind):
    """Also where the scans around the jump are not read."""
    jumped = [
        replace(s, T_odom_sensor=JUMP @ s.T_odom_sensor) if i >= 3 else s
        for i, s in enumerate(scans)
    ]
    stamps = np.array([s.stamp_ns for s in jumped])
    poses = tmp_path / 'odometry.tum'
    write_tum(poses, Trajectory(stamps, np.stack([s.T_odom_sensor for s in jumped])))
    write_bag(tmp_path / 'drive', jumped)
    write_kitti(tmp_path / 'kitti', '00', jumped)
    path, options = {
        'bag': (tmp_path / 'drive', RecordingOptions()),
        'kitti': (tmp_path / 'kitti/sequences/00', RecordingOptions(poses=poses)),
        'packed': (write_packed(tmp_path / 'scans_drive.npz', jumped), RecordingOptions()),
    }[kind]
    read = [recorded.scan for recorded in open_recording(path, options)]
    assert [scan.odometry_segment for scan in read] == [0] * 3 + [1] * 3
    reason = rf'odometry jump of \d+\.\d m between {stamps[2]} ns and {stamps[3]} ns'
    assert [bool(re.match(reason, scan.segment_reason)) for scan in read] == [False] * 3 + [
        True
    ] * 3
    far = open_recording(path, replace(options, max_step_m=1000.0))
    assert {recorded.scan.odometry_segment for recorded in far} == {0}


def test_odometry_is_not_interpolated_across_a_jump():
    """Odometry at 10 Hz, scans at 40 Hz: those between two messages of one segment have poses."""
    stamps = np.arange(10) * 100_000_000
    T = pose_from_euler(np.linspace([0.0] * 3, [9.0, 0.0, 0.0], 10), np.zeros((10, 3)))
    T[5:] = JUMP @ T[5:]
    wanted = np.arange(0, 900_000_001, 25_000_000)
    odometry = odometry_at(Trajectory(stamps, T), wanted, max_step_m=20.0)
    in_jump = (wanted > stamps[4]) & (wanted < stamps[5])
    np.testing.assert_array_equal(known(odometry.T), ~in_jump)
    numbers = np.array([segment.number for segment in odometry.segments])
    np.testing.assert_array_equal(numbers[~in_jump], (wanted >= stamps[5])[~in_jump])


def test_a_session_continues_where_packed_scans_are_sparse():
    """Every thirtieth scan of a drive at 8 m/s and 10 Hz is 24 m from the one before."""
    stamps = np.arange(40) * 3_000_000_000
    T = pose_from_euler(np.linspace([0.0] * 3, [24.0 * 39, 0.0, 0.0], 40), np.zeros((40, 3)))
    odometry = odometry_of_scans(T, stamps, max_step_m=20.0)
    assert {segment.number for segment in odometry.segments} == {0}


def test_kitti_poses_are_ground_truth_and_default_odometry(tmp_path, scans):
    write_kitti(tmp_path, '00', scans)
    source = open_recording(tmp_path / 'sequences/00')
    np.testing.assert_array_equal(source.T_odom_sensor, source.T_world_sensor)
    source = open_recording(tmp_path / 'sequences/00/velodyne')
    assert (len(source), source.has_truth) == (COUNT, True)
    (tmp_path / 'poses/00.txt').rename(tmp_path / 'sequences/00/poses.txt')
    source = open_recording(tmp_path / 'sequences/00')
    assert (source.has_odometry, source.has_truth) == (True, False)


def test_bag_without_odometry_is_read(tmp_path, scans):
    rows = [('/points', s.stamp_ns, MESSAGES.cloud(s)) for s in scans]
    source = open_recording(write_messages(tmp_path / 'bag', rows))
    assert (source.has_odometry, source.has_truth) == (False, False)
    assert all(s.scan.T_odom_sensor is None for s in source)


def test_unreadable_scan_goes_to_on_bad(tmp_path, scans):
    write_kitti(tmp_path, '00', scans)
    (tmp_path / 'sequences/00/velodyne/000002.bin').write_bytes(b'123')
    source = open_recording(tmp_path / 'sequences/00')
    bad = []
    assert [s.index for s in source.scans(bad.append)] == [0, 1, 3, 4, 5]
    assert '000002.bin' in str(bad[0])
    with pytest.raises(DatasetError, match=r'000002\.bin'):
        list(source)


def test_open_recording_refuses_what_is_not_a_recording(tmp_path, scans):
    with pytest.raises(DatasetError, match=r'no such file or folder; .*a KITTI folder .*, a bag'):
        open_recording(tmp_path / 'nothing')
    packed = write_packed(tmp_path / 'scans_x.npz', scans)
    with pytest.raises(DatasetError, match="has no topics, got '/points'"):
        open_recording(packed, RecordingOptions(points='/points'))
    np.savez(tmp_path / 'scans_bad.npz', points_cm=[], offsets=[0], stamps_ns=[1, 2],
             T_odom_sensor=np.eye(4)[None])  # fmt: skip
    with pytest.raises(DatasetError, match='expected 2 poses'):
        open_recording(tmp_path / 'scans_bad.npz')


@pytest.mark.parametrize('kind', ['bag', 'kitti', 'packed'])
@pytest.mark.parametrize('raw', [b'drive_\xff\xfe', b'two\nlines'])
def test_names_of_recordings_are_printable_utf8(tmp_path, scans, kind, raw):
    name = os.fsdecode(raw)
    if kind == 'bag':
        write_bag(tmp_path / 'drive', scans)
        (tmp_path / 'drive').rename(tmp_path / name)
        recording = open_recording(tmp_path / name)
    elif kind == 'kitti':
        write_kitti(tmp_path / name, '00', scans)
        recording = open_recording(tmp_path / name / 'sequences/00/velodyne')
    else:
        recording = open_recording(write_packed(tmp_path / f'scans_{name}.npz', scans))
    for text in (recording.name, *recording.about.values()):
        text.encode()  # raises on surrogates
        assert text.isprintable()
    assert recording.name.startswith({'kitti': '00'}.get(kind, name[:3]))
