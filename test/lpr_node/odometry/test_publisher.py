"""LiDAR odometry on its topic, and on tf if that is asked for and installed."""

from types import SimpleNamespace

from nav_msgs.msg import Odometry
import numpy as np
import pytest
from toy_drive import pose_at

from lpr_ros.conversions.poses import pose_from_message, pose_from_transform
from lpr_ros.core.errors import InterfaceError
from lpr_ros.lpr_node.odometry import publisher as module
from lpr_ros.lpr_node.odometry.publisher import OdometryPublisher


@pytest.fixture
def node():
    """A node that records what is published by topic, and its errors."""
    sent, errors = {}, []

    def create_publisher(kind, topic, depth):
        return SimpleNamespace(publish=sent.setdefault(topic, []).append)

    log = SimpleNamespace(error=errors.append)
    return SimpleNamespace(
        create_publisher=create_publisher, get_logger=lambda: log, sent=sent, errors=errors
    )


@pytest.mark.parametrize('publish_tf', [True, False])
def test_poses_are_on_tf_only_if_asked_for(node, monkeypatch, publish_tf):
    monkeypatch.setattr(module, 'interface', lambda name: SimpleNamespace)
    publisher = OdometryPublisher(node)
    publisher.configure(publish_tf)
    publisher.publish(5, ('odom', 'base_link'), pose_at(2.0))
    (message,) = node.sent['~/odometry']
    assert isinstance(message, Odometry)
    assert np.allclose(pose_from_message(message.pose.pose), pose_at(2.0))
    assert [len(m.transforms) for m in node.sent.get('/tf', [])] == [1] * publish_tf
    for transforms in node.sent.get('/tf', []):
        (transform,) = transforms.transforms
        assert (transform.header.frame_id, transform.child_frame_id) == ('odom', 'base_link')
        assert transform.header.stamp.nanosec == 5
        assert np.allclose(pose_from_transform(transform.transform), pose_at(2.0))


def test_another_configuration_ends_tf(node, monkeypatch):
    monkeypatch.setattr(module, 'interface', lambda name: SimpleNamespace)
    publisher = OdometryPublisher(node)
    publisher.configure(True)
    publisher.configure(False)
    publisher.publish(5, ('odom', 'base_link'), pose_at(2.0))
    assert node.sent['/tf'] == []


def test_without_tf2_msgs_the_topic_is_published_and_the_error_logged(node, monkeypatch):
    def missing(name):
        raise InterfaceError(f'{name} not found')

    monkeypatch.setattr(module, 'interface', missing)
    publisher = OdometryPublisher(node)
    publisher.configure(True)
    publisher.publish(5, ('odom', 'base_link'), pose_at(2.0))
    assert len(node.sent['~/odometry']) == 1
    assert 'tf2_msgs/msg/TFMessage not found' in node.errors[0]
