"""Adapters: what each back-end gets. LIO-SAM's messages are real; of the others only the fields
are known here (PEERS.md), so stand-in classes with exactly those fields take their place."""

from dataclasses import dataclass, field
import re
import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

from geometry_msgs.msg import Pose, Transform
from nav_msgs.msg import Odometry
import numpy as np
import pytest
from ros_processes import Ros
from scipy.spatial.transform import Rotation
from std_msgs.msg import Float64MultiArray, Header

from lpr_ros.backends.base import seen_by_one_sensor, seen_from_base
from lpr_ros.backends.foreign_nodes import ForeignNodes, ForeignNodesConfig
from lpr_ros.backends.lio_sam import WAITING, LioSamConfig
from lpr_ros.backends.pose_graph_tools import PoseGraphToolsConfig
from lpr_ros.backends.rtabmap import RtabmapConfig
from lpr_ros.backends.selection import ADAPTERS, AdaptersConfig, Backends
from lpr_ros.backends.swarm_slam import SwarmSlamConfig
from lpr_ros.core.errors import BackendError
from lpr_ros.core.geometry import invert, pose_from_euler, pose_from_quaternion
from lpr_ros.core.records import LoopClosure, Match, Place
from lpr_ros.core.tangent import adjoint, motion_between, propagate
from lpr_ros.parameters import ConfigParameters
from lpr_ros.pose_messages import odometry_message, pose_from_message, pose_message

ADAPTERS_CONFIG = {'rtabmap': RtabmapConfig(), 'swarm_slam': SwarmSlamConfig()}
START_NS = 1_700_000_000_123_456_789
T_BASE_SENSOR = pose_from_euler([1.2, 0.1, 1.8], [0.0, 0.05, 0.3])
SAME = np.eye(4)  # the sensor is the base


def place(number: int, seconds: float, T_odom_sensor=None, session='robot') -> Place:
    stamp_ns = START_NS + round(seconds * 1e9)
    return Place(number, session, number, stamp_ns, T_odom_sensor, 0.0)


def refuse(name: str, reason: str) -> None:
    raise AssertionError(f'{name}: {reason}')


def loop_between(query_id: int, match_id: int, T=None, covariance=None) -> LoopClosure:
    covariance = np.eye(6) * 0.01 if covariance is None else covariance
    T = np.eye(4) if T is None else T
    return LoopClosure(query_id, match_id, T, covariance, 0.9, 100, Match(match_id, 0.1, 0.9))


def matrix(transform: Transform) -> np.ndarray:
    t, q = transform.translation, transform.rotation
    return pose_from_quaternion([t.x, t.y, t.z], [q.x, q.y, q.z, q.w])


# The fields of PEERS.md section 2. Unknown names raise, as in real messages.


@dataclass
class Link:
    from_id: int = 0
    to_id: int = 0
    type: int = 0
    transform: Transform = field(default_factory=Transform)
    information: Any = None


@dataclass
class AddLinkRequest:
    link: Link = field(default_factory=Link)


@dataclass
class GetMapRequest:
    global_map: bool = False
    optimized: bool = False
    graph_only: bool = False


@dataclass
class PoseGraphEdge:
    header: Header = field(default_factory=Header)
    key_from: int = 0
    key_to: int = 0
    robot_from: int = 0
    robot_to: int = 0
    type: int = 0
    pose: Pose = field(default_factory=Pose)
    covariance: Any = None


@dataclass
class PoseGraph:
    header: Header = field(default_factory=Header)
    nodes: list = field(default_factory=list)
    edges: list = field(default_factory=list)


@dataclass
class IntraRobotLoopClosure:
    keyframe0_id: int = 0
    keyframe1_id: int = 0
    success: bool = False
    transform: Transform = field(default_factory=Transform)


@dataclass
class LocalKeyframeMatch:
    keyframe0_id: int = 0
    keyframe1_id: int = 0


@dataclass
class KeyframeOdom:
    id: int = 0
    odom: Odometry = field(default_factory=Odometry)


STAND_INS = {
    'rtabmap_msgs.msg': {'Link': Link, 'MapData': SimpleNamespace},
    'rtabmap_msgs.srv': {
        'AddLink': SimpleNamespace(Request=AddLinkRequest),
        'GetMap': SimpleNamespace(Request=GetMapRequest),
    },
    'pose_graph_tools_msgs.msg': {'PoseGraph': PoseGraph, 'PoseGraphEdge': PoseGraphEdge},
    'cslam_common_interfaces.msg': {
        'IntraRobotLoopClosure': IntraRobotLoopClosure,
        'KeyframeOdom': KeyframeOdom,
        'LocalKeyframeMatch': LocalKeyframeMatch,
    },
}


class RecordingNode:
    """Stands in for a node, as DDS cannot send the stand-in messages: keeps what it is given."""

    def __init__(self):
        self.sent: dict[str, list] = {}
        self.callbacks: dict[str, Any] = {}
        self.answers: dict[str, Any] = {}
        self.removed: list = []
        self.warnings: list[str] = []

    def create_publisher(self, kind, topic, qos):
        return SimpleNamespace(publish=self.sent.setdefault(topic, []).append)

    def create_subscription(self, kind, topic, callback, qos):
        self.callbacks[topic] = callback
        return topic

    def create_client(self, kind, name):
        sent = self.sent.setdefault(name, [])

        def call_async(request):
            sent.append(request)
            future = SimpleNamespace(result=lambda: self.answers[name])
            return SimpleNamespace(add_done_callback=lambda done: done(future))

        return SimpleNamespace(
            call_async=call_async, service_is_ready=lambda: name in self.answers, srv_name=name
        )

    def get_logger(self):
        return SimpleNamespace(warning=self.warnings.append)

    def _remove(self, made):
        self.removed.append(made)

    destroy_publisher = destroy_subscription = destroy_client = _remove


@pytest.fixture
def installed(monkeypatch):
    """Put the stand-in packages where real ones would be."""
    for name, classes in STAND_INS.items():
        package = name.split('.')[0]
        monkeypatch.setitem(sys.modules, package, ModuleType(package))
        module = ModuleType(name)
        vars(module).update(classes)
        monkeypatch.setitem(sys.modules, name, module)


class TestSelection:
    def test_one_that_is_not_installed_is_named_and_the_others_go_on(self, ros: Ros):
        backends = Backends(ros.node(), ADAPTERS, AdaptersConfig(), refuse)
        assert backends.names == ('lio_sam',)
        assert set(backends.missing) == {'rtabmap', 'pose_graph_tools', 'swarm_slam'}
        assert 'expected the package rtabmap_msgs' in backends.missing['rtabmap']
        assert 'pose_graph_tools_msgs' in backends.missing['pose_graph_tools']
        assert 'cslam_common_interfaces' in backends.missing['swarm_slam']
        backends.close()

    def test_the_settings_are_parameters(self, ros: Ros):
        defaults = AdaptersConfig()
        assert ConfigParameters(ros.node(), defaults).read() == defaults

    def test_one_that_cannot_take_a_loop_does_not_hold_the_others_back(self, installed):
        node = RecordingNode()
        drops = {}
        backends = Backends(
            node, ['rtabmap', 'pose_graph_tools'], AdaptersConfig(), drops.__setitem__
        )
        backends.publish(loop_between(5, 1), place(5, 60.0), place(1, 0.0), SAME, SAME)
        assert len(node.sent['external_loop_closures']) == 1
        assert set(drops) == {'loop.rtabmap'}
        assert 'loop 5 to 1' in drops['loop.rtabmap']
        backends.close()
        assert len(node.removed) == 4


class TestLioSam:
    @pytest.fixture
    def adapter(self, ros: Ros):
        node = ros.node()
        inbox = ros.listen(ros.node(), Float64MultiArray, 'lio_loop/loop_closure_detection')
        adapter = ADAPTERS['lio_sam'](node, LioSamConfig(interval_s=0.3))
        ros.matched(adapter._publisher)
        return adapter, inbox

    def test_query_comes_first_in_seconds_and_rounding_does_not_change_keyframes(self, adapter):
        adapter, inbox = adapter
        query, match = place(5, 60.0), place(1, 0.0)
        adapter.publish(loop_between(5, 1), query, match, SAME)
        current, previous = inbox.take().data
        assert current == pytest.approx(query.stamp_ns * 1e-9, abs=1e-6)
        assert previous == pytest.approx(match.stamp_ns * 1e-9, abs=1e-6)
        # What LIO-SAM does: the first keyframe at or after, the last at or before.
        assert query.stamp_ns * 1e-9 >= current
        assert match.stamp_ns * 1e-9 <= previous

    def test_a_burst_comes_one_by_one_in_order(self, adapter):
        adapter, inbox = adapter
        for i in range(3):
            adapter.publish(loop_between(i, 0), place(i, 60.0 + i), place(0, 0.0), SAME)
        arrivals, times = [], []
        for _ in range(3):
            times.append(inbox.take().data[0])
            arrivals.append(time.monotonic())
        assert times == sorted(times)
        assert np.diff(arrivals).min() > 0.25
        # After a pause the next goes out at once.
        assert not inbox.drain()
        adapter._timer.cancel()
        adapter.publish(loop_between(9, 0), place(9, 99.0), place(0, 0.0), SAME)
        assert inbox.take(0.25)

    def test_a_loop_that_falls_out_of_a_long_queue_is_counted(self, ros: Ros):
        """Too many at once: every loop is sent, waits, or is reported."""
        drops = []
        config = AdaptersConfig(lio_sam=LioSamConfig(interval_s=60.0))
        backends = Backends(ros.node(), ['lio_sam'], config, lambda *drop: drops.append(drop))
        for i in range(1 + WAITING):  # the first is sent at once
            backends.publish(loop_between(i, 0), place(i, 60.0 + i), place(0, 0.0), SAME, SAME)
        assert not drops
        for i in range(3):
            backends.publish(loop_between(900 + i, 0), place(9, 999.0), place(0, 0.0), SAME, SAME)
        assert [kind for kind, _ in drops] == ['loop.lio_sam'] * 3
        assert f'{WAITING} others wait, of which one in 60.0 s is sent' in drops[0][1]
        backends.close()


class TestForeignNodes:
    """Odometry carries the ends of a loop to the nodes nearest in time."""

    @pytest.fixture
    def drive(self, rng):
        """True poses of base and sensor, two keyframes, and the loop between them."""
        T_base = {t: pose_from_euler([t, 0.02 * t**2, 0.0], [0.0, 0.02, 0.05 * t])
                  for t in (0.0, 0.7, 30.0, 30.4)}  # fmt: skip
        nodes = ForeignNodes(ForeignNodesConfig())
        nodes.add(11, START_NS + 700_000_000, T_base[0.7])
        nodes.add(42, START_NS + 30_400_000_000, T_base[30.4])
        match = place(0, 0.0, T_base[0.0] @ T_BASE_SENSOR)
        query = place(9, 30.0, T_base[30.0] @ T_BASE_SENSOR)
        root = rng.normal(size=(6, 6)) * 0.01
        T_match_query = invert(match.T_odom_sensor) @ query.T_odom_sensor
        loop = loop_between(9, 0, T_match_query, root @ root.T + 1e-6 * np.eye(6))
        return nodes, T_base, loop, query, match

    def test_the_moved_loop_is_the_pose_between_the_nodes(self, drive):
        nodes, T_base, loop, query, match = drive
        moved = nodes.move(loop, query, match, T_BASE_SENSOR)
        assert (moved.match_id, moved.query_id) == (11, 42)
        expected = invert(T_base[0.7]) @ T_base[30.4]
        np.testing.assert_allclose(moved.T_match_query, expected, atol=1e-9)

    def test_the_covariance_is_that_of_moved_samples(self, drive, rng):
        nodes, _, loop, query, match = drive
        moved = nodes.move(loop, query, match, T_BASE_SENSOR)
        motions = rng.multivariate_normal(np.zeros(6), loop.covariance, size=2000)
        step = np.tile(np.eye(4), (len(motions), 1, 1))
        step[:, :3, :3] = Rotation.from_rotvec(motions[:, 3:]).as_matrix()
        step[:, :3, 3] = motions[:, :3]
        samples = [
            nodes.move(loop_between(9, 0, loop.T_match_query @ s), query, match, T_BASE_SENSOR)
            for s in step
        ]
        seen = motion_between(moved.T_match_query, np.stack([s.T_match_query for s in samples]))
        deviation = np.sqrt(np.diag(moved.covariance))
        scale = np.outer(deviation, deviation)
        np.testing.assert_allclose(np.cov(seen.T) / scale, moved.covariance / scale, atol=0.1)

    def test_nodes_too_far_away_are_refused(self, drive):
        nodes, _, loop, query, match = drive
        late = place(9, 35.0, query.T_odom_sensor)
        with pytest.raises(BackendError, match=r'node 42 is 4.60 s'):
            nodes.move(loop, late, match, T_BASE_SENSOR)
        other_odometry = place(9, 30.0, np.eye(4))
        with pytest.raises(BackendError, match=r'expected at most 2.0 s and 5.0 m'):
            nodes.move(loop, other_odometry, match, T_BASE_SENSOR)
        with pytest.raises(BackendError, match='no odometry'):
            nodes.move(loop, place(9, 30.0), match, T_BASE_SENSOR)
        with pytest.raises(BackendError, match='both at node 11'):
            nodes.move(loop, match, match, T_BASE_SENSOR)
        with pytest.raises(BackendError, match='not told its nodes'):
            ForeignNodes(ForeignNodesConfig()).move(loop, query, match, T_BASE_SENSOR)


class TestRtabmap:
    def test_a_link_between_its_nodes_with_our_information(self, installed):
        node = RecordingNode()
        adapter = ADAPTERS['rtabmap'](node, RtabmapConfig())
        T_base = [np.eye(4), pose_from_euler([20.0, 3.0, 0.0], [0.0, 0.0, 1.0])]

        def map_node(number, seconds):
            stamp = START_NS / 1e9 + seconds
            return SimpleNamespace(id=number, stamp=stamp, pose=pose_message(T_base[number - 1]))

        first, second = map_node(1, 0.0), map_node(2, 60.0)
        node.answers = {
            'rtabmap/add_link': None,
            'rtabmap/get_map_data': SimpleNamespace(data=SimpleNamespace(nodes=[first])),
        }
        for _ in range(2):
            node.callbacks['rtabmap/mapData'](SimpleNamespace(nodes=[second]))
        assert len(node.sent['rtabmap/get_map_data']) == 1
        match = place(3, 0.0, T_base[0] @ T_BASE_SENSOR)
        query = place(8, 60.0, T_base[1] @ T_BASE_SENSOR)
        covariance = np.diag([0.1, 0.2, 0.3, 0.01, 0.02, 0.03])
        T_match_query = invert(match.T_odom_sensor) @ query.T_odom_sensor
        loop = loop_between(8, 3, T_match_query, covariance)
        adapter.publish(loop, query, match, T_BASE_SENSOR)
        link = node.sent['rtabmap/add_link'][0].link
        assert (link.from_id, link.to_id, link.type) == (1, 2, 4)
        np.testing.assert_allclose(matrix(link.transform), T_base[1], atol=1e-6)
        information = np.reshape(link.information, (6, 6))
        assert len(link.information) == 36
        # The base sees a motion of the sensor through the mount; with none it is the inverse.
        assert np.linalg.det(information) == pytest.approx(1 / np.linalg.det(covariance))

    def test_without_the_service_a_loop_is_refused(self, installed):
        adapter = ADAPTERS['rtabmap'](RecordingNode(), RtabmapConfig())
        with pytest.raises(BackendError, match='rtabmap/add_link'):
            adapter.publish(loop_between(1, 0), place(1, 60.0), place(0, 0.0), SAME)


def test_the_ends_of_a_loop_may_be_seen_by_two_lidars(installed):
    T_base = [pose_from_euler([1.0, 2.0, 0.0], [0.0, 0.1, 1.0]),
              pose_from_euler([3.0, 0.5, 0.2], [0.1, 0.0, -2.0])]  # fmt: skip
    left = T_BASE_SENSOR
    right = pose_from_euler([-0.4, -0.8, 0.3], [0.0, 0.2, 2.0])
    match = place(3, 0.0, T_base[0] @ left)
    query = place(8, 60.0, T_base[1] @ right)
    covariance = np.diag(np.arange(1.0, 7.0))
    loop = loop_between(8, 3, invert(match.T_odom_sensor) @ query.T_odom_sensor, covariance)
    moved, seen = seen_by_one_sensor(loop, query, right, left)
    np.testing.assert_allclose(seen.T_odom_sensor, T_base[1] @ left, atol=1e-9)
    base = seen_from_base(moved, left)
    np.testing.assert_allclose(base.T_match_query, invert(T_base[0]) @ T_base[1], atol=1e-9)
    # What is uncertain is the sensor that saw the query.
    np.testing.assert_allclose(base.covariance, propagate(adjoint(right), covariance), atol=1e-9)

    node, dropped = RecordingNode(), []
    names, config = ['pose_graph_tools'], AdaptersConfig()
    backends = Backends(node, names, config, lambda *reason: dropped.append(reason))
    backends.publish(loop, query, match, right, left)
    (graph,) = node.sent['external_loop_closures']
    pose = pose_from_message(graph.edges[0].pose)
    np.testing.assert_allclose(pose, invert(T_base[0]) @ T_base[1], atol=1e-6)
    assert not dropped


@pytest.mark.parametrize('reader', ['hydra', 'kimera'])
def test_hydra_and_kimera_read_the_same_loop(installed, reader):
    """Each reads its way: the base at the query seen from the base at the match comes out."""
    node = RecordingNode()
    T = pose_from_euler([2.0, -1.0, 0.1], [0.0, 0.0, 2.0])
    covariance = np.diag(np.arange(1.0, 7.0))
    query, match = place(8, 60.0), place(3, 0.0)
    adapter = ADAPTERS['pose_graph_tools'](node, PoseGraphToolsConfig(reader=reader, robot=2))
    adapter.publish(loop_between(8, 3, T, covariance), query, match, T_BASE_SENSOR)
    (graph,) = node.sent['external_loop_closures']
    (edge,) = graph.edges
    assert (edge.type, edge.robot_from, edge.robot_to) == (1, 2, 2)
    pose = pose_from_message(edge.pose)
    if reader == 'hydra':  # stamps; to_T_from
        T_to_from, ends = pose, {query.stamp_ns: 'query', match.stamp_ns: 'match'}
    else:  # node numbers; from_T_to
        T_to_from, ends = invert(pose), {query.id: 'query', match.id: 'match'}
    is_from_query = ends[edge.key_from] == 'query'
    assert {ends[edge.key_from], ends[edge.key_to]} == {'query', 'match'}
    got = T_to_from if is_from_query else invert(T_to_from)
    np.testing.assert_allclose(got @ T_BASE_SENSOR, T_BASE_SENSOR @ T, atol=1e-12)
    expected = propagate(adjoint(T_BASE_SENSOR), covariance)
    np.testing.assert_allclose(np.reshape(edge.covariance, (6, 6)), expected)


@pytest.mark.parametrize('name', ['lio_sam', 'pose_graph_tools'])
def test_what_knows_this_run_only_gets_no_loop_to_another(installed, ros, name):
    """LIO-SAM takes a time before its own for that of its first keyframe: a wrong loop."""
    adapter = ADAPTERS[name](ros.node() if name == 'lio_sam' else RecordingNode(),
                             getattr(AdaptersConfig(), name))  # fmt: skip
    with pytest.raises(BackendError, match="session 'yesterday', expected 'robot'"):
        adapter.publish(
            loop_between(5, 1), place(5, 60.0), place(1, 0.0, session='yesterday'), SAME
        )
    adapter.close()


@pytest.mark.parametrize('with_pose', [True, False])
def test_swarm_slam_gets_the_pose_of_keyframe_1_in_keyframe_0(installed, with_pose):
    node = RecordingNode()
    adapter = ADAPTERS['swarm_slam'](node, SwarmSlamConfig(with_pose=with_pose))
    poses = [np.eye(4), pose_from_euler([20.0, 3.0, 0.0], [0.0, 0.0, 1.0])]
    places = [place(30 + i, 60.0 * i, T) for i, T in enumerate(poses)]
    for i, (T, where) in enumerate(zip(poses, places, strict=True)):
        odometry = odometry_message(where.stamp_ns, 'odom', 'base', T)
        node.callbacks['cslam/keyframe_odom'](KeyframeOdom(i, odometry))
    adapter.publish(loop_between(31, 30, poses[1]), places[1], places[0], SAME)
    topic = 'cslam/intra_robot_loop_closure' if with_pose else 'cslam/local_keyframe_match'
    (message,) = node.sent[topic]
    assert (message.keyframe0_id, message.keyframe1_id) == (0, 1)
    if with_pose:
        assert message.success
        np.testing.assert_allclose(matrix(message.transform), poses[1], atol=1e-12)


@pytest.mark.parametrize('name', ['rtabmap', 'swarm_slam'])
def test_a_node_without_a_proper_pose_is_told_and_left_out(installed, name):
    node = RecordingNode()
    adapter = ADAPTERS[name](node, ADAPTERS_CONFIG[name])
    node.answers['rtabmap/add_link'] = None  # the service is there
    poses = [np.eye(4), pose_from_euler([20.0, 3.0, 0.0], [0.0, 0.0, 1.0])]
    places = [place(30 + i, 60.0 * i, T) for i, T in enumerate(poses)]
    for i, (T, where) in enumerate(zip(poses, places, strict=True)):
        pose = pose_message(T)
        if i == 0:
            pose.orientation.x = float('nan')
        if name == 'rtabmap':
            seen = SimpleNamespace(id=i, stamp=where.stamp_ns * 1e-9, pose=pose)
            node.callbacks['rtabmap/mapData'](SimpleNamespace(nodes=[seen]))
        else:
            message = odometry_message(where.stamp_ns, 'odom', 'base', T)
            message.pose.pose = pose
            node.callbacks['cslam/keyframe_odom'](KeyframeOdom(i, message))
    assert len(node.warnings) == 1
    assert re.search(f'{name}: (node|keyframe) 0: .*nan', node.warnings[0])
    with pytest.raises(BackendError, match='keyframe'):
        adapter.publish(loop_between(31, 30, poses[1]), places[1], places[0], SAME)
