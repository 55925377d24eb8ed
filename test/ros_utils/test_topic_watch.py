"""A silent topic is explained by what is published instead."""

from nav_msgs.msg import Odometry
import pytest
from rclpy.qos import QoSProfile, ReliabilityPolicy
from ros_processes import Ros, wait_until
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import String

from lpr_ros.ros_utils import topic_watch
from lpr_ros.ros_utils.topic_watch import TopicWatch, type_name

RELIABLE = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
BEST_EFFORT = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)


@pytest.fixture
def watch(ros: Ros, monkeypatch) -> TopicWatch:
    """A watch of /robot/points that has been silent long enough."""
    monkeypatch.setattr(topic_watch, 'SILENCE_S', 0.0)
    node = ros.node(namespace='robot')
    return TopicWatch(node, PointCloud2, 'points', RELIABLE, qos_remedy=' or your mind')


def explained(watch: TopicWatch, *parts: str) -> None:
    """Wait until the explanation has all parts: discovery takes a moment."""
    wait_until(
        lambda: all(part in watch.check(0) for part in ('/robot/points', *parts)), str(parts)
    )


def test_type_names_are_those_of_ros():
    assert type_name(PointCloud2) == 'sensor_msgs/msg/PointCloud2'
    assert type_name(Odometry) == 'nav_msgs/msg/Odometry'


def test_without_any_such_topic_the_domain_is_named(ros: Ros, watch):
    ros.node().create_subscription(PointCloud2, '/wanted', lambda message: None, 1)
    result = ros.node('lpr_node').create_publisher(PointCloud2, '/result', 1)
    wait_until(lambda: watch._node.count_publishers(result.topic_name), 'discovery')
    explained(watch, 'nor any other sensor_msgs/msg/PointCloud2', 'ROS_DOMAIN_ID')


def test_topics_of_the_same_type_are_named(ros: Ros, watch):
    ros.node().create_publisher(PointCloud2, '/velodyne_points', 1)
    explained(watch, 'is published on /velodyne_points', 'set points:=/velodyne_points')


def test_another_type_on_the_topic_is_named(ros: Ros, watch):
    ros.node('speaker').create_publisher(String, '/robot/points', 1)
    explained(watch, '/speaker publishes std_msgs/msg/String')


def test_a_mismatch_of_qos_is_spelled_out(ros: Ros, watch):
    publisher = ros.node('driver').create_publisher(PointCloud2, '/robot/points', BEST_EFFORT)
    explained(watch, '/driver', 'best effort publisher and reliable subscription', 'or your mind')
    assert publisher.get_subscription_count() == 0


def test_a_matching_publisher_that_sends_nothing_is_named(ros: Ros, watch):
    ros.node('driver').create_publisher(PointCloud2, '/robot/points', RELIABLE)
    explained(watch, '/driver publishes the topic but sends nothing')


def test_messages_end_the_silence(watch, monkeypatch):
    assert watch.check(0)
    monkeypatch.setattr(topic_watch, 'SILENCE_S', 60.0)
    assert watch.check(1) == ''
    assert watch.check(1) == ''
    monkeypatch.setattr(topic_watch, 'SILENCE_S', 0.0)
    assert watch.check(1).endswith('nobody publishes it any more')  # the end of a bag
