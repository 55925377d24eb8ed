"""The figures of the loops benchmark mean what they say."""

from itertools import pairwise

import numpy as np
import pytest
from test_pose_graph import LAP, closure, keyframe, laps

from lpr_ros.core.errors import BackendError
from lpr_ros.core.geometry import invert, pose_from_euler
from lpr_ros.core.records import Scan
from lpr_training.benchmarks import loop_peers
from lpr_training.benchmarks.loop_drives import ODOMETRY, RecordedDrive, drive_names
from lpr_training.benchmarks.loop_figures import (
    WAY_M,
    loop_figures,
    recall_figures,
    revisits,
    trajectory_figures,
)
from lpr_training.simulator.odometry import drifting

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
    return closure(query - LAP, query, invert(T[query - LAP]) @ T[query])


def test_a_revisit_is_near_an_old_keyframe_never_a_recent_one(drive):
    found = revisits(drive)
    later, older = np.nonzero(found)
    # Within 5 m are the same keyframe of the lap before and two on either side of it.
    assert set((later - LAP - older).tolist()) == {-2, -1, 0, 1, 2}
    assert not found[: LAP - 2].any()
    assert found[LAP:].any(axis=1).all()


def test_right_loops_have_all_figures_right(drive):
    loops = [true_loop(drive, i) for i in range(LAP, COUNT)]
    row = loop_figures(drive, loops)
    assert (row['loops'], row['wrong'], row['precision'], row['recall']) == (100, 0, 1.0, 1.0)
    assert row['pose_error_p99_m'] < 1e-9
    assert row['nees_per_dim'] < 1e-9


def test_a_wrong_loop_costs_precision_and_recalls_nothing(drive):
    right, wrong = true_loop(drive, LAP), true_loop(drive, LAP + 50)
    T_off = wrong.T_match_query @ pose_from_euler([1.1, 0.0, 0.0], [0.0, 0.0, 0.0])
    moved = closure(wrong.match_id, wrong.query_id, T_off)
    row = loop_figures(drive, [right, moved])
    assert (row['wrong'], row['precision']) == (1, 0.5)
    assert row['recall'] == loop_figures(drive, [right])['recall']
    assert row['pose_error_p99_m'] > 1.0


def test_a_loop_recalls_what_is_near_it_on_the_way_and_no_more(drive):
    found = np.zeros(COUNT, dtype=bool)
    found[LAP + 50] = True
    row = recall_figures(drive, found)
    reach = int(WAY_M // 2.0)
    assert row['recall'] * row['revisits'] == pytest.approx(2 * reach + 1)
    assert row['recall_each'] * row['revisits'] == pytest.approx(1)


def test_a_drive_without_loops_has_no_precision_and_no_recall(drive):
    row = loop_figures(drive, [])
    assert np.isnan(row['precision'])
    assert row['recall'] == 0.0


def test_loops_bring_the_trajectory_to_the_truth(drive):
    keyframes = [keyframe(i, scan.T_odom_sensor) for i, scan in enumerate(drive.scans)]
    loops = [true_loop(drive, i) for i in range(LAP, COUNT, 5)]
    row = trajectory_figures(drive, keyframes, loops)
    assert row['ate_corrected_m'] < 0.5 * row['ate_odometry_m']
    alone = trajectory_figures(drive, keyframes, [])
    assert alone['ate_corrected_m'] == pytest.approx(alone['ate_odometry_m'])


def test_local_maps_overlap_by_one_scan_and_cover_the_drive(drive):
    parts = loop_peers.local_maps(drive)
    assert len(parts) > 3
    assert parts[0][0] == 0
    assert parts[-1][-1] == COUNT - 1
    assert all(a[-1] == b[0] for a, b in pairwise(parts))


def test_scan_context_finds_the_same_cloud_again(drive, rng):
    clouds = [rng.uniform([-40, -40, -2], [40, 40, 6], (300, 3)) for _ in range(LAP)]
    scans = [
        Scan(clouds[i % LAP].astype(np.float32), s.stamp_ns, s.T_odom_sensor)
        for i, s in enumerate(drive.scans)
    ]
    same = RecordedDrive('laps', scans, drive.T_world_sensor)
    row = loop_peers.peer_figures('scan_context', same)
    assert (row['precision'], row['recall']) == (1.0, 1.0)


def test_an_unknown_peer_is_an_error(drive):
    with pytest.raises(BackendError, match='no_such_peer'):
        loop_peers.peer_figures('no_such_peer', drive)


def test_drives_are_of_every_world_and_sensor():
    names = drive_names()
    assert len(names) == len(set(names)) == 11
    assert {'city hdl64', 'forest vlp16', 'car_park hdl64', 'balm'} <= set(names)
