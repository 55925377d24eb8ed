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


def test_sparse_odometry_of_stop_and_go_is_no_jump():
    """A pose every 3 s: stand, accelerate with 2.5 m/s^2 to 15 m/s, and drive 45 m per pose."""
    seconds = np.arange(0.0, 60.0, 3.0)
    driving_s = np.clip(seconds - 20.0, 0.0, None)
    x = np.where(driving_s < 6.0, 1.25 * driving_s**2, 45.0 + 15.0 * (driving_s - 6.0))
    xyz = np.stack([x, 0.0 * x, 0.0 * x], axis=1)
    T = pose_from_euler(xyz, np.zeros_like(xyz))
    assert np.diff(x).max() > 40.0
    stamps = (seconds * NS_PER_S).astype(np.int64)
    assert set(numbers(stamps, T)) == {0}
    assert set(numbers(stamps[-5:], T[-5:])) == {0}  # from the first step on


def test_a_jump_is_found_at_any_rate_and_speed():
    stamps, T = straight(400)
    T[200:] = pose_from_euler([40.0, 0.0, 0.0], [0.0, 0.0, 1.0]) @ T[200:]
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


def test_messages_almost_at_once_do_not_hide_a_jump():
    stamps, T = straight(10)
    stamps[4] = stamps[3] + 1000  # 0.3 m in a microsecond
    T[5:] = pose_from_euler([200.0, 0.0, 0.0], [0.0, 0.0, 0.0]) @ T[5:]
    assert numbers(stamps, T) == [0] * 5 + [1] * 5


def test_messages_out_of_order_are_ignored_and_a_clock_set_back_is_a_jump():
    stamps, T = straight(200)
    order = [100, 101, 99, 101, 102, 1, 2]
    assert numbers(stamps[order], T[order]) == [0, 0, None, None, 0, 1, 1]


@pytest.mark.parametrize(('excess_m', 'is_jump'), [(-0.01, False), (0.01, True)])
def test_a_step_is_explained_by_speed_and_acceleration(excess_m, is_jump):
    """From 10 m/s, 4 s at 3 m/s^2 more: 40 + 24 m, beside the 20 m of max_step_m."""
    x_m = np.array([0.0, 10.0, 10.0 + 40.0 + 24.0 + 20.0 + excess_m])
    T = pose_from_euler(x_m[:, None] * [1.0, 0.0, 0.0], np.zeros((3, 3)))
    assert numbers([0, NS_PER_S, 5 * NS_PER_S], T) == [0, 0, int(is_jump)]
