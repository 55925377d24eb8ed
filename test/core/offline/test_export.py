"""Exported files state what they mean, and one that fails does not lose the others."""

import csv
from dataclasses import replace
import os

from loop_tables import read_loops
import numpy as np
import pytest

from lpr_ros.core.database.place_database import DatabaseConfig, PlaceDatabase
from lpr_ros.core.geometry.se3 import local_error, pose_from_euler
from lpr_ros.core.offline import export
from lpr_ros.core.offline.evaluation import evaluate_drive
from lpr_ros.core.offline.export import RESERVE, reserve_space, write_files, write_loops
from lpr_ros.core.offline.result import DriveResult, PublishedLoops
from lpr_ros.core.offline.summary import summarize
from lpr_ros.core.timing import NS_PER_S
from lpr_ros.core.types import LoopClosure, Match, VerificationResult

SIGMA = np.array([0.5, 0.02, 0.05, 0.001, 0.002, 0.03])


@pytest.fixture
def result():
    """Two keyframes and a loop: the query faces left of the match, and is uncertain ahead."""
    database = PlaceDatabase(DatabaseConfig(), 2)
    for i in range(2):
        keyframe = database.make_keyframe(
            np.zeros(2, np.float32), np.ones((1, 3), np.float32), session='a',
            stamp_ns=(i + 1) * NS_PER_S, T_odom_sensor=np.eye(4),
        )  # fmt: skip
        database.add(keyframe)
    T_match_query = pose_from_euler([3.0, 2.0, 0.5], [0.1, -0.2, np.pi / 2])
    loop = LoopClosure(1, 0, T_match_query, np.diag(SIGMA**2), 0.8, 500, Match(0, 0.1, 0.9))
    return DriveResult('drive', database, (loop,))


def test_covariance_of_loops_csv_is_in_the_query_frame(result, tmp_path, rng):
    """It is the covariance of the local errors of true poses drawn around T_match_query."""
    write_loops(tmp_path / 'loops.csv', result, None)
    (loop,) = read_loops(tmp_path / 'loops.csv')
    np.testing.assert_allclose(loop.T_match_query, result.loops[0].T_match_query, atol=1e-12)
    motions = SIGMA * rng.standard_normal((4000, 6))
    T_true = loop.T_match_query @ pose_from_euler(motions[:, :3], motions[:, 3:])
    errors = local_error(loop.T_match_query, T_true)
    np.testing.assert_allclose(
        np.cov(errors.T) / np.outer(SIGMA, SIGMA), np.diag(np.ones(6)), atol=0.1
    )
    np.testing.assert_allclose(np.sqrt(np.diag(loop.covariance)), SIGMA)


def test_retracted_loops_stay_in_the_table_and_are_marked(result, tmp_path):
    (loop,) = result.loops
    rival = replace(loop, T_match_query=np.eye(4))  # the same pair at another pose
    both = replace(result, retracted=(rival,), T_world_sensor={0: np.eye(4), 1: np.eye(4)})
    evaluation = evaluate_drive(both)
    write_loops(tmp_path / 'loops.csv', both, evaluation)
    with (tmp_path / 'loops.csv').open(newline='') as stream:
        reader = csv.DictReader(stream)
        kept, gone = reader
    assert reader.fieldnames[-1] == 'retracted'
    assert [row['retracted'] for row in (kept, gone)] == ['0', '1']
    assert [row['kept_by_optimiser'] for row in (kept, gone)] == ['1', '0']
    assert float(kept['error_m']) > 3.0
    assert float(gone['error_m']) == 0.0
    summary = summarize(both, evaluation)
    assert (summary['loops'], summary['loops_retracted']) == (1, 1)
    assert (summary['retracted_correct'], summary['retracted_wrong']) == (1, 0)
    assert summary['precision'] == 0.0  # of the loop that stands


def test_loops_stand_as_the_last_result_left_them(result):
    (loop,) = result.loops
    rival = replace(loop, T_match_query=np.eye(4))
    loops = PublishedLoops()
    for step, standing, retracted in (
        (VerificationResult(1, trusted=(loop, rival)), (loop, rival), ()),
        (VerificationResult(1, retracted=(replace(loop),)), (rival,), (loop,)),
        (VerificationResult(1, trusted=(loop,), retracted=(rival,)), (loop,), (rival,)),
    ):
        loops.add(step)
        assert [x.key for x in loops.standing] == [x.key for x in standing]
        assert [x.key for x in loops.retracted] == [x.key for x in retracted]


def test_the_loop_closure_topic_has_the_covariance_of_loops_csv_in_the_match_frame(
    result, tmp_path
):
    loops = pytest.importorskip('lpr_ros.conversions.loops')
    write_loops(tmp_path / 'loops.csv', result, None)
    (loop,) = read_loops(tmp_path / 'loops.csv')
    message = loops.constraint_message(result.loops[0], 2 * NS_PER_S)
    in_message = np.reshape(message.pose.covariance, (6, 6))
    R = np.kron(np.eye(2), loop.T_match_query[:3, :3])
    np.testing.assert_allclose(in_message, R @ loop.covariance @ R.T, atol=1e-12)
    assert np.sqrt(in_message[1, 1]) == pytest.approx(0.5, rel=0.05)  # ahead is left of the match
    read = loops.loop_from_constraint(message)
    np.testing.assert_allclose(read.covariance, loop.covariance, atol=1e-12)


def test_a_file_that_fails_is_left_out_and_the_others_are_written(tmp_path):
    def fail(path):
        path.write_text('half')
        raise RuntimeError('no such figure')

    writers = {'a': lambda p: p.write_text('a'), 'b': fail, 'c': lambda p: p.write_text('c')}
    errors = write_files(tmp_path, writers)
    assert {path.name for path in tmp_path.iterdir()} == {'a', 'c'}
    assert [(name, str(error)) for name, error in errors.items()] == [('b', 'no such figure')]


def test_disk_space_is_reserved_until_files_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(export, 'RESERVED_BYTES', 2**20)
    reserve_space(tmp_path, scans=256)
    reserve = tmp_path / RESERVE
    assert reserve.stat().st_blocks * 512 >= 2 * 2**20
    seen = []
    write_files(tmp_path, {'a': lambda path: seen.append(reserve.exists())})
    assert seen == [False]


def test_a_full_disk_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(export, 'RESERVED_BYTES', 2**60)
    with pytest.raises(OSError, match=r'expected \d+ MiB of free disk space'):
        reserve_space(tmp_path, scans=1)
    assert os.listdir(tmp_path) in ([], [RESERVE])
