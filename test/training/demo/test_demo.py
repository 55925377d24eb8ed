"""The demo on a small drive: three processes, evaluated against ground truth."""

import json

import numpy as np
import pytest
from toy_drive import STEPS_PER_LAP, step

import demo
from lpr_ros.core.geometry.trajectory import Trajectory
from lpr_ros.core.recordings.open import open_recording
from lpr_training.datasets.packed_scans import write_packed
from lpr_training.demo import outcome, run
from lpr_training.demo.drives import DemoDrive

STEPS = STEPS_PER_LAP + 10


@pytest.fixture
def small_drive(tmp_path):
    steps = [step(index) for index in range(STEPS)]
    stamps = np.array([s.stamp_ns for s in steps])
    poses = np.stack([s.T_odom_sensor for s in steps])
    path = tmp_path / 'scans_small.npz'
    write_packed(path, [s.points for s in steps], stamps, poses)
    parameters = {'database.exclude_s': 3.0, 'database.exclude_m': 20.0}
    return DemoDrive('small', path, Trajectory(stamps, poses), STEPS, parameters, rate=2.0)


def test_write_packed_can_be_opened_as_a_recording(small_drive):
    source = open_recording(small_drive.path)
    assert len(source) == STEPS
    for index in (0, STEPS - 1):
        assert np.allclose(source.points(index), step(index).points, atol=0.0051)
        assert np.allclose(source.T_odom_sensor[index], step(index).T_odom_sensor)


def test_small_drive_is_played_evaluated_and_reported(small_drive, tmp_path, monkeypatch):
    for name in ('ROS_DOMAIN_ID', 'ROS_AUTOMATIC_DISCOVERY_RANGE', 'ROS_LOCALHOST_ONLY'):
        monkeypatch.setenv(name, '')  # restores the environment that the demo changes
        monkeypatch.delenv(name)
    played = run.play(small_drive, tmp_path)
    evaluated = outcome.evaluate_demo(small_drive, played)
    outcome.write_outcome(tmp_path, evaluated)
    summary = json.loads((tmp_path / 'summary.json').read_text())
    assert summary['scans'] > STEPS // 2
    assert summary['loops_wrong'] == 0
    assert summary['loops_right'] > 0
    assert summary['ate_corrected_m'] < 0.2
    assert summary['p95_ms'] > 0.0
    assert 'loops correct / wrong' in evaluated.table()
    assert (tmp_path / 'report.html').stat().st_size > 10_000
    assert (tmp_path / 'report.png').read_bytes().startswith(b'\x89PNG')


def test_missing_real_scans_are_reported(tmp_path, capsys):
    assert demo.main(['--real', '--data', str(tmp_path), '--out', str(tmp_path / 'out')]) == 1
    assert 'scans_balm.npz' in capsys.readouterr().err
