"""PointCloud2 messages to scans and back."""

from message_samples import STAMP_NS, random_pose, round_trip
import numpy as np
import pytest
from sensor_msgs.msg import PointCloud2

from lpr_ros.conversions.clouds import cloud_message, scan_from_message
from lpr_ros.core.errors import CloudError
from lpr_ros.core.io.pointcloud2 import pack_cloud


def test_cloud_survives_the_round_trip(rng):
    points = rng.normal(scale=20.0, size=(100, 3)).astype(np.float32)
    zeros = np.zeros(100, np.float32)
    packed = pack_cloud(points, zeros, zeros.astype(np.uint16), zeros)
    message = round_trip(cloud_message(STAMP_NS, 'lidar', packed))
    T = random_pose(rng)
    scan = scan_from_message(message, T)
    np.testing.assert_array_equal(scan.points, points)
    assert scan.stamp_ns == STAMP_NS
    assert scan.T_odom_sensor is T


def test_empty_message_is_rejected():
    with pytest.raises(CloudError, match='point_step'):
        scan_from_message(PointCloud2())
