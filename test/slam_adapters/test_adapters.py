"""What each SLAM adapter sends to its back-end.

LIO-SAM takes a standard message. The message packages of the others are not installed here, so
stand-in classes with the same fields take their place.
"""

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

from lpr_ros.conversions.poses import odometry_message, pose_from_message, pose_message
from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import AdapterError
from lpr_ros.core.geometry.se3 import (
    adjoint,
    invert,
    local_error,
    pose_from_euler,
    pose_from_quaternion,
    propagate,
)
from lpr_ros.core.types import LoopClosure, Match, Place
from lpr_ros.ros_utils.parameters import ConfigParameters
from lpr_ros.slam_adapters.base import loop_between_base_poses
from lpr_ros.slam_adapters.lio_sam import QUEUE_SIZE, LioSamConfig
from lpr_ros.slam_adapters.node_association import NodeAssociation, NodeAssociationConfig
from lpr_ros.slam_adapters.pose_graph_tools import PoseGraphToolsConfig
from lpr_ros.slam_adapters.registry import (
    ADAPTERS,
    AdapterEntry,
    SlamAdapters,
    adapters_config,
    move_query_to_match_sensor,
)
from lpr_ros.slam_adapters.rtabmap import RtabmapConfig
from lpr_ros.slam_adapters.swarm_slam import SwarmSlamConfig

AdaptersConfig = adapters_config(ADAPTERS)
START_NS = 1_700_000_000_123_456_789
T_BASE_SENSOR = pose_from_euler([1.2, 0.1, 1.8], [0.0, 0.05, 0.3])
IDENTITY = np.eye(4)  # the sensor frame is the base frame


def place(number: int, seconds: float, T_odom_sensor=None, session='robot') -> Place:
    stamp_ns = START_NS + round(seconds * 1e9)
    return Place(number, session, number, stamp_ns, T_odom_sensor, 0.0)


def fail_on_drop(name: str, reason: str) -> None:
    raise AssertionError(f'{name}: {reason}')


def loop_between(query_id: int, match_id: int, T=None, covariance=None) -> LoopClosure:
    covariance = np.eye(6) * 0.01 if covariance is None else covariance
    T = np.eye(4) if T is None else T
    return LoopClosure(query_id, match_id, T, covariance, 0.9, 100, Match(match_id, 0.1, 0.9))


def matrix(transform: Transform) -> np.ndarray:
    t, q = transform.translation, transform.rotation
    return pose_from_quaternion([t.x, t.y, t.z], [q.x, q.y, q.z, q.w])


# Dataclasses reject unknown fields, as real messages do.


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
    """Replaces a node, as DDS cannot send the stand-in messages: records what is sent."""

    def __init__(self):
        self.sent: dict[str, list] = {}
        self.callbacks: dict[str, Any] = {}
        self.responses: dict[str, Any] = {}
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
            future = SimpleNamespace(result=lambda: self.responses[name])
            return SimpleNamespace(add_done_callback=lambda done: done(future))

        return SimpleNamespace(
            call_async=call_async, service_is_ready=lambda: name in self.responses, srv_name=name
        )

    def get_logger(self):
        return SimpleNamespace(warning=self.warnings.append)

    def _remove(self, entity):
        self.removed.append(entity)

    destroy_publisher = destroy_subscription = destroy_client = _remove


@pytest.fixture
def installed(monkeypatch):
    """Make the stand-in packages importable."""
    for name, classes in STAND_INS.items():
        package = name.split('.')[0]
        monkeypatch.setitem(sys.modules, package, ModuleType(package))
        module = ModuleType(name)
        vars(module).update(classes)
        monkeypatch.setitem(sys.modules, name, module)


class TestRegistry:
    def test_adapter_without_its_messages_is_reported_and_the_others_work(self, ros: Ros):
        adapters = SlamAdapters(ros.node(), ADAPTERS, AdaptersConfig(), fail_on_drop)
        assert adapters.names == ('lio_sam',)
        assert set(adapters.missing) == {'rtabmap', 'pose_graph_tools', 'swarm_slam'}
        assert 'install the package rtabmap_msgs' in adapters.missing['rtabmap']
        assert 'pose_graph_tools_msgs' in adapters.missing['pose_graph_tools']
        assert 'cslam_common_interfaces' in adapters.missing['swarm_slam']
        adapters.close()

    def test_settings_of_all_adapters_are_parameters(self, ros: Ros):
        defaults = AdaptersConfig()
        assert ConfigParameters(ros.node(), defaults).read() == defaults

    def test_new_adapter_is_one_entry(self, monkeypatch):
        """Its section, its parameters and its selection by name all follow from the entry."""

        @dataclass(frozen=True)
        class PairsConfig(Config):
            topic: str = option('pairs', 'Topic of the pairs of keyframe ids', fixed=True)

        class Pairs:
            def __init__(self, node, config):
                self._pairs = node.create_publisher(list, config.topic, 10)

            def publish(self, loop, query, match, T_base_sensor):
                self._pairs.publish([query.id, match.id])

        monkeypatch.setitem(ADAPTERS, 'pairs', AdapterEntry(Pairs, PairsConfig))
        config = adapters_config(ADAPTERS).from_dict({'pairs': {'topic': 'loop_pairs'}})
        node = RecordingNode()
        adapters = SlamAdapters(node, ['pairs'], config, fail_on_drop)
        adapters.publish(loop_between(5, 1), place(5, 60.0), place(1, 0.0), IDENTITY, IDENTITY)
        assert node.sent == {'loop_pairs': [[5, 1]]}

    def test_adapter_that_drops_a_loop_does_not_affect_the_others(self, installed):
        node = RecordingNode()
        drops = {}
        adapters = SlamAdapters(
            node, ['rtabmap', 'pose_graph_tools'], AdaptersConfig(), drops.__setitem__
        )
        adapters.publish(loop_between(5, 1), place(5, 60.0), place(1, 0.0), IDENTITY, IDENTITY)
        assert len(node.sent['external_loop_closures']) == 1
        assert set(drops) == {'rtabmap'}
        assert 'loop 5 to 1' in drops['rtabmap']
        adapters.close()
        assert len(node.removed) == 4

    def test_back_end_that_keeps_a_retracted_loop_is_reported_with_the_loop(self, installed):
        node, kept = RecordingNode(), {}
        names = ['rtabmap', 'pose_graph_tools', 'swarm_slam']
        adapters = SlamAdapters(node, names, AdaptersConfig(), fail_on_drop, kept.__setitem__)
        ends = place(5, 60.0), place(1, 0.0)
        adapters.retract(loop_between(5, 1), *ends, IDENTITY, IDENTITY)
        assert set(kept) == set(names)
        assert all('retracted loop 5 to 1' in reason for reason in kept.values())
        assert 'Hydra and Kimera-PGMO keep it' in kept['pose_graph_tools']
        assert 'Swarm-SLAM keeps it' in kept['swarm_slam']
        assert not any(node.sent.values())  # nothing that a back-end could take for a loop

    def test_adapter_without_retract_does_not_affect_the_others(self, monkeypatch):
        class Old:
            def __init__(self, node, config):
                pass

        monkeypatch.setitem(ADAPTERS, 'old', AdapterEntry(Old, LioSamConfig))
        kept = {}
        config = adapters_config(ADAPTERS)()
        adapters = SlamAdapters(RecordingNode(), ['old'], config, fail_on_drop, kept.__setitem__)
        adapters.retract(loop_between(5, 1), place(5, 60.0), place(1, 0.0), IDENTITY, IDENTITY)
        assert "no attribute 'retract'" in kept['old']


class TestLioSam:
    @pytest.fixture
    def adapter(self, ros: Ros):
        node = ros.node()
        inbox = ros.listen(ros.node(), Float64MultiArray, 'lio_loop/loop_closure_detection')
        adapter = ADAPTERS['lio_sam'].adapter(node, LioSamConfig(interval_s=0.3))
        ros.matched(adapter._publisher)
        return adapter, inbox

    def test_query_stamp_comes_first_and_rounding_selects_no_other_keyframe(self, adapter):
        adapter, inbox = adapter
        query, match = place(5, 60.0), place(1, 0.0)
        adapter.publish(loop_between(5, 1), query, match, IDENTITY)
        current, previous = inbox.take().data
        assert current == pytest.approx(query.stamp_ns * 1e-9, abs=1e-6)
        assert previous == pytest.approx(match.stamp_ns * 1e-9, abs=1e-6)
        # LIO-SAM selects the first keyframe at or after, and the last at or before.
        assert query.stamp_ns * 1e-9 >= current
        assert match.stamp_ns * 1e-9 <= previous

    def test_burst_is_sent_in_order_at_the_configured_rate(self, adapter):
        adapter, inbox = adapter
        for i in range(3):
            adapter.publish(loop_between(i, 0), place(i, 60.0 + i), place(0, 0.0), IDENTITY)
        arrivals, times = [], []
        for _ in range(3):
            times.append(inbox.take().data[0])
            arrivals.append(time.monotonic())
        assert times == sorted(times)
        assert np.diff(arrivals).min() > 0.25
        # After a pause the next one is sent immediately.
        assert not inbox.drain()
        adapter._timer.cancel()
        adapter.publish(loop_between(9, 0), place(9, 99.0), place(0, 0.0), IDENTITY)
        assert inbox.take(0.25)

    def test_every_loop_beyond_the_queue_is_reported_as_dropped(self, ros: Ros):
        """Every loop is sent, queued or reported."""
        drops = []
        config = AdaptersConfig(lio_sam=LioSamConfig(interval_s=60.0))
        adapters = SlamAdapters(ros.node(), ['lio_sam'], config, lambda *drop: drops.append(drop))
        for i in range(1 + QUEUE_SIZE):  # the first is sent immediately
            adapters.publish(
                loop_between(i, 0), place(i, 60.0 + i), place(0, 0.0), IDENTITY, IDENTITY
            )
        assert not drops
        for i in range(3):
            adapters.publish(
                loop_between(900 + i, 0), place(9, 999.0), place(0, 0.0), IDENTITY, IDENTITY
            )
        assert [kind for kind, _ in drops] == ['lio_sam'] * 3
        assert f'{QUEUE_SIZE} loop closures waiting, one sent every 60.0 s' in drops[0][1]
        adapters.close()

    def test_retracted_loop_is_not_sent_if_it_still_waits(self, adapter):
        adapter, inbox = adapter
        loops = [(loop_between(i, 0), place(i, 60.0 + i), place(0, 0.0)) for i in range(3)]
        for loop, query, match in loops:
            adapter.publish(loop, query, match, IDENTITY)
        loop, query, match = loops[1]
        adapter.retract(loop, query, match, IDENTITY)
        sent = [inbox.take().data[0] for _ in range(2)]
        expected = [loops[i][1].stamp_ns * 1e-9 for i in (0, 2)]
        assert sent == pytest.approx(expected, abs=1e-6)
        for loop, query, match in loops:
            with pytest.raises(AdapterError, match='LIO-SAM keeps it if it accepted it'):
                adapter.retract(loop, query, match, IDENTITY)


class TestNodeAssociation:
    """Odometry carries both ends of a loop closure to the nodes nearest in time."""

    @pytest.fixture
    def drive(self, rng):
        """True poses of base and sensor, two keyframes, and the loop between them."""
        T_base = {t: pose_from_euler([t, 0.02 * t**2, 0.0], [0.0, 0.02, 0.05 * t])
                  for t in (0.0, 0.7, 30.0, 30.4)}  # fmt: skip
        nodes = NodeAssociation(NodeAssociationConfig())
        nodes.add_node(11, START_NS + 700_000_000, T_base[0.7])
        nodes.add_node(42, START_NS + 30_400_000_000, T_base[30.4])
        match = place(0, 0.0, T_base[0.0] @ T_BASE_SENSOR)
        query = place(9, 30.0, T_base[30.0] @ T_BASE_SENSOR)
        root = rng.normal(size=(6, 6)) * 0.01
        T_match_query = invert(match.T_odom_sensor) @ query.T_odom_sensor
        loop = loop_between(9, 0, T_match_query, root @ root.T + 1e-6 * np.eye(6))
        return nodes, T_base, loop, query, match

    def test_transferred_loop_is_the_relative_pose_of_the_nodes(self, drive):
        nodes, T_base, loop, query, match = drive
        moved = nodes.transfer(loop, query, match, T_BASE_SENSOR)
        assert (moved.match_id, moved.query_id) == (11, 42)
        expected = invert(T_base[0.7]) @ T_base[30.4]
        np.testing.assert_allclose(moved.T_match_query, expected, atol=1e-9)

    def test_transferred_covariance_equals_that_of_transferred_samples(self, drive, rng):
        nodes, _, loop, query, match = drive
        moved = nodes.transfer(loop, query, match, T_BASE_SENSOR)
        perturbations = rng.multivariate_normal(np.zeros(6), loop.covariance, size=2000)
        step = np.tile(np.eye(4), (len(perturbations), 1, 1))
        step[:, :3, :3] = Rotation.from_rotvec(perturbations[:, 3:]).as_matrix()
        step[:, :3, 3] = perturbations[:, :3]
        samples = [
            nodes.transfer(loop_between(9, 0, loop.T_match_query @ s), query, match, T_BASE_SENSOR)
            for s in step
        ]
        errors = local_error(moved.T_match_query, np.stack([s.T_match_query for s in samples]))
        deviation = np.sqrt(np.diag(moved.covariance))
        scale = np.outer(deviation, deviation)
        np.testing.assert_allclose(np.cov(errors.T) / scale, moved.covariance / scale, atol=0.1)

    def test_keyframe_without_a_node_nearby_is_rejected(self, drive):
        nodes, _, loop, query, match = drive
        late = place(9, 35.0, query.T_odom_sensor)
        with pytest.raises(AdapterError, match=r'nearest node 42 is 4.60 s'):
            nodes.transfer(loop, late, match, T_BASE_SENSOR)
        other_odometry = place(9, 30.0, np.eye(4))
        with pytest.raises(AdapterError, match=r'expected at most 2.0 s and 5.0 m'):
            nodes.transfer(loop, other_odometry, match, T_BASE_SENSOR)
        with pytest.raises(AdapterError, match='no odometry'):
            nodes.transfer(loop, place(9, 30.0), match, T_BASE_SENSOR)
        with pytest.raises(AdapterError, match='both nearest to node 11'):
            nodes.transfer(loop, match, match, T_BASE_SENSOR)
        with pytest.raises(AdapterError, match='no nodes received'):
            NodeAssociation(NodeAssociationConfig()).transfer(loop, query, match, T_BASE_SENSOR)


class TestRtabmap:
    def test_link_joins_rtabmap_nodes_with_our_information_matrix(self, installed):
        node = RecordingNode()
        adapter = ADAPTERS['rtabmap'].adapter(node, RtabmapConfig())
        T_base = [np.eye(4), pose_from_euler([20.0, 3.0, 0.0], [0.0, 0.0, 1.0])]

        def map_node(number, seconds):
            stamp = START_NS / 1e9 + seconds
            return SimpleNamespace(id=number, stamp=stamp, pose=pose_message(T_base[number - 1]))

        first, second = map_node(1, 0.0), map_node(2, 60.0)
        node.responses = {
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
        # The adjoint of the mounting pose has determinant 1.
        assert np.linalg.det(information) == pytest.approx(1 / np.linalg.det(covariance))
        with pytest.raises(AdapterError, match=r'RTAB-Map keeps its link 1 -> 2: it has no serv'):
            adapter.retract(loop, query, match, T_BASE_SENSOR)
        assert len(node.sent['rtabmap/add_link']) == 1

    def test_loop_is_dropped_while_the_service_is_unavailable(self, installed):
        adapter = ADAPTERS['rtabmap'].adapter(RecordingNode(), RtabmapConfig())
        with pytest.raises(AdapterError, match='rtabmap/add_link is not available'):
            adapter.publish(loop_between(1, 0), place(1, 60.0), place(0, 0.0), IDENTITY)


def test_query_and_match_may_come_from_different_lidars(installed):
    T_base = [pose_from_euler([1.0, 2.0, 0.0], [0.0, 0.1, 1.0]),
              pose_from_euler([3.0, 0.5, 0.2], [0.1, 0.0, -2.0])]  # fmt: skip
    left = T_BASE_SENSOR
    right = pose_from_euler([-0.4, -0.8, 0.3], [0.0, 0.2, 2.0])
    match = place(3, 0.0, T_base[0] @ left)
    query = place(8, 60.0, T_base[1] @ right)
    covariance = np.diag(np.arange(1.0, 7.0))
    loop = loop_between(8, 3, invert(match.T_odom_sensor) @ query.T_odom_sensor, covariance)
    moved, moved_query = move_query_to_match_sensor(loop, query, right, left)
    np.testing.assert_allclose(moved_query.T_odom_sensor, T_base[1] @ left, atol=1e-9)
    base = loop_between_base_poses(moved, left)
    np.testing.assert_allclose(base.T_match_query, invert(T_base[0]) @ T_base[1], atol=1e-9)
    # The covariance is that of the pose of the sensor that took the query.
    np.testing.assert_allclose(base.covariance, propagate(adjoint(right), covariance), atol=1e-9)

    node, dropped = RecordingNode(), []
    names, config = ['pose_graph_tools'], AdaptersConfig()
    adapters = SlamAdapters(node, names, config, lambda *reason: dropped.append(reason))
    adapters.publish(loop, query, match, right, left)
    (graph,) = node.sent['external_loop_closures']
    pose = pose_from_message(graph.edges[0].pose)
    np.testing.assert_allclose(pose, invert(T_base[0]) @ T_base[1], atol=1e-6)
    assert not dropped


@pytest.mark.parametrize('reader', ['hydra', 'kimera'])
def test_hydra_and_kimera_decode_the_same_loop(installed, reader):
    """Decoded by the rules of each, the edge is the base pose of the query in the match."""
    node = RecordingNode()
    T = pose_from_euler([2.0, -1.0, 0.1], [0.0, 0.0, 2.0])
    covariance = np.diag(np.arange(1.0, 7.0))
    query, match = place(8, 60.0), place(3, 0.0)
    adapter = ADAPTERS['pose_graph_tools'].adapter(
        node, PoseGraphToolsConfig(reader=reader, robot=2)
    )
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
def test_loop_to_another_session_is_dropped(installed, ros, name):
    """LIO-SAM maps an earlier stamp to its first keyframe: a wrong loop."""
    node = ros.node() if name == 'lio_sam' else RecordingNode()
    adapter = ADAPTERS[name].adapter(node, ADAPTERS[name].config())
    with pytest.raises(AdapterError, match="session 'yesterday', expected 'robot'"):
        adapter.publish(
            loop_between(5, 1), place(5, 60.0), place(1, 0.0, session='yesterday'), IDENTITY
        )
    adapter.close()


@pytest.mark.parametrize('with_pose', [True, False])
def test_swarm_slam_receives_the_pose_of_keyframe_1_in_keyframe_0(installed, with_pose):
    node = RecordingNode()
    adapter = ADAPTERS['swarm_slam'].adapter(node, SwarmSlamConfig(with_pose=with_pose))
    poses = [np.eye(4), pose_from_euler([20.0, 3.0, 0.0], [0.0, 0.0, 1.0])]
    places = [place(30 + i, 60.0 * i, T) for i, T in enumerate(poses)]
    for i, (T, where) in enumerate(zip(poses, places, strict=True)):
        odometry = odometry_message(where.stamp_ns, 'odom', 'base', T)
        node.callbacks['cslam/keyframe_odom'](KeyframeOdom(i, odometry))
    adapter.publish(loop_between(31, 30, poses[1]), places[1], places[0], IDENTITY)
    topic = 'cslam/intra_robot_loop_closure' if with_pose else 'cslam/local_keyframe_match'
    (message,) = node.sent[topic]
    assert (message.keyframe0_id, message.keyframe1_id) == (0, 1)
    if with_pose:
        assert message.success
        np.testing.assert_allclose(matrix(message.transform), poses[1], atol=1e-12)


@pytest.mark.parametrize('name', ['rtabmap', 'swarm_slam'])
def test_back_end_node_with_an_invalid_pose_is_reported_and_ignored(installed, name):
    node = RecordingNode()
    adapter = ADAPTERS[name].adapter(node, ADAPTERS[name].config())
    node.responses['rtabmap/add_link'] = None  # the service is available
    poses = [np.eye(4), pose_from_euler([20.0, 3.0, 0.0], [0.0, 0.0, 1.0])]
    places = [place(30 + i, 60.0 * i, T) for i, T in enumerate(poses)]
    for i, (T, where) in enumerate(zip(poses, places, strict=True)):
        pose = pose_message(T)
        if i == 0:
            pose.orientation.x = float('nan')
        if name == 'rtabmap':
            map_node = SimpleNamespace(id=i, stamp=where.stamp_ns * 1e-9, pose=pose)
            node.callbacks['rtabmap/mapData'](SimpleNamespace(nodes=[map_node]))
        else:
            message = odometry_message(where.stamp_ns, 'odom', 'base', T)
            message.pose.pose = pose
            node.callbacks['cslam/keyframe_odom'](KeyframeOdom(i, message))
    assert len(node.warnings) == 1
    assert re.search(f'{name}: (node|keyframe) 0: .*nan', node.warnings[0])
    with pytest.raises(AdapterError, match='keyframe'):
        adapter.publish(loop_between(31, 30, poses[1]), places[1], places[0], IDENTITY)
