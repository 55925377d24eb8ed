"""The truth about a drive, on cases small enough to work out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from lpr_ros.core.clock import NS_PER_S
from lpr_ros.core.database import PlaceDatabase
from lpr_ros.core.database_config import DatabaseConfig
from lpr_ros.core.drive_result import DriveResult, Outcome
from lpr_ros.core.drive_summary import loop_gaps_m, odometry_poses
from lpr_ros.core.drive_truth import judge
from lpr_ros.core.geometry import pose_from_euler
from lpr_ros.core.records import LoopClosure, Match
from lpr_ros.core.trajectory_error import align, position_errors_m, root_mean_square


def at(x, y, yaw=0.0):
    return pose_from_euler([x, y, 0.0], [0.0, 0.0, yaw])


def loop(query_id, match_id, T):
    match = Match(match_id, 0.1, 0.9)
    return LoopClosure(query_id, match_id, T, np.eye(6) * 0.01, 0.8, 500, match)


@pytest.fixture
def drive():
    """There and back along a line, 10 m a step: keyframes 4, 5, 6 are again at 2, 1, 0."""
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
    loops = (loop(5, 1, at(0.0, 1.5)), loop(6, 0, at(0.0, 3.0)))  # 0.5 m off, and 2 m off
    outcomes = (
        Outcome(3, (Match(0, 0.9, 0.1),), 0),  # a new place
        Outcome(4, (Match(2, 0.3, 0.8),), 0),  # right
        Outcome(5, (Match(1, 0.1, 0.9),), 1),  # right
        Outcome(6, (Match(3, 0.2, 0.9),), 1),  # a revisit taken for another place
    )
    return DriveResult('line', database, loops, outcomes=outcomes, T_world_sensor=truth)


def test_loops_and_revisits(drive):
    judgement = judge(drive)
    np.testing.assert_allclose(judgement.errors.metres, [0.5, 2.0])
    np.testing.assert_allclose(judgement.errors.nees, [0.25 / 0.01 / 6, 4.0 / 0.01 / 6])
    assert judgement.errors.is_right.tolist() == [True, False]
    assert judgement.revisits == {4, 5, 6}
    assert judgement.found == {5}
    assert judgement.precision == 0.5
    assert judgement.recall == pytest.approx(1 / 3)


def test_recent_keyframes_are_no_revisits(drive):
    """4 is 20 m of way after 2 (10 out, 11 back): excluded below 30 m, as the database does."""
    drive.database.config = replace(drive.database.config, exclude_m=30.0)
    assert judge(drive).revisits == {5, 6}
    assert judge(drive, radius_m=0.5).revisits == set()
    assert np.isnan(judge(drive, radius_m=0.5).recall)


def test_detections_by_the_nearest_descriptor(drive):
    """Sorted by distance: right, wrong, right, new place; three revisits."""
    found = judge(drive).detections
    assert found.tp.tolist() == [0, 1, 1, 2, 2]
    assert found.fp.tolist() == [0, 0, 1, 1, 2]
    assert found.recall()[-1] == pytest.approx(2 / 3)


def test_without_truth_nothing_is_judged(drive):
    assert judge(replace(drive, T_world_sensor={})) is None
    half = judge(replace(drive, T_world_sensor={5: at(10, 1), 1: at(10, 0)}))
    assert len(half.errors.loops) == 1
    nothing = judge(replace(drive, loops=()))
    assert np.isnan(nothing.precision)
    assert nothing.recall == 0.0


def test_gaps_of_loops(drive):
    """Odometry has 5 at y = 6 where the loop has 1.5, and 6 at y = 7 where it has 3."""
    np.testing.assert_allclose(loop_gaps_m(drive, odometry_poses(drive)), [4.5, 4.0])


def test_alignment_finds_the_motion_and_leaves_the_error(rng):
    true = rng.normal(size=(20, 3)) * 30.0
    T = pose_from_euler([5.0, -70.0, 3.0], [0.1, -0.2, 2.5])
    moved = true @ T[:3, :3].T + T[:3, 3]
    np.testing.assert_allclose(align(true, moved), T, atol=1e-9)
    np.testing.assert_allclose(position_errors_m(true, moved), 0.0, atol=1e-9)
    mirrored = align(true, true * (1.0, 1.0, -1.0))  # fits best turned over, which no drive is
    assert np.linalg.det(mirrored[:3, :3]) == pytest.approx(1.0)


def test_a_worked_trajectory_error():
    """Two pairs of points, one pair 2 m too long: each end is 1 m off, the RMS 1 m."""
    true = np.array([[-5.0, 0.0, 0.0], [5.0, 0.0, 0.0]])
    np.testing.assert_allclose(position_errors_m(true * 1.2, true), [1.0, 1.0])
    assert root_mean_square(np.array([3.0, 4.0])) == pytest.approx(np.sqrt(12.5))
    assert np.isnan(root_mean_square(np.zeros(0)))
