"""Poses and stamps to ROS messages and back."""

from message_samples import STAMP_NS, random_pose, round_trip
from nav_msgs.msg import Odometry
import numpy as np
import pytest

from lpr_ros.conversions.poses import odometry_message, pose_from_message, transform_message
from lpr_ros.core.errors import ScanError


def test_pose_survives_the_round_trip(rng):
    for _ in range(20):
        T = random_pose(rng)
        message = round_trip(odometry_message(STAMP_NS, 'odom', 'base', T))
        np.testing.assert_allclose(pose_from_message(message.pose.pose), T, atol=1e-12)
        assert (message.header.frame_id, message.child_frame_id) == ('odom', 'base')
        assert message.header.stamp.sec * 10**9 + message.header.stamp.nanosec == STAMP_NS
        transform = transform_message(T)
        assert transform.rotation == message.pose.pose.orientation
        assert transform.translation.x == message.pose.pose.position.x


@pytest.mark.parametrize('value', [np.nan, np.inf, 1e30, -1e300])
def test_pose_with_an_impossible_position_is_rejected(value):
    message = odometry_message(STAMP_NS, 'odom', 'base', np.eye(4))
    message.pose.pose.position.y = value
    with pytest.raises(ScanError, match='finite'):
        pose_from_message(message.pose.pose)


def test_pose_with_a_zero_quaternion_is_rejected():
    message = Odometry()
    message.pose.pose.orientation.w = 0.0
    with pytest.raises(ScanError, match='quaternion'):
        pose_from_message(message.pose.pose)
