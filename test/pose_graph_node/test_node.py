"""pose_graph_node as a process of its own: fed as lpr_node feeds it, over DDS."""

import signal

from geometry_msgs.msg import TransformStamped
from nav_msgs.msg import Odometry, Path
import numpy as np
import pytest
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from ros_processes import Ros, wait_until
from std_srvs.srv import Trigger
from toy_graphs import LAP, closure, error_m, keyframe, laps, noisy

from lpr_ros.core.back_end import BackEndConfig
from lpr_ros.core.g2o import read_g2o
from lpr_ros.core.geometry import invert, pose_from_euler, pose_from_quaternion
from lpr_ros.graph_feed import GraphFeed
from lpr_ros.loop_messages import KeyframePath, constraint_message
from lpr_ros.pose_messages import odometry_message, pose_from_message
from lpr_ros.qos import LATCHED, LOOPS
from lpr_training.simulator import OdometryConfig
from lpr_training.simulator.odometry import drifting

NODE = '/pose_graph_node'
COUNT = 2 * LAP
WRONG = 4


class FakeLprNode:
    """Says what lpr_node would, on its topics."""

    def __init__(self, ros: Ros):
        node = ros.node('lpr_node')
        self.keyframes = node.create_publisher(Path, '~/keyframes', LATCHED)
        self.loops = node.create_publisher(Odometry, '~/loop_closures', LOOPS)
        self.odometry = node.create_publisher(Odometry, 'odometry', 10)
        self.path = KeyframePath('odom')

    def see(self, *keyframes):
        for each in keyframes:
            self.path.add(each)
        self.keyframes.publish(self.path.message)

    def close(self, loop, stamp_ns):
        self.loops.publish(constraint_message(loop, stamp_ns))

    def move(self, stamp_ns, T):
        self.odometry.publish(odometry_message(stamp_ns, 'odom', 'base', T))


@pytest.fixture
def drive(rng):
    """Truth, odometry that drifts, and loops by query: right every ten keyframes, some wrong."""
    T_true = laps(COUNT)
    drift = OdometryConfig(scale_sigma=0.0, heading_bias_deg=6.0, heading_walk_deg=0.5)
    T_odom = drifting(T_true, drift, rng)
    loops = {i: closure(i - LAP, i, noisy(invert(T_true[i - LAP]) @ T_true[i], rng))
             for i in range(LAP, COUNT, 10)}  # fmt: skip
    wrong = {}
    for i in rng.choice([i for i in range(LAP, COUNT) if i % 10], WRONG, replace=False):
        T_wrong = pose_from_euler(rng.normal(size=3), [0.0, 0.0, rng.uniform(-3.0, 3.0)])
        wrong[int(i)] = closure(int(rng.integers(0, i - 100)), int(i), T_wrong)
    return T_true, T_odom, loops | wrong, set(wrong)


def poses_of(path: Path) -> list[np.ndarray]:
    return [pose_from_message(pose.pose) for pose in path.poses]


def matrix(transform) -> np.ndarray:
    t, q = transform.translation, transform.rotation
    return pose_from_quaternion([t.x, t.y, t.z], [q.x, q.y, q.z, q.w])


def test_a_drive_with_wrong_loops_is_corrected(ros: Ros, drive, tmp_path):
    T_true, T_odom, loops, wrong = drive
    robot, tester = FakeLprNode(ros), ros.node()
    # What was said before the node is there must reach it too.
    keyframes = [keyframe(i, T) for i, T in enumerate(T_odom)]
    robot.see(*keyframes[:150])
    process = ros.start('-m', 'lpr_ros.pose_graph_node', '--ros-args',
                        '-p', f'g2o_path:={tmp_path}/graph.g2o')  # fmt: skip
    paths = ros.listen(tester, Path, f'{NODE}/path', LATCHED)
    transforms = ros.listen(tester, TransformStamped, f'{NODE}/map_to_odom', 100)
    assert len(paths.take().poses) == 150
    # Loops come before the keyframes they name.
    for query, loop in loops.items():
        robot.close(loop, keyframes[query].stamp_ns)
    robot.see(*keyframes[150:])
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
    answer = ros.call(tester, Trigger, f'{NODE}/optimise')
    assert answer.success
    assert answer.message.startswith(f'{WRONG} loops dropped')
    named = {int(pair.split(' to ')[0]) for pair in answer.message.split(': ')[1].split(', ')}
    assert named == wrong
    final = poses_of(paths.take())
    assert error_m(dict(enumerate(final)), T_true) < 0.15 * drift_m

    # Odometry seen through map -> odom is where the corrected path says.
    ros.matched(robot.odometry)
    robot.move(keyframes[-1].stamp_ns, T_odom[-1])
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


def test_time_that_jumps_back_is_a_new_session(ros: Ros):
    """The second run stands elsewhere in its own odometry; a loop then joins the two."""
    robot, tester = FakeLprNode(ros), ros.node()
    process = ros.start('-m', 'lpr_ros.pose_graph_node')
    paths = ros.listen(tester, Path, f'{NODE}/path', LATCHED)
    transforms = ros.listen(tester, TransformStamped, f'{NODE}/map_to_odom', 100)
    T_true = laps(20)
    shift = pose_from_euler([100.0, 50.0, 0.0], [0.0, 0.0, 1.0])  # T_second_first
    robot.see(*[keyframe(i, T) for i, T in enumerate(T_true)])
    paths.take_until(lambda path: len(path.poses) == 20)
    ros.matched(robot.odometry)
    robot.move(20 * 10**9, T_true[-1])
    np.testing.assert_allclose(matrix(transforms.take().transform), np.eye(4), atol=1e-6)

    second = [keyframe(i, shift @ T, keyframe_id=20 + i) for i, T in enumerate(T_true)]
    robot.move(0, shift @ T_true[0])
    np.testing.assert_allclose(matrix(transforms.take().transform), np.eye(4), atol=1e-6)
    robot.see(*second)
    apart = paths.take_until(lambda path: len(path.poses) == 40)
    frames = [pose.header.frame_id for pose in apart.poses]
    assert frames == ['map/0'] * 20 + ['map'] * 20
    np.testing.assert_allclose(poses_of(apart)[39], shift @ T_true[19], atol=1e-6)

    robot.close(closure(10, 30, np.eye(4)), second[10].stamp_ns)
    joined = paths.take()
    assert {pose.header.frame_id for pose in joined.poses} == {'map'}
    np.testing.assert_allclose(poses_of(joined)[20:], T_true, atol=1e-3)
    robot.move(19 * 10**9, shift @ T_true[-1])
    T_map_odom = matrix(transforms.take().transform)
    np.testing.assert_allclose(T_map_odom, invert(shift), atol=1e-2)
    process.interrupt(signal.SIGTERM)
    assert process.wait() == 0, process.output


def test_a_graph_that_cannot_be_written_is_an_answer_in_words(ros: Ros, tmp_path):
    from lpr_ros.pose_graph_node import PoseGraphNode

    (tmp_path / 'file').touch()
    nowhere = Parameter('g2o_path', value=f'{tmp_path}/file/graph.g2o')
    ros.node(kind=PoseGraphNode, parameter_overrides=[nowhere])
    answer = ros.call(ros.node(), Trigger, f'{NODE}/save_g2o')
    assert not answer.success
    assert 'file/graph.g2o: expected a file .g2o in a folder that is there' in answer.message


def test_a_graph_takes_the_place_of_no_other_file(ros: Ros, tmp_path):
    from lpr_ros.pose_graph_node import PoseGraphNode

    (tmp_path / 'thesis.tex').write_text('mine')
    other = Parameter('g2o_path', value=f'{tmp_path}/thesis.tex')
    ros.node(kind=PoseGraphNode, parameter_overrides=[other])
    answer = ros.call(ros.node(), Trigger, f'{NODE}/save_g2o')
    assert not answer.success
    assert (tmp_path / 'thesis.tex').read_text() == 'mine'


def test_bad_parameters_are_named(ros: Ros):
    wrong = ('--ros-args', '-p', 'back_end.kernel_width:=-1.0')
    process = ros.start('-m', 'lpr_ros.pose_graph_node', *wrong)
    assert process.wait() == 1
    assert 'back_end.kernel_width: -1.0 is not within' in process.output


def test_nothing_changes_live(ros: Ros):
    from lpr_ros.pose_graph_node import PoseGraphNode

    node = ros.node(kind=PoseGraphNode)
    tester = ros.node()

    def change(name, value):
        request = SetParameters.Request(parameters=[Parameter(name, value=value)
                                                    .to_parameter_msg()])  # fmt: skip
        return ros.call(tester, SetParameters, f'{NODE}/set_parameters', request).results[0]

    assert 'restart' in change('g2o_path', '/etc/passwd').reason  # or who asks could write there
    assert 'restart' in change('back_end.extra_iterations', 5).reason
    assert 'restart' in change('map_frame', 'world').reason
    assert node.get_parameter('map_frame').value == 'map'


class TestFeed:
    """What is hard to time over DDS."""

    @pytest.fixture
    def path(self):
        path = KeyframePath('odom')
        for i, T in enumerate(laps(10)):
            path.add(keyframe(i, T))
        return path.message

    def test_a_node_that_begins_anew_makes_a_new_graph(self, path):
        feed = GraphFeed(BackEndConfig())
        assert feed.take_path(path)
        assert not feed.take_path(path)
        other = KeyframePath('odom')
        other.add(keyframe(50, np.eye(4), keyframe_id=0))
        assert feed.take_path(other.message)
        assert len(feed.back_end.poses) == 1
        assert feed.take_path(Path())
        assert not feed.back_end.poses

    def test_a_node_that_loads_its_map_again_keeps_the_loops_in_it(self, path):
        """As after kill -9: the last keyframes were not saved, and new ones follow."""
        feed = GraphFeed(BackEndConfig())
        feed.take_path(path)
        for query in (5, 9):
            feed.take_loop(constraint_message(closure(0, query, np.eye(4)), query * 10**9))
        again = KeyframePath('odom')
        for i, T in enumerate(laps(8)):
            again.add(keyframe(i, T))
        again.add(keyframe(50, np.eye(4), keyframe_id=8))
        again.add(keyframe(51, np.eye(4), keyframe_id=9))
        assert feed.take_path(again.message)
        assert len(feed.back_end.poses) == 10
        loops = [(e.from_id, e.to_id) for e in feed.back_end.graph.edges if e.is_loop]
        assert loops == [(0, 5)]  # keyframe 9 is another one now

    def test_a_loop_of_a_run_to_come_waits_for_it(self, path):
        """The ids are known from the run before, but not the stamp."""
        feed = GraphFeed(BackEndConfig())
        feed.take_path(path)
        loop = closure(0, 5, np.eye(4))
        assert not feed.take_loop(constraint_message(loop, 105 * 10**9))
        later = KeyframePath('odom')
        for i, T in enumerate(laps(10)):
            later.add(keyframe(100 + i, T, keyframe_id=i))
        feed.take_path(later.message)
        assert [edge.is_loop for edge in feed.back_end.graph.edges].count(True) == 1

    def test_keyframes_without_odometry_have_a_number_but_no_pose(self, path):
        path.poses[4].pose.position.x = np.nan
        feed = GraphFeed(BackEndConfig())
        feed.take_path(path)
        assert set(feed.back_end.poses) == set(range(10)) - {4}
        feed.take_loop(constraint_message(closure(0, 4, np.eye(4)), 4 * 10**9))
        assert 'keyframe 4 is not in the graph' in feed.rejected[0]

    def test_damaged_loops_are_told_and_left_out(self, path):
        feed = GraphFeed(BackEndConfig())
        feed.take_path(path)
        message = constraint_message(closure(0, 5, np.eye(4)), 5 * 10**9)
        message.pose.covariance = np.zeros(36)
        feed.take_loop(message)
        feed.take_loop(Odometry())
        assert 'positive definite' in feed.rejected[0]
        assert 'expected a frame keyframe/<id>' in feed.rejected[1]
        assert not any(edge.is_loop for edge in feed.back_end.graph.edges)
