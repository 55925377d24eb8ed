"""LiDAR odometry in a child process: the same poses, and a new segment when the child dies."""

import os
import signal

import numpy as np
import pytest
from toy_drive import step

from lpr_ros.core.errors import OdometryError, ScanError
from lpr_ros.core.odometry.config import LidarOdometryConfig
from lpr_ros.core.odometry.lidar_odometry import LidarOdometry
from lpr_ros.core.odometry.odometry_process import LidarOdometryProcess

FAR = np.full((90, 3), 900.0, np.float32)


@pytest.fixture
def process():
    made = LidarOdometryProcess(LidarOdometryConfig())
    yield made
    made.stop()


def scan(index):
    at = step(index)
    return at.stamp_ns, at.points


def test_the_child_gives_the_poses_of_this_process_and_outlives_its_death(process):
    here = LidarOdometry()
    for index in range(3):
        expected, there = here.add(*scan(index)), process.add(*scan(index))
        assert np.array_equal(there.T_odom_sensor, expected.T_odom_sensor)
        assert there.segment == expected.segment
    with pytest.raises(ScanError, match='got 0 of 90') as refused:
        process.add(step(3).stamp_ns, FAR)
    assert refused.value.kind == 'few_points'
    before = process.pid
    os.kill(before, signal.SIGKILL)
    with pytest.raises(OdometryError, match=r'status -9 at .* restarted'):
        process.add(*scan(3))
    after = process.add(*scan(4))
    assert process.pid != before
    assert after.segment.number == 1
    assert 'ended with status -9' in after.segment.reason
    assert np.array_equal(after.T_odom_sensor, there.T_odom_sensor)


def test_a_child_that_hangs_is_replaced():
    process = LidarOdometryProcess(LidarOdometryConfig(), timeout_s=1.0)
    try:
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(OdometryError, match='status -9'):
            process.add(*scan(0))
    finally:
        process.stop()


def test_stop_ends_the_child_and_every_add_after_it_fails(process):
    pid = process.pid
    process.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    for _ in range(2):
        with pytest.raises(OdometryError):
            process.add(*scan(0))
