"""Jumps of odometry are told from motion, whatever the rate of its messages."""

import numpy as np
import pytest

from lpr_ros.core.geometry.odometry_jumps import JumpDetector
from lpr_ros.core.geometry.se3 import pose_from_euler
from lpr_ros.core.timing import NS_PER_S

RATE_HZ = 50
SPEED_M_S = 15.0


def straight(count):
    """Return stamps and poses of a drive at constant speed."""
    seconds = np.arange(count) / RATE_HZ
    xyz = np.stack([SPEED_M_S * seconds, 0.0 * seconds, 0.0 * seconds], axis=1)
    return (seconds * NS_PER_S).astype(np.int64), pose_from_euler(xyz, np.zeros_like(xyz))


def numbers(stamps_ns, T, max_step_m=20.0):
    detector = JumpDetector(max_step_m)
    found = [detector.add(int(stamp), pose) for stamp, pose in zip(stamps_ns, T, strict=True)]
    return [None if segment is None else segment.number for segment in found]


@pytest.mark.parametrize('every', [1, 30])
def test_messages_that_are_lost_are_no_jump(every):
    """Ten seconds without odometry at 15 m/s are 150 m, which its speed explains."""
    stamps, T = straight(4000)
    kept = [*range(0, 2000, every), *range(2500, 4000, every)]
    assert set(numbers(stamps[kept], T[kept])) == {0}


def test_a_jump_is_found_at_any_rate_and_speed():
    stamps, T = straight(400)
    T[200:] = pose_from_euler([25.0, 0.0, 0.0], [0.0, 0.0, 1.0]) @ T[200:]
    assert numbers(stamps, T) == [0] * 200 + [1] * 200
    assert numbers(stamps[::20], T[::20]) == [0] * 10 + [1] * 10


def test_odometry_that_restarts_at_its_origin_after_a_pause_is_a_jump():
    stamps, T = straight(1000)
    stamps = np.concatenate([stamps, stamps[:100] + stamps[-1] + 5 * NS_PER_S])
    assert numbers(stamps, np.concatenate([T, T[:100]])) == [0] * 1000 + [1] * 100


def test_one_wrong_message_is_two_jumps():
    """The speed of the jump must not explain the jump back."""
    stamps, T = straight(10)
    T[5] = pose_from_euler([500.0, 0.0, 0.0], [0.0, 0.0, 0.0])
    assert numbers(stamps, T) == [0] * 5 + [1] + [2] * 4


def test_messages_out_of_order_are_ignored_and_a_clock_set_back_is_a_jump():
    stamps, T = straight(200)
    order = [100, 101, 99, 101, 102, 1, 2]
    assert numbers(stamps[order], T[order]) == [0, 0, None, None, 0, 1, 1]
