"""The simulated drive: a LiDAR that sees the ground and boxes, on two laps with drift."""

from pathlib import Path

import numpy as np
import pytest

from lpr_ros.core.recordings import demo
from lpr_ros.core.recordings.demo import DemoRecording
from lpr_ros.core.recordings.open import open_recording, recording_format


@pytest.fixture(scope='module')
def drive():
    return open_recording(Path('simulated_drive'))


def test_its_name_opens_it_unless_there_is_a_file_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert recording_format(Path('simulated_drive')) is DemoRecording
    (tmp_path / 'simulated_drive').mkdir()
    assert recording_format(Path('simulated_drive')) is not DemoRecording


def test_points_are_on_the_ground_or_on_boxes(drive):
    for index in (0, 150):
        T = drive.T_world_sensor[index]
        points = drive.points(index).astype(np.float64)
        world = points @ T[:3, :3].T + T[:3, 3]
        assert len(points) > 5000
        assert np.linalg.norm(points, axis=1).max() < demo.RANGE_M + 1.0
        outside = np.maximum(drive._low[:, None] - world, world - drive._high[:, None]).max(axis=2)
        to_boxes = np.abs(outside).min(axis=0)
        noise_m = 6.0 * demo.NOISE_M
        is_ground = np.abs(world[:, 2]) < noise_m
        assert (is_ground | (to_boxes < noise_m)).all()
        assert 0.05 < is_ground.mean() < 0.95
        assert (outside.min(axis=0) > -noise_m).all()  # never inside of a box


def test_boxes_are_not_transparent(drive):
    T = drive.T_world_sensor[0]
    points = drive.points(0)[::20].astype(np.float64)
    for fraction in np.linspace(0.05, 0.95, 60):
        world = fraction * points @ T[:3, :3].T + T[:3, 3]
        is_inside = (drive._low[:, None] < world) & (world < drive._high[:, None])
        assert not is_inside.all(axis=2).any()


def test_scans_are_the_same_each_time(drive):
    np.testing.assert_array_equal(
        drive.points(7), open_recording(Path('simulated_drive')).points(7)
    )


def test_the_second_lap_returns_to_the_first_and_odometry_drifts(drive):
    lap = len(drive) // 2
    there, again = drive.T_world_sensor[10, :3, 3], drive.T_world_sensor[10 + lap, :3, 3]
    assert np.linalg.norm(there - again) < 3.0
    T_world = np.linalg.inv(drive.T_world_sensor[0]) @ drive.T_world_sensor
    drift_m = np.linalg.norm((T_world - drive.T_odom_sensor)[:, :3, 3], axis=1)
    assert drift_m[0] == 0.0
    assert 0.5 < drift_m.max() < 10.0
    assert np.diff(drive.stamps_ns).min() == drive.stamps_ns[1] - drive.stamps_ns[0] > 0
