"""The metrics of the loop benchmark follow their definitions."""

from itertools import pairwise

import numpy as np
import pytest
from toy_graphs import LAP, keyframe, laps, loop_closure

from lpr_ros.core.errors import BackendError
from lpr_ros.core.geometry.se3 import invert, pose_from_euler
from lpr_ros.core.offline.evaluation import RECALL_WINDOW_M
from lpr_ros.core.types import Scan
from lpr_training.benchmarks.loops import peers
from lpr_training.benchmarks.loops.metrics import (
    loop_metrics,
    recall_metrics,
    revisits,
    trajectory_metrics,
)
from lpr_training.benchmarks.loops.recorded_drive import ODOMETRY, RecordedDrive
from lpr_training.simulator.drive.odometry import drifting

COUNT = 300  # keyframes 2 m apart, a lap and a half: the last 100 revisit the first 100
NO_POINTS = np.zeros((0, 3), np.float32)


@pytest.fixture
def drive(rng):
    T_true = laps(COUNT)
    T_odom = drifting(T_true, ODOMETRY, rng)
    scans = [Scan(NO_POINTS, i * 250_000_000, T) for i, T in enumerate(T_odom)]
    return RecordedDrive('laps', scans, T_true)


def true_loop(drive, query):
    T = drive.T_world_sensor
    return loop_closure(query - LAP, query, invert(T[query - LAP]) @ T[query])


def test_revisits_match_old_keyframes_and_never_recent_ones(drive):
    found = revisits(drive)
    later, older = np.nonzero(found)
    # Within 5 m: the same keyframe of the previous lap and two on either side.
    assert set((later - LAP - older).tolist()) == {-2, -1, 0, 1, 2}
    assert not found[: LAP - 2].any()
    assert found[LAP:].any(axis=1).all()


def test_loop_metrics_of_correct_loops_are_perfect(drive):
    loops = [true_loop(drive, i) for i in range(LAP, COUNT)]
    row = loop_metrics(drive, loops)
    assert (row['loops'], row['wrong'], row['precision'], row['recall']) == (100, 0, 1.0, 1.0)
    assert row['pose_error_p99_m'] < 1e-9
    assert row['nees_per_dim'] < 1e-9


def test_a_wrong_loop_lowers_precision_and_recalls_nothing(drive):
    right, wrong = true_loop(drive, LAP), true_loop(drive, LAP + 50)
    T_off = wrong.T_match_query @ pose_from_euler([1.1, 0.0, 0.0], [0.0, 0.0, 0.0])
    moved = loop_closure(wrong.match_id, wrong.query_id, T_off)
    row = loop_metrics(drive, [right, moved])
    assert (row['wrong'], row['precision']) == (1, 0.5)
    assert row['recall'] == loop_metrics(drive, [right])['recall']
    assert row['pose_error_p99_m'] > 1.0


def test_a_loop_recalls_keyframes_within_the_window_only(drive):
    found = np.zeros(COUNT, dtype=bool)
    found[LAP + 50] = True
    row = recall_metrics(drive, found)
    window = int(RECALL_WINDOW_M // 2.0)
    assert row['recall'] * row['revisits'] == pytest.approx(2 * window + 1)
    assert row['recall_each'] * row['revisits'] == pytest.approx(1)


def test_loop_metrics_without_loops_are_nan_precision_and_zero_recall(drive):
    row = loop_metrics(drive, [])
    assert np.isnan(row['precision'])
    assert row['recall'] == 0.0


def test_trajectory_metrics_improve_with_correct_loops(drive):
    keyframes = [keyframe(i, scan.T_odom_sensor) for i, scan in enumerate(drive.scans)]
    loops = [true_loop(drive, i) for i in range(LAP, COUNT, 5)]
    row = trajectory_metrics(drive, keyframes, loops)
    assert row['ate_corrected_m'] < 0.5 * row['ate_odometry_m']
    without_loops = trajectory_metrics(drive, keyframes, [])
    assert without_loops['ate_corrected_m'] == pytest.approx(without_loops['ate_odometry_m'])


def test_local_maps_overlap_by_one_scan_and_cover_the_drive(drive):
    parts = peers.local_maps(drive)
    assert len(parts) > 3
    assert parts[0][0] == 0
    assert parts[-1][-1] == COUNT - 1
    assert all(a[-1] == b[0] for a, b in pairwise(parts))


def test_scan_context_recalls_identical_clouds(drive, rng):
    clouds = [rng.uniform([-40, -40, -2], [40, 40, 6], (300, 3)) for _ in range(LAP)]
    scans = [
        Scan(clouds[i % LAP].astype(np.float32), s.stamp_ns, s.T_odom_sensor)
        for i, s in enumerate(drive.scans)
    ]
    same = RecordedDrive('laps', scans, drive.T_world_sensor)
    row = peers.peer_metrics('scan_context', same)
    assert (row['precision'], row['recall']) == (1.0, 1.0)


def test_an_unknown_peer_is_rejected(drive):
    with pytest.raises(BackendError, match='no_such_peer'):
        peers.peer_metrics('no_such_peer', drive)
