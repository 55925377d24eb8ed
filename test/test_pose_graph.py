"""The pose graph takes drift away, survives wrong loops, and reaches other optimisers as g2o."""

from dataclasses import replace

import gtsam
import numpy as np
import pytest
from toy_graphs import COVARIANCE, LAP, closure, error_m, keyframe, laps, noisy

from lpr_ros.core.back_end import BackEnd
from lpr_ros.core.errors import DatasetError, GraphError
from lpr_ros.core.g2o import read_g2o, write_g2o
from lpr_ros.core.geometry import invert, pose_from_euler
from lpr_ros.core.pose_graph import Edge, PoseGraph
from lpr_training.simulator import OdometryConfig
from lpr_training.simulator.odometry import drifting


@pytest.fixture
def drive(rng):
    """Drift in heading and position; a wrong scale cannot be seen from loops."""
    T_true = laps(500)
    drift = OdometryConfig(scale_sigma=0.0, heading_bias_deg=4.0, heading_walk_deg=0.5)
    return T_true, drifting(T_true, drift, rng)


def run(T_true, T_odom, rng, *, wrong=0, at_once=False):
    """Drive with a true loop every ten keyframes, and wrong ones in between."""
    back_end = BackEnd()
    wrong_at = {int(i) for i in rng.choice(np.arange(LAP + 20, len(T_true)), wrong, replace=False)}
    for i, T in enumerate(T_odom):
        back_end.add_keyframe(keyframe(i, T))
        if i >= LAP and i % 10 == 0:
            true = invert(T_true[i - LAP]) @ T_true[i]
            back_end.add_loop(closure(i - LAP, i, noisy(true, rng)))
        if i in wrong_at:
            other = int(rng.integers(0, i - 40))
            T_wrong = pose_from_euler(rng.normal(size=3), [0.0, 0.0, rng.uniform(-3, 3)])
            back_end.add_loop(closure(other, i, T_wrong))
        if not at_once:
            back_end.settle()
    back_end.settle()
    return back_end


def test_loops_reduce_the_drift_to_a_fifth(drive, rng):
    T_true, T_odom = drive
    before = error_m(dict(enumerate(T_odom)), T_true)
    back_end = run(T_true, T_odom, rng)
    assert before > 1.0
    assert error_m(back_end.poses, T_true) < before / 5.0
    assert back_end.finish() == []
    assert error_m(back_end.poses, T_true) < before / 5.0


def test_wrong_loops_do_not_break_the_map(drive, rng):
    T_true, T_odom = drive
    before = error_m(dict(enumerate(T_odom)), T_true)
    back_end = run(T_true, T_odom, rng, wrong=6)
    assert error_m(back_end.poses, T_true) < before / 2.0
    rejected = [edge.to_id - edge.from_id != LAP for edge in back_end.finish()]
    assert sum(rejected) == 6  # all the wrong ones,
    assert rejected.count(False) <= 1  # and of the true ones hardly any
    assert error_m(back_end.poses, T_true) < before / 5.0


def test_loops_that_come_together_lead_to_where_they_lead_one_by_one(drive):
    """As after a restart of the node: the same graph, known all at once."""
    T_true, T_odom = drive
    before = error_m(dict(enumerate(T_odom)), T_true)
    graphs = [
        run(T_true, T_odom, np.random.default_rng(0), wrong=3, at_once=x) for x in (False, True)
    ]
    errors = [error_m(graph.poses, T_true) for graph in graphs]
    assert max(errors) < before / 5.0
    assert errors[1] < 1.1 * errors[0]
    ends = [[(e.from_id, e.to_id) for e in graph.finish()] for graph in graphs]
    assert ends[0] == ends[1]
    for i in range(len(T_true)):
        np.testing.assert_allclose(graphs[0].poses[i], graphs[1].poses[i], atol=1e-3)


def test_poses_stay_until_they_are_settled(drive):
    _, T_odom = drive
    back_end = BackEnd()
    for i, T in enumerate(T_odom[:30]):
        back_end.add_keyframe(keyframe(i, T))
    before = back_end.poses
    aside = pose_from_euler([0.0, 0.25, 0.0], [0.0, 0.0, 0.0])
    back_end.add_loop(closure(0, 29, invert(T_odom[0]) @ T_odom[29] @ aside))
    np.testing.assert_array_equal(back_end.poses[29], before[29])
    back_end.settle()
    aside_m = (invert(T_odom[29]) @ back_end.poses[29])[1, 3]
    assert 0.05 < aside_m < 0.25  # between odometry and loop


def test_the_odometry_frame_follows_the_newest_keyframe(drive, rng):
    T_true, T_odom = drive
    back_end = run(T_true, T_odom, rng)
    np.testing.assert_allclose(
        back_end.T_map_odom('a') @ T_odom[-1], back_end.poses[len(T_odom) - 1], atol=1e-9
    )
    np.testing.assert_array_equal(back_end.T_map_odom('never seen'), np.eye(4))


def test_without_loops_the_map_is_the_odometry(drive):
    _, T_odom = drive
    back_end = BackEnd()
    for i, T in enumerate(T_odom[:30]):
        back_end.add_keyframe(keyframe(i, T))
    assert back_end.finish() == []
    np.testing.assert_allclose(back_end.poses[29], T_odom[29], atol=1e-6)


def test_a_loop_joins_two_sessions_with_other_frames(rng):
    T_true = laps(60)
    T_other = pose_from_euler([100.0, -50.0, 3.0], [0.0, 0.0, 2.0]) @ T_true
    back_end = BackEnd()
    for i, T in enumerate(T_true):
        back_end.add_keyframe(keyframe(i, T))
    for i, T in enumerate(T_other):
        back_end.add_keyframe(keyframe(i, T, keyframe_id=100 + i, session='b'))
    for i in (10, 30, 50):
        back_end.add_loop(closure(i, 100 + i, noisy(np.eye(4), rng)))
    back_end.settle()
    for i in range(60):
        np.testing.assert_allclose(back_end.poses[100 + i], T_true[i], atol=0.15)
        np.testing.assert_allclose(back_end.poses[i], T_true[i], atol=0.15)
    np.testing.assert_allclose(back_end.T_map_odom('b') @ T_other[0], T_true[0], atol=0.2)


def test_a_jump_of_odometry_is_mended_by_loops(rng):
    T_true = laps(2 * LAP)
    T_odom = T_true.copy()
    T_odom[150:] = pose_from_euler([200.0, 80.0, 0.0], [0.0, 0.0, 1.0]) @ T_odom[150:]
    back_end = run(T_true, T_odom, rng)
    back_end.finish()
    assert error_m(back_end.poses, T_true) < 0.5


@pytest.mark.parametrize('T', [None, np.full((4, 4), np.nan)])
def test_a_keyframe_without_a_pose_is_refused(T):
    with pytest.raises(GraphError, match='keyframe 3'):
        PoseGraph().add_keyframe(keyframe(3, T))


def test_impossible_loops_are_refused():
    graph = PoseGraph()
    for i in range(3):
        graph.add_keyframe(keyframe(i, laps(3)[i]))
    good = closure(0, 2, np.eye(4))
    with pytest.raises(GraphError, match='9'):
        graph.add_loop(closure(0, 9, np.eye(4)))
    with pytest.raises(GraphError, match='itself'):
        graph.add_loop(closure(1, 1, np.eye(4)))
    for bad in (np.zeros((6, 6)), np.full((6, 6), np.nan), -COVARIANCE, COVARIANCE[:5]):
        with pytest.raises(GraphError, match='positive definite'):
            graph.add_loop(replace(good, covariance=bad))
    with pytest.raises(GraphError, match='already'):
        graph.add_keyframe(keyframe(1, np.eye(4)))
    assert [edge.is_loop for edge in graph.edges] == [False, False]


def spd(rng):
    A = rng.normal(size=(6, 6))
    return 0.01 * (A @ A.T + 0.1 * np.eye(6))


def test_g2o_round_trip(tmp_path, rng):
    poses = dict(enumerate(laps(5)))
    edges = [Edge(i, i + 1, invert(poses[i]) @ poses[i + 1], spd(rng)) for i in range(4)]
    edges.append(Edge(0, 4, noisy(invert(poses[0]) @ poses[4], rng), spd(rng), True))
    write_g2o(tmp_path / 'a.g2o', poses, edges)
    found = read_g2o(tmp_path / 'a.g2o')
    assert found.poses.keys() == poses.keys()
    for i, T in poses.items():
        np.testing.assert_allclose(found.poses[i], T, atol=1e-9)
    for edge, back in zip(edges, found.edges, strict=True):
        assert (edge.from_id, edge.to_id, edge.is_loop) == (
            back.from_id, back.to_id, back.is_loop,
        )  # fmt: skip
        np.testing.assert_allclose(back.T_from_to, edge.T_from_to, atol=1e-9)
        np.testing.assert_allclose(back.covariance, edge.covariance, rtol=1e-6, atol=1e-9)


def test_gtsam_reads_the_file_as_we_mean_it(tmp_path, rng):
    poses = dict(enumerate(laps(2)))
    edge = Edge(0, 1, invert(poses[0]) @ poses[1], spd(rng))
    write_g2o(tmp_path / 'a.g2o', poses, [edge])
    factors, values = gtsam.readG2o(str(tmp_path / 'a.g2o'), True)
    np.testing.assert_allclose(values.atPose3(1).matrix(), poses[1], atol=1e-9)
    factor = factors.at(0)
    np.testing.assert_allclose(factor.measured().matrix(), edge.T_from_to, atol=1e-9)
    first = (3, 4, 5, 0, 1, 2)
    covariance = factor.noiseModel().covariance()[np.ix_(first, first)]
    np.testing.assert_allclose(covariance, edge.covariance, rtol=1e-6)


@pytest.mark.parametrize(
    'text',
    [
        'VERTEX_SE3:QUAT 0 1 2 3',
        'VERTEX_SE3:QUAT 0 0 0 0 0 0 0 0',
        'VERTEX_SE3:QUAT 0 0 0 nan 0 0 0 1',
        'VERTEX_SE3:QUAT zero 0 0 0 0 0 0 1',
        'EDGE_SE3:QUAT 0 1 0 0 0 0 0 0 1 ' + ' '.join(['1'] * 21),
        'EDGE_SE3:QUAT 0 1 0 0 0 0 0 0 1 1 0 0 0 0 0 1 0 0 0 0 1 0 0 0 1 0 0 1 0 1',
    ],
)
def test_a_damaged_g2o_file_is_refused_by_line(tmp_path, text):
    path = tmp_path / 'bad.g2o'
    path.write_text(f'# a comment\nFIX 0\n{text}\n')
    with pytest.raises(DatasetError, match=r'bad\.g2o'):
        read_g2o(path)
