"""Odometry at the stamps of scans."""

import threading

import numpy as np
import pytest
from toy_drive import pose_at

from lpr_ros.core.errors import ScanError
from lpr_ros.core.geometry.trajectory import Trajectory
from lpr_ros.core.timing import NS_PER_S
from lpr_ros.lpr_node.odometry_buffer import OdometryBuffer


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
        (NS_PER_S // 2, 'older than the oldest'),
        (3 * NS_PER_S, 'odometry gap'),
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
