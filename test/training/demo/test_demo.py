"""The demo's parts on a small drive: three processes, judged by the truth."""

import json

import numpy as np
import pytest
from toy_drive import STEPS_PER_LAP, step

import demo
from lpr_ros.core.geometry import Trajectory, pose_from_euler
from lpr_ros.core.records import LoopClosure
from lpr_ros.core.scan_sources import open_source
from lpr_training.benchmarks import load_lidars
from lpr_training.demo import outcome, run
from lpr_training.demo.drives import DemoDrive, write_packed

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


def test_packed_scans_are_read_back(small_drive):
    source = open_source(small_drive.path)
    assert len(source) == STEPS
    for index in (0, STEPS - 1):
        assert np.allclose(source.points(index), step(index).points, atol=0.0051)
        assert np.allclose(source.T_odom_sensor[index], step(index).T_odom_sensor)


def test_small_drive_is_played_judged_and_reported(small_drive, tmp_path, monkeypatch):
    for name in ('ROS_DOMAIN_ID', 'ROS_AUTOMATIC_DISCOVERY_RANGE', 'ROS_LOCALHOST_ONLY'):
        monkeypatch.setenv(name, '')  # so that what the demo sets is taken back
        monkeypatch.delenv(name)
    played = run.play(small_drive, tmp_path)
    judged = outcome.judge_played(small_drive, played)
    outcome.write_outcome(tmp_path, judged)
    summary = json.loads((tmp_path / 'summary.json').read_text())
    assert summary['scans'] > STEPS // 2
    assert summary['loops_wrong'] == 0
    assert summary['loops_right'] > 0
    assert summary['ate_corrected_m'] < 0.2
    assert summary['p95_ms'] > 0.0
    assert 'loops right / wrong' in judged.table()
    assert (tmp_path / 'report.html').stat().st_size > 10_000
    assert (tmp_path / 'report.png').read_bytes().startswith(b'\x89PNG')


def test_missing_real_scans_are_named(tmp_path, capsys):
    assert demo.main(['--real', '--data', str(tmp_path), '--out', str(tmp_path / 'out')]) == 1
    assert 'scans_balm.npz' in capsys.readouterr().err


def test_loops_under_load_are_judged_by_where_their_scans_were():
    """A lap of four; keyframes of its scans 0, 1, 2 and, a lap on, 5."""
    lap = [load_lidars.LapScan(None, pose_from_euler([x, 0.0, 0.0], [0.0, 0.0, 0.1 * x]), 0)
           for x in (0.0, 3.0, 6.0, 9.0)]  # fmt: skip
    stamps_ns = [load_lidars.START_NS + n * load_lidars.PERIOD_NS for n in (0, 1, 2, 5)]

    def loop(query_id, match_id, T_match_query):
        return LoopClosure(query_id, match_id, T_match_query, np.eye(6), 0.9, 99, None)

    right, shifted = loop(3, 1, np.eye(4)), loop(3, 1, pose_from_euler([2.0, 0, 0], [0, 0, 0]))
    other_place = loop(3, 2, np.eye(4))
    figures = load_lidars._loop_figures([right, shifted, other_place], lap, stamps_ns)
    assert figures == {'loops': 3, 'loops_wrong': 2}
