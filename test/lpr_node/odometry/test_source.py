"""Where the node gets its odometry from: the choice, tf, and LiDAR odometry over real DDS."""

from dataclasses import replace
import os
from pathlib import Path
import signal
import sys
from types import SimpleNamespace

from geometry_msgs.msg import TransformStamped
from nav_msgs.msg import Odometry
from node_rig import NODE, START_S, Rig, cloud_of
import numpy as np
import pytest
from ros_processes import wait_until
from toy_drive import START_NS, STEP_NS, pose_at, step, write_weights

from lpr_ros.conversions.poses import odometry_message, pose_from_message, transform_message
from lpr_ros.core.config import override
from lpr_ros.core.errors import InterfaceError
from lpr_ros.core.geometry.se3 import invert
from lpr_ros.lpr_node.config import NodeConfig
from lpr_ros.lpr_node.connections import Connections
from lpr_ros.lpr_node.odometry import source as source_module
from lpr_ros.lpr_node.odometry.source import OdometrySource
from lpr_ros.lpr_node.runtime import LprRuntime

PARTS = 5  # of a step of the toy drive: scans must overlap


def scan(number):
    """Return a scan 0.6 m after the one before."""
    return replace(step(number / PARTS), stamp_ns=START_NS + number * STEP_NS // PARTS)


@pytest.fixture
def tf(monkeypatch):
    """A stand-in for tf2_ros, which is not on the package index: poses by frames and stamp."""

    class Buffer:
        def lookup_transform(self, target, frame, time, timeout=None):
            T = known[target, frame]
            T = T(time.nanoseconds) if callable(T) else T
            return TransformStamped(transform=transform_message(T))

    def listen(buffer, node):
        listeners.append(node)
        return SimpleNamespace(unregister=lambda: listeners.remove(node))

    known, listeners = {}, []
    module = SimpleNamespace(Buffer=Buffer, TransformListener=listen, TransformException=KeyError)
    monkeypatch.setitem(sys.modules, 'tf2_ros', module)
    return SimpleNamespace(known=known, listeners=listeners)


@pytest.fixture
def make(ros, monkeypatch):
    """Return a function that makes a source and its connections, closed after the test."""
    monkeypatch.setattr(source_module, 'TOPIC_WAIT_S', 0.0)
    made = []

    def make(**settings):
        node = ros.node()
        connections = Connections(node)
        source = OdometrySource(node, override(NodeConfig(), settings), connections)
        made.append(source)
        return source, connections.inputs

    yield make
    for source in made:
        source.close()


def receive_cloud(inputs):
    inputs._is_active = True
    inputs._on_points(cloud_of(step(0)), {})


def test_auto_waits_for_clouds_and_takes_the_topic_that_somebody_publishes(ros, make, tf):
    source, inputs = make()
    source.update()
    assert source.choice == ''
    robot = ros.node()
    robot.create_publisher(Odometry, 'odometry', 10)
    wait_until(lambda: source.update() or source.choice, 'a choice')
    receive_cloud(inputs)
    source.update()
    assert source.choice == 'topic'
    assert not tf.listeners


def test_auto_takes_tf_if_it_has_the_transform(make, tf):
    tf.known['odom', 'base_link'] = pose_at(3.0)
    source, inputs = make()
    receive_cloud(inputs)
    source.update()
    assert source.choice == 'tf'
    assert tf.listeners
    source.close()
    assert not tf.listeners


@pytest.mark.parametrize('has_tf', [True, False])
def test_auto_takes_the_clouds_if_there_is_nothing_else(ros, make, request, has_tf):
    listeners = request.getfixturevalue('tf').listeners if has_tf else []
    source, inputs = make()
    source.update()
    assert source.choice == ''
    receive_cloud(inputs)
    source.update()
    assert source.choice == 'lidar'
    assert not listeners
    ros.node().create_publisher(Odometry, 'odometry', 10)
    wait_until(lambda: source._node.count_publishers(source._topic), 'the topic')
    source.update()
    assert source.choice == 'lidar'  # poses of two sources share no frame


def test_odometry_that_is_not_chosen_is_ignored(make):
    source, inputs = make(odometry_source='lidar')
    assert source.choice == 'lidar'
    inputs._is_active, inputs._reader = True, SimpleNamespace()
    inputs._on_odometry(odometry_message(1, 'odom', 'base', np.eye(4)))
    assert not inputs.has_odometry


def test_tf_must_be_installed_if_it_is_asked_for(make, monkeypatch):
    monkeypatch.setitem(sys.modules, 'tf2_ros', None)
    with pytest.raises(InterfaceError, match='tf2_ros is not installed'):
        make(odometry_source='tf')


def test_without_odometry_nothing_is_chosen(make, tf):
    source, inputs = make(use_odometry=False, **{'keyframes.interval_s': 1.0})
    receive_cloud(inputs)
    source.update()
    assert source.choice == ''
    assert not tf.listeners


def test_keyframes_are_at_the_poses_of_tf(ros, tf):
    """The base is 1 m behind the LiDAR; what tf does not have is dropped."""
    tf.known['wheels', 'lidar'] = pose_at(1.0)
    config = override(NodeConfig(), {
        'weights': str(write_weights(ros.folder / 'weights.safetensors')),
        'odometry_source': 'tf', 'odom_frame': 'start', 'base_frame': 'wheels',
    })  # fmt: skip
    node = ros.node()
    connections = Connections(node)
    runtime = LprRuntime(node, config, connections)
    try:
        inputs, counts = connections.inputs, connections.events.statistics.counts
        inputs._is_active = True
        inputs._on_points(cloud_of(step(0)), {})
        wait_until(lambda: counts().get('dropped.no_odometry'), 'a drop')
        tf.known['start', 'wheels'] = lambda stamp_ns: pose_at((stamp_ns - START_NS) / STEP_NS)
        for index in (2, 4):
            inputs._on_points(cloud_of(step(index)), {})
            wait_until(lambda i=index: counts().get('described', 0) == i // 2, 'a keyframe')
        places = [runtime._drive.database.place(i) for i in range(2)]
        assert [p.T_odom_sensor[0, 3] for p in places] == pytest.approx([3.0, 5.0])
        assert runtime.tick(0).odometry_source == 'tf'
    finally:
        runtime.close()


def odometry_process_of(parent):
    """Return the id of the child that runs LiDAR odometry."""
    tasks = Path(f'/proc/{parent}/task').glob('*/children')
    children = [int(child) for task in tasks for child in task.read_text().split()]
    (pid,) = [
        child
        for child in children
        if b'odometry_process' in Path(f'/proc/{child}/cmdline').read_bytes()
    ]
    return pid


def test_clouds_alone_give_odometry_keyframes_and_the_map_frame(ros):
    """As lpr_slam.launch.py joins the nodes; a killed odometry process starts a new session."""
    ros.start('-m', 'lpr_ros.pose_graph_node', '--ros-args', '-r', f'odometry:={NODE}/odometry')
    rig = Rig(
        ros, autostart=True, odometry_source='lidar', extrinsic='[1.0,0.0,0.0,0.0,0.0,0.0,1.0]'
    )
    rig.node.destroy_publisher(rig.odometry)
    odometry = ros.listen(rig.node, Odometry, f'{NODE}/odometry', 100)
    map_to_odom = ros.listen(rig.node, TransformStamped, 'pose_graph_node/map_to_odom')
    wait_until(rig.points.get_subscription_count, 'the node', START_S)
    wait_until(lambda: rig.node.count_publishers(map_to_odom.topic), 'the pose graph', START_S)
    assert rig.status()['odometry_source'] == 'lidar'
    assert 'odometry from lidar: odometry_source' in rig.process.output

    def follow(numbers):
        poses = {}
        for number in numbers:
            rig.points.publish(cloud_of(scan(number)))
            message = odometry.take()
            poses[number] = pose_from_message(message.pose.pose)
        return message, poses

    T_base_sensor = pose_at(1.0)
    message, poses = follow(range(1, 12))
    assert (message.header.frame_id, message.child_frame_id) == ('odom', 'base_link')
    assert np.allclose(poses[1], np.eye(4), atol=1e-6)
    true = T_base_sensor @ invert(scan(1).T_odom_sensor) @ scan(11).T_odom_sensor
    assert np.allclose(poses[11], true @ invert(T_base_sensor), atol=0.15)
    path = rig.keyframes.take_until(lambda message: len(message.poses) >= 2)
    assert path.header.frame_id == 'odom'
    frames = map_to_odom.take()
    assert (frames.header.frame_id, frames.child_frame_id) == ('map', 'odom')
    os.kill(odometry_process_of(rig.process.popen.pid), signal.SIGKILL)
    rig.points.publish(cloud_of(scan(12)))
    rig.status_with('odometry_dropped.odometry', 1)
    follow(range(13, 16))
    status = rig.status_with('odometry_lost', 1)
    assert status['session'] == 'robot (2)'
    rig.process.interrupt()
    assert rig.process.wait() == 0
