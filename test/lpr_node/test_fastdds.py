"""With the shipped Fast DDS profile, no best-effort cloud of 4 MB is lost."""

from rclpy.qos import QoSProfile, ReliabilityPolicy
from ros_processes import Ros
from sensor_msgs.msg import PointCloud2

CLOUDS, CLOUD_BYTES = 30, 4_000_000
# Publishes from another process at 10 Hz, like a sensor, once there is a subscriber.
SENDER = f"""
import time
import rclpy
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import PointCloud2
rclpy.init()
node = rclpy.create_node('sender')
qos = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
publisher = node.create_publisher(PointCloud2, 'points', qos)
while publisher.get_subscription_count() < 1:
    time.sleep(0.01)
for number in range({CLOUDS}):
    message = PointCloud2(width=number)
    message.data = bytes({CLOUD_BYTES})
    publisher.publish(message)
    time.sleep(0.1)
"""


def test_no_best_effort_cloud_is_lost_between_processes(ros: Ros):
    qos = QoSProfile(depth=CLOUDS, reliability=ReliabilityPolicy.BEST_EFFORT)
    inbox = ros.listen(ros.node(), PointCloud2, 'points', qos)
    sender = ros.start('-c', SENDER)
    assert sender.wait() == 0, sender.output
    clouds = [inbox.take(2.0) for _ in range(CLOUDS)]
    assert [cloud.width for cloud in clouds] == list(range(CLOUDS))
    assert {len(cloud.data) for cloud in clouds} == {CLOUD_BYTES}
