"""LiDAR odometry on real scans, on a simulated drive, and where it cannot know the pose."""

import functools

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from toy_recordings import cloud_message

from lpr_ros.core.config import override
from lpr_ros.core.errors import ConfigError, ScanError
from lpr_ros.core.geometry.se3 import invert, pose_from_euler, transform_points
from lpr_ros.core.geometry.trajectory import position_errors_m, root_mean_square
from lpr_ros.core.io.pointcloud2 import read_cloud
from lpr_ros.core.odometry.config import LidarOdometryConfig
from lpr_ros.core.odometry.lidar_odometry import LidarOdometry, scaled
from lpr_ros.core.recordings.open import open_recording

PERIOD_S = 0.1
START_NS = 1_700_000_000_000_000_000
COUNT = 20


@functools.cache
def world():
    """Return points on the ground and on walls in two directions around a road along x."""
    rng = np.random.default_rng(7)
    parts = [np.column_stack([rng.uniform(-40.0, 120.0, (12000, 1)),
                              rng.uniform(-25.0, 25.0, (12000, 1)), np.zeros(12000)])]  # fmt: skip
    for x in range(-40, 120, 8):
        for side in (-1.0, 1.0):
            along, up = rng.uniform(0.0, 6.0, 300), rng.uniform(0.0, 6.0, 300)
            y = side * rng.uniform(8.0, 14.0)
            parts.append(np.column_stack([x + along, np.full(300, y), up]))
            parts.append(np.column_stack([np.full(300, float(x)), y + side * along, up]))
    return np.concatenate(parts)


def pose_at(time_s):
    """Return the pose of a vehicle that accelerates from 2 m/s to 20 m/s, swaying a little."""
    x = 2.0 * time_s + 3.0 * time_s**2
    return pose_from_euler([x, 0.0, 1.7], [0.0, 0.0, 0.05 * np.sin(2.0 * time_s)])


@functools.cache
def sweep(index, stamp_at=0.0):
    """Return one scan: stamp, points and their times; `stamp_at` is where in the sweep."""
    start_s, parts, times = index * PERIOD_S, [], []
    sectors = 40
    for sector in range(sectors):
        offset_s = PERIOD_S * sector / sectors
        seen = transform_points(invert(pose_at(start_s + offset_s)), world())
        azimuth = np.arctan2(seen[:, 1], seen[:, 0]) + np.pi
        inside = (azimuth * sectors / (2 * np.pi)).astype(int) == sector
        seen = seen[inside & (np.linalg.norm(seen, axis=1) < 50.0)]
        parts.append(seen)
        times.append(np.full(len(seen), offset_s - stamp_at * PERIOD_S))
    stamp_ns = START_NS + round((index + stamp_at) * PERIOD_S * 1e9)
    points = np.concatenate(parts).astype(np.float32)
    return stamp_ns, points, np.concatenate(times).astype(np.float32)


def followed(scans):
    odometry = LidarOdometry()
    return [odometry.add(*scan) for scan in scans]


def errors_m(estimates, true):
    """Return how far each step from the sixth scan on is off: the first scan is distorted."""
    T = np.stack([e.T_odom_sensor for e in estimates])
    steps, true_steps = invert(T[5]) @ T[6:], invert(true[5]) @ true[6:]
    return np.linalg.norm(steps[:, :3, 3] - true_steps[:, :3, 3], axis=1)


@pytest.mark.parametrize('stamp_at', [0.0, 1.0], ids=['start', 'end'])
def test_the_pose_is_that_at_the_stamp_wherever_in_the_sweep_it_is(stamp_at):
    """At 20 m/s, the two ends of a sweep are 2 m apart."""
    estimates = followed(sweep(i, stamp_at) for i in range(COUNT))
    true = np.stack([pose_at((i + stamp_at) * PERIOD_S) for i in range(COUNT)])
    assert errors_m(estimates, true).max() < 0.25
    assert estimates[-1].segment.number == 0
    assert not any(e.degenerate for e in estimates)


def test_times_of_points_make_the_pose_better():
    scans = [sweep(i) for i in range(COUNT)]
    true = np.stack([pose_at(i * PERIOD_S) for i in range(COUNT)])
    deskewed = errors_m(followed(scans), true)
    skewed = errors_m(followed((s, p, None) for s, p, _ in scans), true)
    assert deskewed.max() < 0.5 * skewed.max()


def test_missing_scans_do_not_change_the_motion_during_a_scan():
    kept = [i for i in range(COUNT) if i < 6 or i % 3 == 0]
    estimates = followed(sweep(i) for i in kept)
    true = np.stack([pose_at(i * PERIOD_S) for i in kept])
    assert estimates[-1].segment.number == 0
    assert errors_m(estimates, true).max() < 0.4


@pytest.mark.parametrize('bad', [0.0, np.nan, 1e4], ids=['equal', 'nan', 'other unit'])
def test_times_that_are_none_are_ignored(bad):
    """kiss_icp would abort the process."""
    stamp_ns, points, _ = sweep(0)
    odometry, plain = LidarOdometry(), LidarOdometry()
    times = np.full(len(points), bad, np.float32)
    for later_ns in (0, 100_000_000):
        estimate = odometry.add(stamp_ns + later_ns, points, times)
        expected = plain.add(stamp_ns + later_ns, points)
    np.testing.assert_array_equal(estimate.T_odom_sensor, expected.T_odom_sensor)


@pytest.mark.parametrize(
    ('field', 'kind', 'values'),
    [
        ('t', 'u4', lambda s, ns: s * 1e9),  # Ouster
        ('time', 'f4', lambda s, ns: s),  # Velodyne
        ('timestamp', 'f8', lambda s, ns: ns * 1e-9 + s),  # Hesai
        ('offset_time', 'u4', lambda s, ns: s * 1e9),  # Livox
    ],
)
def test_every_driver_gives_the_same_pose(field, kind, values):
    by_driver, plain = LidarOdometry(), LidarOdometry()
    for index in range(3):
        stamp_ns, points, time_s = sweep(index)
        columns = [(n, 4 * i, 'f4', points[:, i]) for i, n in enumerate('xyz')]
        columns.append((field, 16, kind, values(time_s.astype(np.float64), stamp_ns)))
        cloud = read_cloud(cloud_message(columns, stamp=divmod(stamp_ns, 10**9)))
        estimate = by_driver.add(stamp_ns, cloud.points, cloud.time_s)
        expected = plain.add(stamp_ns, points, time_s)
    np.testing.assert_allclose(estimate.T_odom_sensor, expected.T_odom_sensor, atol=1e-4)


def test_a_scan_that_has_nothing_in_common_starts_a_segment():
    odometry = LidarOdometry()
    for index in range(3):
        before = odometry.add(*sweep(index))
    rng = np.random.default_rng(1)
    elsewhere = rng.uniform(-40.0, 40.0, (4000, 3)) + np.array([0.0, 0.0, 60.0])
    lost = odometry.add(START_NS + 300_000_000, elsewhere.astype(np.float32))
    assert before.segment.number == 0
    assert lost.segment.number == 1
    assert 'lost at 1700000000300000000 ns' in lost.segment.reason
    after = odometry.add(START_NS + 400_000_000, elsewhere.astype(np.float32))
    assert after.segment is lost.segment
    np.testing.assert_allclose(after.T_odom_sensor, lost.T_odom_sensor, atol=0.05)


def test_a_clock_that_is_set_back_starts_a_segment():
    odometry = LidarOdometry()
    for index in (20, 21, 0):
        estimate = odometry.add(*sweep(index))
    assert estimate.segment.number == 1
    assert 'clock set back' in estimate.segment.reason


def tube(rng, length_m):
    """Return a scan of an endless tunnel along x, 8 m wide."""
    angle = rng.uniform(0.0, 2.0 * np.pi, 8000)
    x = rng.uniform(-length_m, length_m, 8000)
    radius = 4.0 + rng.normal(scale=0.02, size=8000)
    tunnel = np.column_stack([x, radius * np.cos(angle), radius * np.sin(angle)])
    return tunnel.astype(np.float32)


def test_a_tunnel_is_degenerate_along_its_axis_until_something_stands_in_it():
    rng, odometry = np.random.default_rng(2), LidarOdometry()
    yaw = pose_from_euler([0.0, 0.0, 0.0], [0.0, 0.0, 0.5])
    for index in range(3):
        scan = transform_points(yaw, tube(rng, 60.0))
        estimate = odometry.add(START_NS + index * 100_000_000, scan)
    assert 'degenerate' in estimate.degenerate
    x, y, z = map(float, estimate.degenerate.partition('(')[2].partition(')')[0].split(', '))
    assert abs(x * np.cos(0.5) + y * np.sin(0.5)) > 0.99, (x, y, z)
    wall = np.column_stack([np.full(3000, 15.0), rng.uniform(-4.0, 4.0, (3000, 2))])
    with_wall = np.concatenate([scan, transform_points(yaw, wall.astype(np.float32))])
    assert not LidarOdometry().add(START_NS, with_wall).degenerate


def test_too_few_points_are_refused_and_the_next_scan_is_registered():
    odometry = LidarOdometry()
    odometry.add(*sweep(0))
    with pytest.raises(ScanError, match=r'needs 50 points between .* m, got 0 of 60'):
        odometry.add(START_NS + 100_000_000, np.full((60, 3), 900.0, np.float32))
    assert odometry.add(*sweep(2)).segment.number == 0


def test_a_range_that_is_empty_is_refused():
    with pytest.raises(ConfigError, match='min_range_m'):
        override(LidarOdometryConfig(), {'min_range_m': 200.0})


def test_scaled_motions_add_up():
    T = pose_from_euler([1.0, 0.2, 0.0], [0.01, 0.02, 0.05])
    np.testing.assert_allclose(scaled(T, 1.0), T, atol=1e-12)
    np.testing.assert_allclose(scaled(T, 0.0), np.eye(4), atol=1e-12)
    half = Rotation.from_matrix(scaled(T, 0.5)[:3, :3])
    np.testing.assert_allclose((half * half).as_matrix(), T[:3, :3], atol=1e-12)


def test_real_scans_two_meters_apart_are_followed(shared_data):
    """Against GNSS: KITTI 00, its first 60 m."""
    path = shared_data / 'scans_kitti_00_3d.npz'
    source, odometry = open_recording(path), LidarOdometry()
    true = np.load(path)['T_world_sensor'][:30]
    stamps = source.stamps_ns.tolist()
    estimates = [odometry.add(stamps[i], source.points(i)) for i in range(len(true))]
    T = np.stack([e.T_odom_sensor for e in estimates])
    assert root_mean_square(position_errors_m(T[:, :3, 3], true[:, :3, 3])) < 0.2
    assert estimates[-1].segment.number == 0
    assert not any(e.degenerate for e in estimates)
