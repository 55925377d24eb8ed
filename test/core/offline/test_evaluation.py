"""The evaluation of a drive, on cases small enough to compute by hand."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from lpr_ros.core.database.place_database import DatabaseConfig, PlaceDatabase
from lpr_ros.core.geometry.se3 import pose_from_euler
from lpr_ros.core.offline.evaluation import evaluate_drive, find_recalled
from lpr_ros.core.offline.result import DriveResult, Outcome
from lpr_ros.core.offline.summary import loop_gaps_m, odometry_poses, summarize
from lpr_ros.core.timing import NS_PER_S
from lpr_ros.core.types import LoopClosure, Match, Scan
from lpr_training.benchmarks.loops.metrics import loop_metrics, revisits
from lpr_training.benchmarks.loops.recorded_drive import Exclusion, RecordedDrive


def at(x, y, yaw=0.0):
    return pose_from_euler([x, y, 0.0], [0.0, 0.0, yaw])


def loop(query_id, match_id, T):
    match = Match(match_id, 0.1, 0.9)
    return LoopClosure(query_id, match_id, T, np.eye(6) * 0.01, 0.8, 500, match)


@pytest.fixture
def drive():
    """Out and back along a line in steps of 10 m: keyframes 4, 5, 6 revisit 2, 1, 0."""
    true = [at(0, 0), at(10, 0), at(20, 0), at(30, 0), at(20, 1), at(10, 1), at(0, 1)]
    odometry = [at(0, 0), at(10, 0), at(20, 0), at(30, 0), at(20, 5), at(10, 6), at(0, 7)]
    config = DatabaseConfig(exclude_s=0.0, exclude_m=15.0)
    database = PlaceDatabase(config, 2)
    for i, T in enumerate(odometry):
        database.add(database.make_keyframe(
            np.array([i, 0.0], np.float32), np.ones((1, 3), np.float32), session='a',
            stamp_ns=(i + 1) * NS_PER_S, T_odom_sensor=T,
        ))  # fmt: skip
    truth = dict(enumerate(true))
    loops = (loop(5, 1, at(0.0, 1.5)), loop(6, 0, at(0.0, 3.0)))  # errors of 0.5 m and 2 m
    outcomes = (
        Outcome(3, (Match(0, 0.9, 0.1),), 0),  # a new place
        Outcome(4, (Match(2, 0.3, 0.8),), 0),  # correct
        Outcome(5, (Match(1, 0.1, 0.9),), 1),  # correct
        Outcome(6, (Match(3, 0.2, 0.9),), 1),  # a revisit matched to another place
    )
    return DriveResult('line', database, loops, outcomes=outcomes, T_world_sensor=truth)


def test_precision_recall_and_errors(drive):
    evaluation = evaluate_drive(drive)
    metrics = evaluation.loop_metrics
    np.testing.assert_allclose(evaluation.errors.meters, [0.5, 2.0])
    np.testing.assert_allclose(evaluation.errors.nees, [0.25 / 0.01 / 6, 4.0 / 0.01 / 6])
    assert evaluation.errors.is_correct.tolist() == [True, False]
    assert evaluation.errors.correct == [drive.loops[0]]
    assert evaluation.revisits.ids == {4, 5, 6}
    assert evaluation.revisits.matched == {5}
    assert (metrics['precision'], metrics['revisits']) == (0.5, 3)
    assert metrics['recall_each'] == pytest.approx(1 / 3)
    assert metrics['pose_error_median_m'] == pytest.approx(1.25)  # of all loops
    assert metrics['nees_per_dim'] == pytest.approx(0.25 / 0.01 / 6)  # of the correct ones


@pytest.mark.parametrize(('gap_m', 'recalled'), [(5.9, {5, 6}), (6.1, {5})])
def test_recall_counts_revisits_near_a_correct_loop(drive, gap_m, recalled):
    """The correct loop is at 5; 4 is 10 m of true travel before it, and 6 is gap_m after it."""
    truth = drive.T_world_sensor | {6: at(10 - gap_m, 1)}
    revisits = find_recalled(drive.database, truth, {4, 5, 6}, {5})
    assert revisits.recalled == recalled
    assert revisits.matched == {5}
    assert revisits.metrics['recall'] == len(recalled) / 3


def test_recall_does_not_count_loops_of_another_session(drive):
    place = drive.database.place
    two_sessions = SimpleNamespace(place=lambda i: replace(place(i), session='b' * (i > 5)))
    truth = drive.T_world_sensor | {6: at(9, 1)}
    assert find_recalled(two_sessions, truth, {5, 6}, {5}).recalled == {5}


def test_summary_and_benchmark_report_the_same_metrics(drive):
    """One key has one meaning: summary.json and `benchmark.py loops` share the definition."""
    truth = np.stack([drive.T_world_sensor[i] for i in range(len(drive.database))])
    places = drive.places
    scans = [Scan(np.zeros((0, 3), np.float32), p.stamp_ns, p.T_odom_sensor) for p in places]
    config = drive.database.config
    recorded = RecordedDrive('line', scans, truth, Exclusion(config.exclude_s, config.exclude_m))
    row = loop_metrics(recorded, drive.loops)
    summary = summarize(drive, evaluate_drive(drive))
    assert {'recall', 'recall_each', 'nees_per_dim', 'revisits', 'precision'} <= row.keys()
    shared = row.keys() & summary.keys()
    assert {key: row[key] for key in shared} == {key: summary[key] for key in shared}
    assert set(np.flatnonzero(revisits(recorded).any(axis=1))) == {4, 5, 6}


def test_keyframes_in_the_exclusion_window_are_not_revisits(drive):
    """4 is 21 m of travel after 2, so an exclusion of 30 m rules it out."""
    drive.database.config = replace(drive.database.config, exclude_m=30.0)
    assert evaluate_drive(drive).revisits.ids == {5, 6}
    assert evaluate_drive(drive, radius_m=0.5).revisits.ids == set()
    assert np.isnan(evaluate_drive(drive, radius_m=0.5).loop_metrics['recall'])


def test_descriptor_detections_are_counted_per_threshold(drive):
    """Sorted by distance: correct, wrong, correct, new place; three revisits."""
    found = evaluate_drive(drive).detections
    assert found.tp.tolist() == [0, 1, 1, 2, 2]
    assert found.fp.tolist() == [0, 0, 1, 1, 2]
    assert found.recall()[-1] == pytest.approx(2 / 3)


def test_only_keyframes_with_ground_truth_are_evaluated(drive):
    assert evaluate_drive(replace(drive, T_world_sensor={})) is None
    half = evaluate_drive(replace(drive, T_world_sensor={5: at(10, 1), 1: at(10, 0)}))
    assert len(half.errors.loops) == 1
    metrics = evaluate_drive(replace(drive, loops=())).loop_metrics
    assert np.isnan(metrics['precision'])
    assert metrics['recall'] == 0.0


def test_loop_gaps_are_between_odometry_and_loops(drive):
    """In y: 6 by odometry and 1.5 by the first loop, 7 and 3 by the second."""
    np.testing.assert_allclose(loop_gaps_m(drive, odometry_poses(drive)), [4.5, 4.0])
