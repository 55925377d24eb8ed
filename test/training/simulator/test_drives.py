"""Drives with revisits in both directions, drifting odometry, and scans along the path."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from lpr_ros.core.errors import ConfigError, DatasetError
from lpr_training.simulator import (
    Day,
    OdometryConfig,
    SimulationConfig,
    load_sensor,
    make_drive,
    make_world,
    on_day,
    read_trajectory,
    simulate_drive,
)
from lpr_training.simulator.drive.odometry import drifting
from lpr_training.simulator.geometry.polylines import yaw_of

POSES = Path(__file__).resolve().parents[4] / 'shared' / 'data' / 'kitti_poses'
SENSOR = replace(load_sensor('vlp16'), columns=300)


@pytest.fixture(scope='module')
def suburb():
    return make_world('suburb', 5, size_m=160.0)


@pytest.fixture(scope='module')
def car_park():
    return make_world('car_park', 5, size_m=60.0)


@pytest.fixture(scope='module')
def forest():
    return make_world('forest', 5, size_m=100.0)


def write_poses(path: Path, xyz: np.ndarray) -> Path:
    """Write positions (x forward, y left, z up) as KITTI does, in the camera frame."""
    table = np.tile(np.eye(4)[:3].ravel(), (len(xyz), 1))
    table[:, 3], table[:, 7], table[:, 11] = -xyz[:, 1], -xyz[:, 2], xyz[:, 0]
    np.savetxt(path, table)
    return path


@pytest.fixture
def loop(tmp_path):
    """Return two laps of a circle of 40 m radius over a gentle hill."""
    angle = np.linspace(0.0, 4.0 * np.pi, 500)
    xyz = 40.0 * np.stack([np.sin(angle), 1.0 - np.cos(angle), 0.05 * np.sin(angle)], axis=1)
    return write_poses(tmp_path / 'loop.txt', xyz)


@pytest.mark.parametrize('seed', range(3))
def test_a_drive_revisits_roads_in_both_directions_and_other_lanes(suburb, seed):
    drive = make_drive(suburb, 1000.0, seed=seed)
    xy, yaw = drive.xy[::8], yaw_of(drive.xy)[::8]
    far = np.linalg.norm(xy[:, None] - xy[None], axis=2)
    later = np.arange(len(xy))[:, None] - np.arange(len(xy))[None] > 50
    turn = np.cos(yaw[:, None] - yaw[None])
    same, opposite = later & (far < 6.0) & (turn > 0.9), later & (far < 6.0) & (turn < -0.9)
    assert same.any(axis=1).mean() > 0.08
    assert opposite.any(axis=1).mean() > 0.08
    assert np.median(np.where(opposite, far, np.inf).min(axis=1)[opposite.any(axis=1)]) > 1.0


def test_make_drive_has_the_requested_length_and_speed(suburb):
    drive = make_drive(suburb, 500.0, speed_mps=5.0)
    assert drive.length_m == pytest.approx(500.0, abs=1.0)
    speed = np.linalg.norm(np.diff(drive.xy, axis=0), axis=1) / np.diff(drive.time_s)
    assert np.median(speed) == pytest.approx(5.0, rel=0.02)
    assert speed.max() < 5.1


@pytest.mark.parametrize('seed', range(3))
def test_a_drive_turns_and_accelerates_like_a_vehicle(suburb, seed):
    drive = make_drive(suburb, 1000.0, seed=seed)
    t = drive.sample_times(10.0)
    xy = np.stack([np.interp(t, drive.time_s, axis) for axis in drive.xy.T], axis=1)
    yaw = np.interp(t, drive.time_s, yaw_of(drive.xy))
    speed = 10.0 * np.linalg.norm(np.diff(xy, axis=0), axis=1)
    yaw_rate = 10.0 * np.abs(np.diff(yaw))
    assert np.degrees(yaw_rate).max() < 40.0
    assert (speed * yaw_rate).max() < 3.0  # m/s^2, sideways
    assert np.abs(np.diff(speed)).max() * 10.0 < 4.0  # m/s^2, along the way


@pytest.mark.parametrize(('length', 'speed'), [(0.0, 8.0), (-5.0, 8.0), (float('nan'), 8.0),
                                               (100.0, 0.0), (np.inf, 8.0)])  # fmt: skip
def test_make_drive_rejects_a_bad_length_or_speed(suburb, length, speed):
    with pytest.raises(ConfigError, match='expected a finite value above 0'):
        make_drive(suburb, length, speed_mps=speed)


def test_scans_follow_the_sensor_rate_or_the_spacing(car_park):
    drive = make_drive(car_park, 60.0)
    by_rate = simulate_drive(car_park, SENSOR, drive)
    stamps = [by_rate.scan(i).stamp_ns for i in range(3)]
    assert [b - a for a, b in pairwise(stamps)] == [100_000_000] * 2
    by_distance = simulate_drive(car_park, SENSOR, drive, SimulationConfig(spacing_m=3.0))
    steps = np.linalg.norm(np.diff(by_distance.T_world_sensor[:, :2, 3], axis=0), axis=1)
    assert len(by_distance) == pytest.approx(20, abs=1)
    assert steps.max() < 3.01  # across a bend it is less
    assert np.median(steps) == pytest.approx(3.0, abs=0.01)


def test_the_same_seed_gives_the_same_bytes_for_any_number_of_threads(car_park):
    def content(workers, seed=1):
        config = SimulationConfig(spacing_m=5.0, workers=workers)
        drive = make_drive(car_park, 60.0)
        scans = simulate_drive(car_park, SENSOR, drive, config, seed=seed)
        return [
            b''.join(np.asarray(value).tobytes() for value in vars(scan).values())
            for scan in scans
        ]

    assert content(1) == content(3)
    assert content(2) != content(2, seed=2)


def test_a_place_looks_similar_but_not_identical_on_another_day(suburb):
    drive = make_drive(suburb, 40.0)
    days = [suburb, on_day(suburb, Day(number=2))]
    a, b = (simulate_drive(w, SENSOR, drive).scan(20) for w in days)
    assert b.stamp_ns - a.stamp_ns == 2 * 86_400 * 10**9

    def cells(scan):
        return set(map(tuple, np.floor(scan.points[scan.points[:, 2] > -1.2]).astype(int)))

    shared = len(cells(a) & cells(b)) / len(cells(a) | cells(b))
    assert 0.3 < shared < 1.0


def test_odometry_is_accurate_locally_and_drifts_over_the_drive(suburb):
    drive = make_drive(suburb, 1500.0)
    truth = drive.poses(suburb.ground, drive.sample_times(10.0))
    errors = []
    for seed in range(8):
        odom = drifting(truth, OdometryConfig(), np.random.default_rng(seed))
        step = np.linalg.inv(odom[:-1]) @ odom[1:]
        true_step = np.linalg.inv(truth[:-1]) @ truth[1:]
        assert np.abs(step - true_step)[:, :3, 3].max() < 0.12
        start = np.linalg.inv(truth[0]) @ truth
        errors.append(np.linalg.norm((odom - start)[:, :3, 3], axis=1))
    mean = np.mean(errors, axis=0)
    early, late = mean[: len(mean) // 5].mean(), mean[-len(mean) // 5 :].mean()
    assert np.array_equal(odom[0], np.eye(4))
    assert late > 3.0 * early
    assert 1.0 < late < 60.0  # meters, on 1500 m


def test_each_kind_of_drift_has_its_declared_size():
    straight = np.tile(np.eye(4), (101, 1, 1))
    straight[:, 0, 3] = np.arange(101.0)  # 100 m
    none = OdometryConfig(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)

    def ends(config):
        return np.array([drifting(straight, config, np.random.default_rng(k))[-1]
                         for k in range(300)])  # fmt: skip

    for name in ('heading_walk_deg', 'heading_bias_deg'):
        end = ends(replace(none, **{name: 2.0}))
        yaw_deg = np.degrees(np.arctan2(end[:, 1, 0], end[:, 0, 0]))
        assert yaw_deg.std() == pytest.approx(2.0, rel=0.15)
    assert ends(replace(none, scale_sigma=0.02))[:, 0, 3].std() == pytest.approx(2.0, rel=0.15)
    shift = ends(replace(none, position_walk_m=0.5))[:, 1, 3]
    assert shift.std() == pytest.approx(0.5, rel=0.15)


def test_slow_drift_has_its_declared_size_and_forgets():
    straight = np.tile(np.eye(4), (1001, 1, 1))
    straight[:, 0, 3] = np.arange(1001.0)
    none = OdometryConfig(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)

    def ends(config, count):
        return np.array([drifting(straight[:count], config, np.random.default_rng(k))[-1]
                         for k in range(300)])  # fmt: skip

    position = replace(none, slow_drift_fraction=0.01)
    # Over much less than 100 m the drift is constant; over much more it is a random walk.
    assert ends(position, 11)[:, 1, 3].std() == pytest.approx(0.1, rel=0.15)
    walk_m = 0.01 * np.sqrt(2.0 * 100.0 * (1000.0 - 100.0))
    assert ends(position, 1001)[:, 1, 3].std() == pytest.approx(walk_m, rel=0.15)
    turned = ends(replace(none, slow_heading_deg=2.0, slow_drift_m=1e6), 101)
    yaw_deg = np.degrees(np.arctan2(turned[:, 1, 0], turned[:, 0, 0]))
    assert yaw_deg.std() == pytest.approx(2.0, rel=0.15)


def test_slow_drift_does_not_change_what_is_drawn_next():
    straight = np.tile(np.eye(4), (11, 1, 1))
    straight[:, 0, 3] = np.arange(11.0)
    rng, other = np.random.default_rng(0), np.random.default_rng(0)
    drifting(straight, OdometryConfig(slow_drift_fraction=0.01), rng)
    other.standard_normal(2 + 3 * 3 * 10)  # scale and bias; turn, shift and jitter of ten steps
    assert rng.random() == other.random()


def test_odometry_without_noise_is_the_ground_truth(suburb):
    drive = make_drive(suburb, 200.0)
    truth = drive.poses(suburb.ground, drive.sample_times(10.0))
    none = OdometryConfig(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    odom = drifting(truth, none, np.random.default_rng(0))
    assert np.allclose(odom, np.linalg.inv(truth[0]) @ truth, atol=1e-6)


def test_uneven_ground_tilts_the_sensor(forest, suburb):
    def tilt_deg(world):
        drive = make_drive(world, 300.0)
        up = drive.poses(world.ground, drive.sample_times(10.0))[:, 2, 2]
        return np.degrees(np.arccos(up))

    assert tilt_deg(forest).max() > 5.0
    assert tilt_deg(forest).max() > tilt_deg(suburb).max()


def test_the_sensor_is_at_its_mounting_height(car_park):
    drive = make_drive(car_park, 100.0)
    T = simulate_drive(car_park, SENSOR, drive).T_world_sensor
    height = T[:, 2, 3] - car_park.ground.height(T[:, :2, 3])
    assert np.allclose(height, SENSOR.mount_height_m, atol=0.1)


def test_a_world_follows_a_recorded_drive(loop):
    trajectory = read_trajectory(loop)
    world = make_world('city', 1, trajectory=trajectory)
    drive = make_drive(world)
    assert drive.length_m == pytest.approx(2 * 2 * np.pi * 40.0, rel=0.01)
    assert not world.plan.is_occupied(drive.xy).any()
    radius = np.linalg.norm(drive.xy - (0.0, 40.0), axis=1)
    assert np.allclose(radius, 40.0, atol=0.3)
    z = drive.poses(world.ground, drive.time_s)[:, 2, 3]
    assert np.ptp(z) > 1.0  # the hill is there
    assert len(world.sites.buildings) > 10


@pytest.mark.skipif(not POSES.is_dir(), reason=f'no real trajectories in {POSES}')
def test_a_recorded_drive_moves_forward_along_its_poses():
    table = np.loadtxt(POSES / '07.txt')
    trajectory = read_trajectory(POSES / '07.txt', length_m=300.0)
    recorded = np.stack([table[:200, 11], -table[:200, 3]], axis=1)
    far = np.linalg.norm(recorded[:, None] - trajectory.xy[None], axis=2).min(axis=1)
    assert far.max() < 0.8
    assert trajectory.xy[20, 0] > 5.0  # z of the camera is forward
    world = make_world('city', 3, trajectory=trajectory)
    assert not world.plan.is_occupied(make_drive(world, 300.0).xy).any()


@pytest.mark.parametrize('text', ['1 2 3\n', 'x\n', '0 ' * 11 + 'nan\n', ''])
def test_a_bad_pose_file_is_reported_by_name(tmp_path, text):
    path = tmp_path / 'bad.txt'
    path.write_text(text)
    with pytest.raises(DatasetError, match=r'bad'):
        read_trajectory(path)


def on_one_route(world, **options) -> tuple[np.ndarray, float]:
    """Return the distances between two drives of a route, and their relative direction."""
    first = make_drive(world, 400.0, seed=0, route_seed=1)
    second = make_drive(world, 400.0, seed=1, route_seed=1, **options)
    apart = np.linalg.norm(first.xy[:, None] - second.xy[None], axis=2)
    nearest = apart.argmin(axis=1)
    return apart.min(axis=1), float(np.corrcoef(np.arange(len(nearest)), nearest)[0, 1])


def test_drives_of_one_route_take_the_same_roads_with_other_offsets(suburb):
    apart, order = on_one_route(suburb)
    assert 0.0 < np.median(apart) < suburb.recipe.road_width_m / 2
    assert order > 0.8


def test_a_backwards_drive_takes_the_same_roads_in_reverse(suburb):
    apart, order = on_one_route(suburb, backwards=True)
    assert 1.0 < np.median(apart) < suburb.recipe.road_width_m
    assert order < -0.8
