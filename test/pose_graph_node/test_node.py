"""pose_graph_node as a process, with the topics of lpr_node published over DDS."""

from dataclasses import replace
from itertools import permutations
import re
import signal

from geometry_msgs.msg import PoseStamped, TransformStamped
from nav_msgs.msg import Odometry, Path
import numpy as np
import pytest
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from ros_processes import Ros, wait_until
from std_srvs.srv import Trigger
from toy_graphs import LAP, error_m, keyframe, laps, loop_closure, perturb, read_g2o

from lpr_ros.conversions.loops import KeyframePath, constraint_message
from lpr_ros.conversions.poses import odometry_message, pose_from_message
from lpr_ros.core.geometry.se3 import invert, pose_from_euler, pose_from_quaternion
from lpr_ros.core.pose_graph.optimizer import PoseGraphOptimizer, PoseGraphOptimizerConfig
from lpr_ros.pose_graph_node.graph_updater import MAX_PENDING_LOOPS, GraphUpdater
from lpr_ros.ros_utils.qos import LATCHED, LOOPS
from lpr_training.simulator import OdometryConfig
from lpr_training.simulator.drive.odometry import drifting

NODE = '/pose_graph_node'
COUNT = 2 * LAP
WRONG_LOOPS = 4


class FakeLprNode:
    """Publishes on the topics of lpr_node."""

    def __init__(self, ros: Ros):
        node = ros.node('lpr_node')
        self.keyframes = node.create_publisher(Path, '~/keyframes', LATCHED)
        self.loops = node.create_publisher(Odometry, '~/loop_closures', LOOPS)
        self.retracted = node.create_publisher(Odometry, '~/retracted_loop_closures', LOOPS)
        self.odometry = node.create_publisher(Odometry, 'odometry', 10)
        self.path = KeyframePath('odom')

    def publish_keyframes(self, *keyframes):
        for each in keyframes:
            self.path.add(each)
        self.keyframes.publish(self.path.message)

    def publish_loop(self, loop, stamp_ns):
        self.loops.publish(constraint_message(loop, stamp_ns))

    def retract_loop(self, loop, stamp_ns):
        self.retracted.publish(constraint_message(loop, stamp_ns))

    def publish_odometry(self, stamp_ns, T):
        self.odometry.publish(odometry_message(stamp_ns, 'odom', 'base', T))


@pytest.fixture
def drive(rng):
    """Return ground truth, drifting odometry, loops by query, and the queries of wrong loops."""
    T_true = laps(COUNT)
    drift = OdometryConfig(scale_sigma=0.0, heading_bias_deg=6.0, heading_walk_deg=0.5)
    T_odom = drifting(T_true, drift, rng)
    loops = {i: loop_closure(i - LAP, i, perturb(invert(T_true[i - LAP]) @ T_true[i], rng))
             for i in range(LAP, COUNT, 10)}  # fmt: skip
    wrong = {}
    for i in rng.choice([i for i in range(LAP, COUNT) if i % 10], WRONG_LOOPS, replace=False):
        T_wrong = pose_from_euler(rng.normal(size=3), [0.0, 0.0, rng.uniform(-3.0, 3.0)])
        wrong[int(i)] = loop_closure(int(rng.integers(0, i - 100)), int(i), T_wrong)
    return T_true, T_odom, loops | wrong, set(wrong)


# The node, which notices silence after a second and logs its progress every second.
IMPATIENT_NODE = """
import sys
from lpr_ros.pose_graph_node.node import main
from lpr_ros.ros_utils import progress_log, topic_watch

if __name__ == '__main__':
    progress_log.INTERVAL_S = topic_watch.SILENCE_S = 1.0
    sys.exit(main())
"""


def test_the_log_tells_what_is_missing_and_what_was_done(ros: Ros, drive):
    _, T_odom, loops, _ = drive
    process = ros.start('-c', IMPATIENT_NODE)

    def logged(*lines: str) -> None:
        for line in lines:
            wait_until(lambda line=line: re.search(line, process.output), line)

    logged(
        'waiting for /lpr_node/keyframes and /odometry',
        'no message on /lpr_node/keyframes for 1 s: .* or start lpr_node',
        'no message on /odometry for 1 s',
    )
    robot = FakeLprNode(ros)
    keyframes = [keyframe(i, T) for i, T in enumerate(T_odom)]
    query = next(iter(loops))
    robot.publish_keyframes(*keyframes[: query + 1])
    robot.publish_loop(loops[query], keyframes[query].stamp_ns)
    logged(
        rf"session '\w*': keyframe {query}",
        'first loop closure',
        rf'keyframes {query + 1} \(\+\d+\), loop closures 1 \(\+1\), rejected',
    )
    assert process.output.count('no message on /lpr_node/keyframes') == 1


def poses_of(path: Path) -> list[np.ndarray]:
    return [pose_from_message(pose.pose) for pose in path.poses]


def matrix(transform) -> np.ndarray:
    t, q = transform.translation, transform.rotation
    return pose_from_quaternion([t.x, t.y, t.z], [q.x, q.y, q.z, q.w])


def test_drive_with_wrong_loops_is_corrected(ros: Ros, drive, tmp_path):
    T_true, T_odom, loops, wrong = drive
    robot, tester = FakeLprNode(ros), ros.node()
    # Published before the node starts: transient local topics deliver it later.
    keyframes = [keyframe(i, T) for i, T in enumerate(T_odom)]
    robot.publish_keyframes(*keyframes[:150])
    process = ros.start('-m', 'lpr_ros.pose_graph_node', '--ros-args',
                        '-p', f'g2o_path:={tmp_path}/graph.g2o')  # fmt: skip
    paths = ros.listen(tester, Path, f'{NODE}/path', LATCHED)
    transforms = ros.listen(tester, TransformStamped, f'{NODE}/map_to_odom', 100)
    assert len(paths.take().poses) == 150
    # Loops arrive before their keyframes.
    for query, loop in loops.items():
        robot.publish_loop(loop, keyframes[query].stamp_ns)
    robot.publish_keyframes(*keyframes[150:])
    drift_m = error_m(dict(enumerate(T_odom)), T_true)
    assert drift_m > 3.0

    def is_corrected(path):
        is_whole = len(path.poses) == COUNT
        return is_whole and error_m(dict(enumerate(poses_of(path))), T_true) < 0.4 * drift_m

    online = paths.take_until(is_corrected)
    assert online.header.frame_id == 'map'
    assert [p.header.stamp.sec for p in online.poses] == list(range(COUNT))
    whole = f'{COUNT} keyframes, {len(loops)} loops'
    wait_until(lambda: whole in ros.call(tester, Trigger, f'{NODE}/save_g2o').message, whole)

    paths.drain()
    response = ros.call(tester, Trigger, f'{NODE}/optimize')
    assert response.success
    assert response.message.startswith(f'{WRONG_LOOPS} loop closures rejected')
    named = {int(pair.split(' to ')[0]) for pair in response.message.split(': ')[1].split(', ')}
    assert named == wrong
    final = poses_of(paths.take())
    assert error_m(dict(enumerate(final)), T_true) < 0.15 * drift_m

    # map -> odom takes the odometry pose to the corrected pose.
    ros.matched(robot.odometry)
    robot.publish_odometry(keyframes[-1].stamp_ns, T_odom[-1])
    moved = transforms.take()
    assert (moved.header.frame_id, moved.child_frame_id) == ('map', 'odom')
    np.testing.assert_allclose(matrix(moved.transform) @ T_odom[-1], final[-1], atol=1e-6)

    assert ros.call(tester, Trigger, f'{NODE}/save_g2o').success
    graph = read_g2o(tmp_path / 'graph.g2o')
    assert len(graph.poses) == COUNT
    assert sum(edge.is_loop for edge in graph.edges) == len(loops)
    np.testing.assert_allclose(graph.poses[COUNT - 1], final[-1], atol=1e-6)

    process.interrupt()
    process.interrupt()
    assert process.wait() == 0, process.output
    assert 'Traceback' not in process.output


def test_time_jumping_back_starts_a_new_session(ros: Ros):
    """The second run has its own odometry frame, until a loop joins the two."""
    robot, tester = FakeLprNode(ros), ros.node()
    process = ros.start('-m', 'lpr_ros.pose_graph_node')
    paths = ros.listen(tester, Path, f'{NODE}/path', LATCHED)
    transforms = ros.listen(tester, TransformStamped, f'{NODE}/map_to_odom', 100)
    T_true = laps(20)
    shift = pose_from_euler([100.0, 50.0, 0.0], [0.0, 0.0, 1.0])  # T_second_first
    robot.publish_keyframes(*[keyframe(i, T) for i, T in enumerate(T_true)])
    paths.take_until(lambda path: len(path.poses) == 20)
    ros.matched(robot.odometry)
    robot.publish_odometry(20 * 10**9, T_true[-1])
    np.testing.assert_allclose(matrix(transforms.take().transform), np.eye(4), atol=1e-6)

    second = [keyframe(i, shift @ T, keyframe_id=20 + i) for i, T in enumerate(T_true)]
    robot.publish_odometry(0, shift @ T_true[0])
    np.testing.assert_allclose(matrix(transforms.take().transform), np.eye(4), atol=1e-6)
    robot.publish_keyframes(*second)
    apart = paths.take_until(lambda path: len(path.poses) == 40)
    frames = [pose.header.frame_id for pose in apart.poses]
    assert frames == ['map/0'] * 20 + ['map'] * 20
    np.testing.assert_allclose(poses_of(apart)[39], shift @ T_true[19], atol=1e-6)

    robot.publish_loop(loop_closure(10, 30, np.eye(4)), second[10].stamp_ns)
    joined = paths.take()
    assert {pose.header.frame_id for pose in joined.poses} == {'map'}
    np.testing.assert_allclose(poses_of(joined)[20:], T_true, atol=1e-3)
    robot.publish_odometry(19 * 10**9, shift @ T_true[-1])
    T_map_odom = matrix(transforms.take().transform)
    np.testing.assert_allclose(T_map_odom, invert(shift), atol=1e-2)

    # Retracted, the loop leaves two maps as before.
    robot.retract_loop(loop_closure(10, 30, np.eye(4)), second[10].stamp_ns)
    again = paths.take()
    assert [pose.header.frame_id for pose in again.poses] == frames
    np.testing.assert_allclose(poses_of(again), poses_of(apart), atol=1e-6)
    robot.publish_odometry(20 * 10**9, shift @ T_true[-1])
    np.testing.assert_allclose(matrix(transforms.take().transform), np.eye(4), atol=1e-6)
    process.interrupt(signal.SIGTERM)
    assert process.wait() == 0, process.output


def test_messages_it_cannot_use_do_not_end_the_node(ros: Ros):
    """Messages check their fields here, as on Humble: such stamps cannot be sent on."""
    robot, tester = FakeLprNode(ros), ros.node()
    process = ros.start('-m', 'lpr_ros.pose_graph_node')
    paths = ros.listen(tester, Path, f'{NODE}/path', LATCHED)
    transforms = ros.listen(tester, TransformStamped, f'{NODE}/map_to_odom', 100)
    ros.matched(robot.odometry)
    extreme = odometry_message(0, 'odom', 'base', np.eye(4))
    extreme.header.stamp._sec, extreme.header.stamp._nanosec = 2**31 - 1, 2**32 - 1
    stamped = Path(poses=[PoseStamped()])
    stamped.poses[0].header.stamp = extreme.header.stamp
    robot.keyframes.publish(stamped)
    endless_id = constraint_message(loop_closure(0, 1, np.eye(4)), 0)
    endless_id.header.frame_id = f'keyframe/{"9" * 5000}'
    robot.loops.publish(endless_id)
    for name in ('publish_path', 'on_loop'):
        wait_until(lambda name=name: f'.{name}]: ' in process.output, f'an error of {name}')

    def is_ignored() -> bool:
        robot.odometry.publish(extreme)  # again: best effort, and discovery may be one-sided
        return 'odometry ignored: stamp with 4294967295 ns' in process.output

    wait_until(is_ignored, 'a warning')

    robot.publish_keyframes(*[keyframe(i, T) for i, T in enumerate(laps(3))])
    paths.take_until(lambda path: len(path.poses) == 3)
    robot.publish_odometry(3 * 10**9, np.eye(4))
    transforms.take_until(lambda transform: transform.header.stamp.sec == 3)
    process.interrupt()
    assert process.wait() == 0, process.output


def test_a_service_that_fails_answers_with_the_error(ros: Ros, monkeypatch):
    from lpr_ros.pose_graph_node.node import PoseGraphNode

    def fail(optimizer):
        raise RuntimeError('Indeterminate linear system')

    monkeypatch.setattr(PoseGraphOptimizer, 'optimize_robust', fail)
    ros.node(kind=PoseGraphNode)
    response = ros.call(ros.node(), Trigger, f'{NODE}/optimize')
    assert not response.success
    assert 'Indeterminate linear system' in response.message


def test_save_to_a_missing_folder_is_rejected_with_the_reason(ros: Ros, tmp_path):
    from lpr_ros.pose_graph_node.node import PoseGraphNode

    (tmp_path / 'file').touch()
    nowhere = Parameter('g2o_path', value=f'{tmp_path}/file/graph.g2o')
    ros.node(kind=PoseGraphNode, parameter_overrides=[nowhere])
    response = ros.call(ros.node(), Trigger, f'{NODE}/save_g2o')
    assert not response.success
    assert 'file/graph.g2o: expected a .g2o file in an existing folder' in response.message


def test_save_does_not_overwrite_files_of_other_types(ros: Ros, tmp_path):
    from lpr_ros.pose_graph_node.node import PoseGraphNode

    (tmp_path / 'thesis.tex').write_text('mine')
    other = Parameter('g2o_path', value=f'{tmp_path}/thesis.tex')
    ros.node(kind=PoseGraphNode, parameter_overrides=[other])
    response = ros.call(ros.node(), Trigger, f'{NODE}/save_g2o')
    assert not response.success
    assert (tmp_path / 'thesis.tex').read_text() == 'mine'


def test_invalid_parameter_is_named_on_startup(ros: Ros):
    wrong = ('--ros-args', '-p', 'optimizer.kernel_width:=-1.0')
    process = ros.start('-m', 'lpr_ros.pose_graph_node', *wrong)
    assert process.wait() == 1
    assert 'optimizer.kernel_width: -1.0 is not within' in process.output


def test_parameters_cannot_change_at_run_time(ros: Ros):
    from lpr_ros.pose_graph_node.node import PoseGraphNode

    node = ros.node(kind=PoseGraphNode)
    tester = ros.node()

    def change(name, value):
        request = SetParameters.Request(parameters=[Parameter(name, value=value)
                                                    .to_parameter_msg()])  # fmt: skip
        return ros.call(tester, SetParameters, f'{NODE}/set_parameters', request).results[0]

    assert (
        'restart' in change('g2o_path', '/etc/passwd').reason
    )  # else any client could choose the file to write
    assert 'restart' in change('optimizer.extra_iterations', 5).reason
    assert 'restart' in change('map_frame', 'world').reason
    assert node.get_parameter('map_frame').value == 'map'


class TestGraphUpdater:
    """Orders of messages that are hard to produce over DDS."""

    @pytest.fixture
    def path(self):
        path = KeyframePath('odom')
        for i, T in enumerate(laps(10)):
            path.add(keyframe(i, T))
        return path.message

    def test_restarted_lpr_node_starts_a_new_graph(self, path):
        updater = GraphUpdater(PoseGraphOptimizerConfig())
        assert updater.add_path(path)
        assert not updater.add_path(path)
        other = KeyframePath('odom')
        other.add(keyframe(50, np.eye(4), keyframe_id=0))
        assert updater.add_path(other.message)
        assert len(updater.optimizer.poses) == 1
        assert updater.add_path(Path())
        assert not updater.optimizer.poses

    def test_reloaded_map_keeps_the_loops_within_it(self, path):
        """As after kill -9: the last keyframes were not saved, and others follow."""
        updater = GraphUpdater(PoseGraphOptimizerConfig())
        updater.add_path(path)
        for query in (5, 9):
            updater.add_constraint(
                constraint_message(loop_closure(0, query, np.eye(4)), query * 10**9)
            )
        again = KeyframePath('odom')
        for i, T in enumerate(laps(8)):
            again.add(keyframe(i, T))
        again.add(keyframe(50, np.eye(4), keyframe_id=8))
        again.add(keyframe(51, np.eye(4), keyframe_id=9))
        assert updater.add_path(again.message)
        assert len(updater.optimizer.poses) == 10
        loops = [(e.from_id, e.to_id) for e in updater.optimizer.graph.edges if e.is_loop]
        assert loops == [(0, 5)]  # keyframe 9 is a different one now

    def test_loops_stand_if_published_more_often_than_retracted(self, path):
        """Two topics have no common order: every order ends with the same graph."""
        loop, other = loop_closure(0, 5, np.eye(4)), loop_closure(1, 7, np.eye(4))
        rival = replace(loop, T_match_query=pose_from_euler([1.0, 0.0, 0.0], [0.0, 0.0, 0.0]))
        plus = [constraint_message(x, x.query_id * 10**9) for x in (loop, loop, rival, other)]
        minus = [constraint_message(x, x.query_id * 10**9) for x in (loop, loop, other)]
        for order in set(permutations('+' * len(plus) + '-' * len(minus))):
            updater = GraphUpdater(PoseGraphOptimizerConfig())
            updater.add_path(path)
            published, retracted = iter(plus), iter(minus)
            for sign in order:
                if sign == '+':
                    updater.add_constraint(next(published))
                else:
                    updater.retract_constraint(next(retracted))
            (edge,) = updater.optimizer.graph.loops
            np.testing.assert_array_equal(edge.T_from_to, rival.T_match_query)
            assert not updater.rejected

    def test_a_loop_published_twice_counts_once_and_is_gone_after_two_retractions(self, path):
        updater = GraphUpdater(PoseGraphOptimizerConfig())
        updater.add_path(path)
        message = constraint_message(loop_closure(0, 5, np.eye(4)), 5 * 10**9)
        steps = (updater.add_constraint,) * 2 + (updater.retract_constraint,) * 2
        counts = []
        for change in steps:
            change(message)
            counts.append(len(updater.optimizer.graph.loops))
        assert counts == [1, 1, 1, 0]

    def test_a_retraction_before_its_loop_cancels_it(self, path):
        updater = GraphUpdater(PoseGraphOptimizerConfig())
        message = constraint_message(loop_closure(0, 5, np.eye(4)), 5 * 10**9)
        assert not updater.retract_constraint(message)
        assert not updater.add_constraint(message)
        updater.add_path(path)
        assert not updater.optimizer.graph.loops
        assert updater.add_constraint(message)  # trusted again
        assert len(updater.optimizer.graph.loops) == 1

    def test_a_loop_that_waits_for_its_keyframes_can_be_retracted(self, path):
        updater = GraphUpdater(PoseGraphOptimizerConfig())
        message = constraint_message(loop_closure(0, 5, np.eye(4)), 5 * 10**9)
        updater.add_constraint(message)
        updater.retract_constraint(message)
        updater.add_path(path)
        assert not updater.optimizer.graph.loops

    def test_early_retractions_are_bounded(self, path):
        updater = GraphUpdater(PoseGraphOptimizerConfig())
        for query_id in range(MAX_PENDING_LOOPS + 50):
            loop = loop_closure(0, 20 + query_id, np.eye(4))
            updater.retract_constraint(constraint_message(loop, 0))
        assert len(updater._surplus) == MAX_PENDING_LOOPS

    def test_loop_of_the_next_run_waits_for_its_keyframes(self, path):
        """Its ids exist in the previous run, with other stamps."""
        updater = GraphUpdater(PoseGraphOptimizerConfig())
        updater.add_path(path)
        loop = loop_closure(0, 5, np.eye(4))
        assert not updater.add_constraint(constraint_message(loop, 105 * 10**9))
        later = KeyframePath('odom')
        for i, T in enumerate(laps(10)):
            later.add(keyframe(100 + i, T, keyframe_id=i))
        updater.add_path(later.message)
        assert [edge.is_loop for edge in updater.optimizer.graph.edges].count(True) == 1

    def test_keyframe_without_odometry_has_an_id_but_no_pose(self, path):
        path.poses[4].pose.position.x = np.nan
        updater = GraphUpdater(PoseGraphOptimizerConfig())
        updater.add_path(path)
        assert set(updater.optimizer.poses) == set(range(10)) - {4}
        updater.add_constraint(constraint_message(loop_closure(0, 4, np.eye(4)), 4 * 10**9))
        assert 'keyframe 4 is not in the graph' in updater.rejected[0]

    def test_malformed_loops_are_rejected_with_the_reason(self, path):
        updater = GraphUpdater(PoseGraphOptimizerConfig())
        updater.add_path(path)
        message = constraint_message(loop_closure(0, 5, np.eye(4)), 5 * 10**9)
        message.pose.covariance = np.zeros(36)
        updater.add_constraint(message)
        updater.add_constraint(Odometry())
        assert 'positive definite' in updater.rejected[0]
        assert 'expected frame keyframe/<id>' in updater.rejected[1]
        assert not any(edge.is_loop for edge in updater.optimizer.graph.edges)

    def test_loop_beyond_the_pending_limit_is_rejected_by_name(self, path):
        """Every loop is in the graph, pending or rejected."""
        updater = GraphUpdater(PoseGraphOptimizerConfig())
        updater.add_path(path)
        for query_id in range(20, 20 + MAX_PENDING_LOOPS):
            updater.add_constraint(constraint_message(loop_closure(0, query_id, np.eye(4)), 0))
        assert not updater.rejected
        updater.add_constraint(constraint_message(loop_closure(0, 5, np.eye(4)), 5 * 10**9))
        assert not updater.rejected, 'a loop of known keyframes is added, not queued'
        updater.add_constraint(constraint_message(loop_closure(0, 9999, np.eye(4)), 0))
        (reason,) = updater.rejected
        assert 'loop closure 20 to 0: its keyframes have not arrived' in reason
