"""Odometry at the stamps of scans."""

import threading

import numpy as np
import pytest
from toy_drive import pose_at

from lpr_ros.core.errors import ScanError
from lpr_ros.core.geometry.trajectory import Trajectory
from lpr_ros.core.timing import CLOCK_JUMP_NS, NS_PER_S
from lpr_ros.lpr_node.odometry_buffer import BUFFER_NS, OdometryBuffer


def test_poses_are_interpolated_as_on_a_trajectory(rng):
    stamps = np.sort(rng.choice(8 * 10**9, 50, replace=False))
    buffer = OdometryBuffer(max_gap_s=10.0)
    trajectory = Trajectory(stamps, np.stack([pose_at(x) for x in rng.normal(size=50)]))
    for stamp, T in zip(stamps, trajectory.T, strict=True):
        assert buffer.add(int(stamp), T)
    for stamp in rng.integers(stamps[0], stamps[-1], 20):
        found = buffer.wait_for(int(stamp), 0.0).T_odom_base
        assert np.allclose(found, trajectory.at(int(stamp)))


def test_late_odometry_ends_the_wait():
    buffer = OdometryBuffer(max_gap_s=10.0)
    found = []
    thread = threading.Thread(target=lambda: found.append(buffer.wait_for(NS_PER_S, 20.0)))
    thread.start()
    buffer.add(0, pose_at(0.0))
    buffer.add(2 * NS_PER_S, pose_at(2.0))
    thread.join(20.0)
    assert np.allclose(found[0].T_odom_base, pose_at(1.0))


@pytest.mark.parametrize(
    ('stamp_ns', 'reason'),
    [
        (9 * NS_PER_S, 'odometry has reached 5000000000 ns'),
        (NS_PER_S // 2, 'older than the oldest odometry, 1000000000 ns'),
        (3 * NS_PER_S, 'odometry gap of 3000000000 ns, expected at most 1500000000 ns'),
    ],
)
def test_scans_without_odometry_are_refused_with_the_reason(stamp_ns, reason):
    buffer = OdometryBuffer(max_gap_s=1.5)
    for second in (1, 2, 5):
        buffer.add(second * NS_PER_S, pose_at(second))
    with pytest.raises(ScanError, match=reason) as caught:
        buffer.wait_for(stamp_ns, 0.0)
    assert caught.value.kind == 'no_odometry'


def test_a_jump_back_in_time_clears_the_buffer():
    buffer = OdometryBuffer(max_gap_s=10.0)
    for second in (100, 101):
        buffer.add(second * NS_PER_S, pose_at(second))
    assert not buffer.add(101 * NS_PER_S - 1, pose_at(0.0))  # merely out of order
    assert buffer.add(5 * NS_PER_S, pose_at(5.0))
    assert np.allclose(buffer.wait_for(5 * NS_PER_S, 0.0).T_odom_base, pose_at(5.0))
    with pytest.raises(ScanError):
        buffer.wait_for(100 * NS_PER_S, 0.0)


@pytest.mark.parametrize(
    ('back_ns', 'is_added'), [(0, False), (CLOCK_JUMP_NS - 1, False), (CLOCK_JUMP_NS, True)]
)
def test_only_a_large_step_back_is_a_clock_jump(back_ns, is_added):
    buffer = OdometryBuffer(max_gap_s=10.0)
    start_ns = 100 * NS_PER_S
    buffer.add(start_ns, pose_at(1.0))
    assert buffer.add(start_ns - back_ns, pose_at(2.0)) == is_added
    kept_ns, kept = (start_ns - back_ns, 2.0) if is_added else (start_ns, 1.0)
    np.testing.assert_array_equal(buffer.wait_for(kept_ns, 0.0).T_odom_base, pose_at(kept))


def test_a_gap_is_bridged_up_to_its_maximum():
    buffer = OdometryBuffer(max_gap_s=1.5)
    buffer.add(0, pose_at(0.0))
    buffer.add(3 * NS_PER_S // 2, pose_at(3.0))
    buffer.add(3 * NS_PER_S + 1, pose_at(6.0))
    np.testing.assert_allclose(buffer.wait_for(NS_PER_S // 2, 0.0).T_odom_base, pose_at(1.0))
    with pytest.raises(ScanError, match='odometry gap of 1500000001 ns'):
        buffer.wait_for(2 * NS_PER_S, 0.0)
    np.testing.assert_array_equal(buffer.wait_for(3 * NS_PER_S + 1, 0.0).T_odom_base, pose_at(6.0))


def test_poses_older_than_the_buffer_are_dropped():
    buffer = OdometryBuffer(max_gap_s=100.0)
    for stamp_ns in (0, 1, BUFFER_NS + 1):
        buffer.add(stamp_ns, pose_at(stamp_ns))
    np.testing.assert_array_equal(buffer.wait_for(1, 0.0).T_odom_base, pose_at(1.0))
    with pytest.raises(ScanError, match='older than the oldest odometry, 1 ns'):
        buffer.wait_for(0, 0.0)


@pytest.mark.parametrize(
    ('before_ns', 'reason'),
    [(CLOCK_JUMP_NS - 1, 'older than the oldest'), (CLOCK_JUMP_NS, 'odometry has reached')],
)
def test_a_scan_long_before_all_odometry_waits_for_the_clock_to_be_set_back(before_ns, reason):
    buffer = OdometryBuffer(max_gap_s=10.0)
    buffer.add(100 * NS_PER_S, pose_at(0.0))
    with pytest.raises(ScanError, match=reason):
        buffer.wait_for(100 * NS_PER_S - before_ns, 0.0)


def test_closing_ends_the_wait():
    buffer = OdometryBuffer(max_gap_s=10.0)
    found = []

    def wait():
        with pytest.raises(ScanError, match='odometry is missing') as caught:
            buffer.wait_for(NS_PER_S, 20.0)
        found.append(caught.value)

    thread = threading.Thread(target=wait)
    thread.start()
    buffer.close()
    thread.join(10.0)
    assert found


def test_a_jump_starts_a_segment_and_is_not_interpolated_across():
    buffer = OdometryBuffer(max_gap_s=1.5)
    for second, x_m in ((1, 8.0), (2, 16.0), (3, 100.0), (4, 108.0)):
        buffer.add(second * NS_PER_S, pose_at(x_m))
    half_ns = NS_PER_S // 2
    numbers = [buffer.wait_for(stamp, 0.0).segment.number for stamp in
               (NS_PER_S, 2 * NS_PER_S - 1, 2 * NS_PER_S, 3 * NS_PER_S, 3 * NS_PER_S + 1,
                4 * NS_PER_S)]  # fmt: skip
    assert numbers == [0, 0, 0, 1, 1, 1]
    reason = 'odometry jump of 84.0 m between 2000000000 ns and 3000000000 ns'
    assert buffer.wait_for(3 * NS_PER_S, 0.0).segment.reason == reason
    with pytest.raises(ScanError, match=reason) as caught:
        buffer.wait_for(2 * NS_PER_S + half_ns, 0.0)
    assert caught.value.kind == 'no_odometry'


def test_the_limit_of_a_jump_changes_live():
    buffer = OdometryBuffer(max_gap_s=1.5, max_step_m=5.0)
    buffer.add(NS_PER_S, pose_at(0.0))
    buffer.configure(max_step_m=50.0)
    buffer.add(2 * NS_PER_S, pose_at(40.0))
    assert buffer.wait_for(2 * NS_PER_S, 0.0).segment.number == 0


def test_a_clock_set_back_starts_a_segment():
    buffer = OdometryBuffer(max_gap_s=1.5)
    for second in (100, 101, 5):
        buffer.add(second * NS_PER_S, pose_at(0.0))
    segment = buffer.wait_for(5 * NS_PER_S, 0.0).segment
    assert (segment.number, segment.reason) == (
        1, 'clock set back from 101000000000 ns to 5000000000 ns'
    )  # fmt: skip


def test_poses_before_and_after_a_break_are_unrelated_however_near():
    buffer = OdometryBuffer(max_gap_s=10.0)
    buffer.add(NS_PER_S, pose_at(1.0))
    buffer.break_off('lost')
    buffer.add(2 * NS_PER_S, pose_at(1.1))
    before, after = (buffer.wait_for(second * NS_PER_S, 0.0).segment for second in (1, 2))
    assert (before.number, after.number, after.reason) == (0, 1, 'lost')
    with pytest.raises(ScanError, match='lost'):
        buffer.wait_for(3 * NS_PER_S // 2, 0.0)
