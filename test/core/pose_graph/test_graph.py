"""The pose graph removes drift, tolerates wrong loop closures, and exports to g2o."""

from dataclasses import replace

import numpy as np
import pytest
from toy_graphs import COVARIANCE, LAP, error_m, keyframe, laps, loop_closure, perturb, read_g2o

from lpr_ros.core.errors import GraphError
from lpr_ros.core.geometry.odometry_noise import OdometryNoiseConfig, drift_covariance
from lpr_ros.core.geometry.se3 import invert, pose_from_euler
from lpr_ros.core.pose_graph.g2o import write_g2o
from lpr_ros.core.pose_graph.graph import Edge, PoseGraph, is_covariance
from lpr_ros.core.pose_graph.optimizer import PoseGraphOptimizer
from lpr_training.simulator import OdometryConfig
from lpr_training.simulator.drive.odometry import drifting


@pytest.fixture
def drive(rng):
    """Drift in heading and position only: loop closures cannot observe scale."""
    T_true = laps(500)
    drift = OdometryConfig(scale_sigma=0.0, heading_bias_deg=4.0, heading_walk_deg=0.5)
    return T_true, drifting(T_true, drift, rng)


def run(T_true, T_odom, rng, *, wrong=0, at_once=False, second_session=10**6):
    """Drive with a correct loop closure every ten keyframes, and wrong ones in between."""
    optimizer = PoseGraphOptimizer()
    wrong_at = {int(i) for i in rng.choice(np.arange(LAP + 20, len(T_true)), wrong, replace=False)}
    for i, T in enumerate(T_odom):
        optimizer.add_keyframe(keyframe(i, T, session='a' if i < second_session else 'b'))
        if i >= LAP and i % 10 == 0:
            true = invert(T_true[i - LAP]) @ T_true[i]
            optimizer.add_loop(loop_closure(i - LAP, i, perturb(true, rng)))
        if i in wrong_at:
            other = int(rng.integers(0, i - 40))
            T_wrong = pose_from_euler(rng.normal(size=3), [0.0, 0.0, rng.uniform(-3, 3)])
            optimizer.add_loop(loop_closure(other, i, T_wrong))
        if not at_once:
            optimizer.update()
    optimizer.update()
    return optimizer


def test_loops_reduce_the_drift_to_a_fifth(drive, rng):
    T_true, T_odom = drive
    before = error_m(dict(enumerate(T_odom)), T_true)
    optimizer = run(T_true, T_odom, rng)
    assert before > 1.0
    assert error_m(optimizer.poses, T_true) < before / 5.0
    assert optimizer.optimize_robust() == []
    assert error_m(optimizer.poses, T_true) < before / 5.0


def test_wrong_loops_do_not_break_the_map(drive, rng):
    T_true, T_odom = drive
    before = error_m(dict(enumerate(T_odom)), T_true)
    optimizer = run(T_true, T_odom, rng, wrong=6)
    assert error_m(optimizer.poses, T_true) < before / 2.0
    is_wrong = [edge.to_id - edge.from_id != LAP for edge in optimizer.optimize_robust()]
    assert sum(is_wrong) == 6
    assert is_wrong.count(False) <= 1
    assert error_m(optimizer.poses, T_true) < before / 5.0


def test_adding_loops_at_once_gives_the_same_map_as_one_by_one(drive):
    """As after a restart of the node, which adds the whole graph before one update."""
    T_true, T_odom = drive
    before = error_m(dict(enumerate(T_odom)), T_true)
    graphs = [
        run(T_true, T_odom, np.random.default_rng(0), wrong=3, at_once=x) for x in (False, True)
    ]
    errors = [error_m(graph.poses, T_true) for graph in graphs]
    assert max(errors) < before / 5.0
    assert errors[1] < 1.1 * errors[0]
    ends = [[(e.from_id, e.to_id) for e in graph.optimize_robust()] for graph in graphs]
    assert ends[0] == ends[1]
    for i in range(len(T_true)):
        np.testing.assert_allclose(graphs[0].poses[i], graphs[1].poses[i], atol=1e-6)


def test_poses_change_only_on_update(drive):
    _, T_odom = drive
    optimizer = PoseGraphOptimizer()
    for i, T in enumerate(T_odom[:30]):
        optimizer.add_keyframe(keyframe(i, T))
    before = optimizer.poses
    shift = pose_from_euler([0.0, 0.25, 0.0], [0.0, 0.0, 0.0])
    optimizer.add_loop(loop_closure(0, 29, invert(T_odom[0]) @ T_odom[29] @ shift))
    np.testing.assert_array_equal(optimizer.poses[29], before[29])
    optimizer.update()
    shift_m = (invert(T_odom[29]) @ optimizer.poses[29])[1, 3]
    assert 0.05 < shift_m < 0.25  # between odometry and loop


def test_map_to_odom_follows_the_latest_keyframe(drive, rng):
    T_true, T_odom = drive
    optimizer = run(T_true, T_odom, rng)
    np.testing.assert_allclose(
        optimizer.T_map_odom('a') @ T_odom[-1], optimizer.poses[len(T_odom) - 1], atol=1e-9
    )
    np.testing.assert_array_equal(optimizer.T_map_odom('never seen'), np.eye(4))


def test_without_loops_poses_are_odometry(drive):
    _, T_odom = drive
    optimizer = PoseGraphOptimizer()
    for i, T in enumerate(T_odom[:30]):
        optimizer.add_keyframe(keyframe(i, T))
    assert optimizer.optimize_robust() == []
    np.testing.assert_allclose(optimizer.poses[29], T_odom[29], atol=1e-6)


def test_loops_join_sessions_with_different_frames(rng):
    T_true = laps(60)
    T_other = pose_from_euler([100.0, -50.0, 3.0], [0.0, 0.0, 2.0]) @ T_true
    optimizer = PoseGraphOptimizer()
    for i, T in enumerate(T_true):
        optimizer.add_keyframe(keyframe(i, T))
    for i, T in enumerate(T_other):
        optimizer.add_keyframe(keyframe(i, T, keyframe_id=100 + i, session='b'))
    for i in (10, 30, 50):
        optimizer.add_loop(loop_closure(i, 100 + i, perturb(np.eye(4), rng)))
    optimizer.update()
    for i in range(60):
        np.testing.assert_allclose(optimizer.poses[100 + i], T_true[i], atol=0.15)
        np.testing.assert_allclose(optimizer.poses[i], T_true[i], atol=0.15)
    np.testing.assert_allclose(optimizer.T_map_odom('b') @ T_other[0], T_true[0], atol=0.2)


def test_loops_bridge_an_odometry_jump(rng):
    """After a jump, keyframes belong to another session."""
    T_true = laps(2 * LAP)
    T_odom = T_true.copy()
    T_odom[150:] = pose_from_euler([200.0, 80.0, 0.0], [0.0, 0.0, 1.0]) @ T_odom[150:]
    optimizer = run(T_true, T_odom, rng, second_session=150)
    optimizer.optimize_robust()
    assert error_m(optimizer.poses, T_true) < 0.5


def test_odometry_edges_connect_consecutive_keyframes_of_a_session():
    """The drift of an edge grows with the traveled distance, which is at least the step."""
    graph = PoseGraph()
    T = laps(4)
    first = keyframe(0, T[0])
    assert graph.add_keyframe(first) is None
    assert graph.add_keyframe(keyframe(9, T[3], session='b')) is None
    edge = graph.add_keyframe(replace(keyframe(1, T[1]), traveled_m=7.0))
    assert (edge.from_id, edge.to_id, edge.is_loop) == (0, 1, False)
    np.testing.assert_allclose(edge.T_from_to, invert(T[0]) @ T[1])
    np.testing.assert_array_equal(edge.covariance, drift_covariance(7.0, OdometryNoiseConfig()))
    straight = pose_from_euler([3.0, 0.0, 4.0], [0.0, 0.0, 0.0])
    edge = graph.add_keyframe(replace(keyframe(2, T[1] @ straight), traveled_m=7.0))
    np.testing.assert_allclose(edge.covariance, drift_covariance(5.0, OdometryNoiseConfig()))
    assert graph.edges[-1] is edge
    assert (graph.latest_of('a'), graph.latest_of('b'), graph.latest_of('c')) == (2, 9, None)
    assert list(graph.poses) == [0, 9, 1, 2]


def test_a_loop_closure_is_an_edge_from_match_to_query():
    graph = PoseGraph()
    for i in range(3):
        graph.add_keyframe(keyframe(i, laps(3)[i]))
    loop = loop_closure(0, 2, laps(3)[1])
    edge = graph.add_loop(loop)
    assert (edge.from_id, edge.to_id, edge.is_loop) == (0, 2, True)
    assert edge.T_from_to is loop.T_match_query
    assert edge.covariance is loop.covariance
    assert graph.edges[-1] is edge


def test_covariances_are_finite_symmetric_and_positive_definite(rng):
    good = spd(rng)
    assert is_covariance(good)
    assert is_covariance(good + 1e-14 * rng.normal(size=(6, 6)))  # rounding of a message
    skewed = good.copy()
    skewed[0, 1] *= 1.001
    singular = np.diag([1.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    infinite = good.copy()
    infinite[0, 0] = np.inf
    for bad in (skewed, singular, infinite, -good, good[:5, :5], good[0]):
        assert not is_covariance(bad)


def test_a_session_is_not_cut_where_keyframes_are_far_apart():
    """As under overload: one keyframe in thirty of a continuous drive."""
    T = laps(LAP)
    graph = PoseGraph()
    edges = [graph.add_keyframe(keyframe(i, T[i])) for i in range(0, LAP, 30)]
    assert [edge is None for edge in edges] == [True] + [False] * (len(edges) - 1)


def largest_difference(poses, others):
    return max(np.abs(poses[i] - others[i]).max() for i in others)


class TestRemoval:
    """Adding and removing loop closures equals never having added them."""

    @pytest.fixture
    def wrong(self, drive, rng):
        """Loop closures that come first, agree with each other, and are 3 m off."""
        T_true, _ = drive
        shift = pose_from_euler([3.0, 0.0, 0.0], [0.0, 0.0, 0.1])
        return [
            loop_closure(i - LAP, i, perturb(invert(T_true[i - LAP]) @ T_true[i] @ shift, rng))
            for i in range(LAP + 1, LAP + 150, 5)
        ]

    def drives(self, drive, wrong):
        """Return a graph that never had wrong loops, and one that had them while driving."""
        T_true, T_odom = drive
        never, once = PoseGraphOptimizer(), PoseGraphOptimizer()
        loops = {i: loop_closure(i - LAP, i, invert(T_true[i - LAP]) @ T_true[i])
                 for i in range(LAP + 180, len(T_true), 10)}  # fmt: skip
        by_query = {loop.query_id: loop for loop in wrong}
        for i, T in enumerate(T_odom):
            for optimizer in (never, once):
                optimizer.add_keyframe(keyframe(i, T))
                if i in loops:
                    optimizer.add_loop(loops[i])
            if i in by_query:
                once.add_loop(by_query[i])
            never.update()
            once.update()
        return never, once

    def test_poses_equal_those_of_a_graph_that_never_had_the_loops(self, drive, wrong):
        T_true, _ = drive
        never, once = self.drives(drive, wrong)
        harm_m = largest_difference(once.poses, never.poses)
        assert harm_m > 1.0
        for loop in wrong:
            once.remove_loop(loop.query_id, loop.match_id)
        once.update()
        assert largest_difference(once.poses, never.poses) < 0.2 * harm_m
        ends = [[(e.from_id, e.to_id) for e in g.graph.edges] for g in (never, once)]
        assert ends[0] == ends[1]
        assert [len(g.optimize_robust()) for g in (never, once)] == [0, 0]
        for i in range(len(T_true)):
            np.testing.assert_allclose(once.poses[i], never.poses[i], atol=1e-6)

    def test_robust_poses_do_not_depend_on_the_history_even_where_wrong_loops_stand(self):
        """Two wrong families, one of them retracted; most loop closures of the rest are wrong."""
        rng = np.random.default_rng(3)
        T_true = laps(500)
        drift = OdometryConfig(scale_sigma=0.0, heading_bias_deg=4.0, heading_walk_deg=0.5)
        T_odom = drifting(T_true, drift, rng)

        def family(queries, shift):
            T = {i: invert(T_true[i - LAP]) @ T_true[i] @ shift for i in queries}
            return {i: loop_closure(i - LAP, i, perturb(T[i], rng)) for i in queries}

        right = family(range(380, 500, 10), np.eye(4))
        stays = family(range(201, 350, 10), pose_from_euler([3.0, 0.0, 0.0], [0.0, 0.0, 0.1]))
        goes = family(range(203, 350, 10), pose_from_euler([0.0, -3.0, 0.0], [0.0, 0.0, -0.1]))
        never, once = PoseGraphOptimizer(), PoseGraphOptimizer()
        for i, T in enumerate(T_odom):
            for optimizer, loops in ((never, right | stays), (once, right | stays | goes)):
                optimizer.add_keyframe(keyframe(i, T))
                if i in loops:
                    optimizer.add_loop(loops[i])
                optimizer.update()
        for loop in goes.values():
            once.remove_loop(loop.query_id, loop.match_id)
        rejected = [len(optimizer.optimize_robust()) for optimizer in (never, once)]
        assert rejected[0] == rejected[1] > 0
        assert largest_difference(once.poses, never.poses) < 1e-6

    def test_poses_change_only_on_update(self, drive, wrong):
        _, once = self.drives(drive, wrong)
        before = once.poses
        once.remove_loop(wrong[0].query_id, wrong[0].match_id)
        np.testing.assert_array_equal(once.poses[499], before[499])
        once.update()
        assert not np.allclose(once.poses[499], before[499], atol=1e-3)

    def test_a_loop_can_return(self, drive):
        """Removed and added again, also together with a keyframe and before any update."""
        T_true, T_odom = drive
        plain, back = PoseGraphOptimizer(), PoseGraphOptimizer()
        loop = loop_closure(0, LAP, invert(T_true[0]) @ T_true[LAP])
        for i, T in enumerate(T_odom[: LAP + 20]):
            plain.add_keyframe(keyframe(i, T))
            back.add_keyframe(keyframe(i, T))
            if i == LAP:
                plain.add_loop(loop)
                back.add_loop(loop)
                back.update()
                back.remove_loop(LAP, 0)
            if i == LAP + 5:
                back.add_loop(loop)
        for optimizer in (plain, back):
            optimizer.optimize_robust()
        for i in plain.poses:
            np.testing.assert_allclose(back.poses[i], plain.poses[i], atol=1e-6)
        assert len(back.graph.loops) == 1

    def test_maps_separate_when_their_only_loop_is_removed(self, rng):
        T_true = laps(60)
        T_other = pose_from_euler([100.0, -50.0, 3.0], [0.0, 0.0, 2.0]) @ T_true
        optimizer = PoseGraphOptimizer()
        for i, T in enumerate(T_true):
            optimizer.add_keyframe(keyframe(i, T))
        for i, T in enumerate(T_other):
            optimizer.add_keyframe(keyframe(i, T, keyframe_id=100 + i, session='b'))
        for i in (10, 30):
            optimizer.add_loop(loop_closure(i, 100 + i, perturb(np.eye(4), rng)))
        optimizer.update()
        optimizer.remove_loop(110, 10)
        optimizer.update()
        assert optimizer.map_of(120) == optimizer.map_of(20) == 0  # the other one holds
        np.testing.assert_allclose(optimizer.T_map_odom('b') @ T_other[0], T_true[0], atol=0.3)
        optimizer.remove_loop(130, 30)
        optimizer.update()
        assert (optimizer.map_of(120), optimizer.map_of(20)) == (100, 0)
        np.testing.assert_allclose(optimizer.poses[120], T_other[20], atol=1e-6)
        np.testing.assert_array_equal(optimizer.T_map_odom('b').round(6), np.eye(4))

    @pytest.mark.parametrize('removed', [(10, 110), (5, 50)])
    def test_maps_can_be_joined_before_the_next_update(self, removed):
        """The loop closures added after a removed one, between maps or within, count once."""
        T_true = laps(60)
        T_other = pose_from_euler([100.0, -50.0, 3.0], [0.0, 0.0, 2.0]) @ T_true
        plain, replaced = PoseGraphOptimizer(), PoseGraphOptimizer()
        for optimizer in (plain, replaced):
            for i, T in enumerate(T_true):
                optimizer.add_keyframe(keyframe(i, T))
            for i, T in enumerate(T_other):
                optimizer.add_keyframe(keyframe(i, T, keyframe_id=100 + i, session='b'))
        match, query = removed
        T_wrong = pose_from_euler([9.0, 0.0, 0.0], [0.0, 0.0, 1.0])
        replaced.add_loop(loop_closure(match, query, T_wrong))
        replaced.update()
        replaced.remove_loop(query, match)
        shifts_m = {20: 0.1, 40: -0.1}  # they disagree: what counts twice would win
        for i, shift_m in shifts_m.items():
            T = pose_from_euler([0.0, shift_m, 0.0], [0.0, 0.0, 0.0])
            for optimizer in (plain, replaced):
                optimizer.add_loop(loop_closure(i, 100 + i, T))
        for optimizer in (plain, replaced):
            optimizer.update()
        assert largest_difference(replaced.poses, plain.poses) < 1e-6

    def test_removing_an_unknown_loop_is_an_error(self):
        optimizer = PoseGraphOptimizer()
        for i, T in enumerate(laps(3)):
            optimizer.add_keyframe(keyframe(i, T))
        optimizer.add_loop(loop_closure(0, 2, np.eye(4)))
        with pytest.raises(GraphError, match='0 to 2 is not in the graph'):
            optimizer.remove_loop(0, 2)
        assert len(optimizer.graph.loops) == 1


@pytest.mark.parametrize('T', [None, np.full((4, 4), np.nan)])
def test_a_keyframe_without_a_pose_is_an_error(T):
    with pytest.raises(GraphError, match='keyframe 3'):
        PoseGraph().add_keyframe(keyframe(3, T))


def test_invalid_loops_are_errors():
    graph = PoseGraph()
    for i in range(3):
        graph.add_keyframe(keyframe(i, laps(3)[i]))
    good = loop_closure(0, 2, np.eye(4))
    with pytest.raises(GraphError, match='9'):
        graph.add_loop(loop_closure(0, 9, np.eye(4)))
    with pytest.raises(GraphError, match='itself'):
        graph.add_loop(loop_closure(1, 1, np.eye(4)))
    for bad in (np.zeros((6, 6)), np.full((6, 6), np.nan), -COVARIANCE, COVARIANCE[:5]):
        with pytest.raises(GraphError, match='positive definite'):
            graph.add_loop(replace(good, covariance=bad))
    with pytest.raises(GraphError, match='finite pose'):
        graph.add_loop(replace(good, T_match_query=np.full((4, 4), np.inf)))
    with pytest.raises(GraphError, match='already'):
        graph.add_keyframe(keyframe(1, np.eye(4)))
    assert [edge.is_loop for edge in graph.edges] == [False, False]


def spd(rng):
    A = rng.normal(size=(6, 6))
    return 0.01 * (A @ A.T + 0.1 * np.eye(6))


def test_gtsam_reads_what_write_g2o_wrote(tmp_path, rng):
    poses = dict(enumerate(laps(5)))
    edges = [Edge(i, i + 1, invert(poses[i]) @ poses[i + 1], spd(rng)) for i in range(4)]
    edges.append(Edge(0, 4, perturb(invert(poses[0]) @ poses[4], rng), spd(rng), True))
    write_g2o(tmp_path / 'a.g2o', poses, edges)
    read = read_g2o(tmp_path / 'a.g2o')
    assert read.poses.keys() == poses.keys()
    for i, T in poses.items():
        np.testing.assert_allclose(read.poses[i], T, atol=1e-9)
    assert [(e.from_id, e.to_id) for e in read.edges] == [(e.from_id, e.to_id) for e in edges]
    for edge, back in zip(edges, read.edges, strict=True):
        np.testing.assert_allclose(back.T_from_to, edge.T_from_to, atol=1e-9)
        np.testing.assert_allclose(back.covariance, edge.covariance, rtol=1e-6, atol=1e-9)
