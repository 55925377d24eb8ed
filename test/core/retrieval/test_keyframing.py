import numpy as np
import pytest
from recordings import START_NS, make_scans

from lpr_ros.core.errors import ConfigError
from lpr_ros.core.geometry import pose_from_euler, transform_points
from lpr_ros.core.keyframes import (
    KeyframeConfig,
    KeyframePlanner,
    Keyframer,
    merge_scans,
    prepare,
    thin,
)
from lpr_ros.core.records import Scan

PERIOD_NS = 100_000_000


def plan(poses, config, stamps=None):
    planner = KeyframePlanner(config)
    stamps = stamps or [START_NS + i * PERIOD_NS for i in range(len(poses))]
    return [planner.add(stamp, T) for stamp, T in zip(stamps, poses, strict=True)]


def straight(steps_m):
    return [pose_from_euler([x, 0.0, 0.0], [0.0, 0.0, 0.0]) for x in np.cumsum(steps_m)]


def chosen(planned):
    return [i for i, window in enumerate(planned) if window is not None]


def test_a_keyframe_every_so_many_metres():
    poses = straight([0.0, *[0.5] * 9])
    assert chosen(plan(poses, KeyframeConfig(distance_m=2.0))) == [0, 4, 8]


def test_a_keyframe_every_so_many_degrees():
    poses = [pose_from_euler([0.0, 0.0, 0.0], [0.0, 0.0, np.deg2rad(10 * i)]) for i in range(10)]
    config = KeyframeConfig(distance_m=0.0, angle_deg=29.9)
    assert chosen(plan(poses, config)) == [0, 3, 6, 9]


def test_a_keyframe_every_so_many_seconds_also_without_odometry():
    config = KeyframeConfig(distance_m=0.0, interval_s=0.3)
    assert chosen(plan([None] * 8, config)) == [0, 3, 6]
    assert chosen(plan(straight([0.0] * 8), config)) == [0, 3, 6]


def test_without_odometry_distance_makes_no_keyframe():
    assert chosen(plan([None] * 8, KeyframeConfig())) == []


def test_a_config_that_can_never_be_due_is_refused():
    with pytest.raises(ConfigError, match='no keyframe would be made'):
        KeyframeConfig(distance_m=0.0)


def test_a_submap_holds_the_scans_of_its_length():
    config = KeyframeConfig(distance_m=4.0, submap_m=3.0, submap_step_m=0.0)
    assert plan(straight([0.0, *[1.0] * 8]), config)[8] == (5, 6, 7, 8)


def test_a_submap_leaves_out_scans_made_standing_still():
    config = KeyframeConfig(distance_m=2.0, submap_m=10.0, submap_step_m=0.5)
    planned = plan(straight([0.0, 1.0, 0.0, 0.0, 0.1, 1.0]), config)
    assert planned[5] == (0, 1, 5)


def test_the_window_is_bounded():
    config = KeyframeConfig(distance_m=1.0, submap_m=1000.0, submap_scans=4, submap_step_m=0.0)
    planned = plan(straight([1.0] * 50), config)
    assert max(len(w) for w in planned) == 4
    keyframer = Keyframer(config)
    for scan in make_scans(30):
        keyframer.add(Scan(scan.points, scan.stamp_ns, scan.T_odom_sensor))
        assert len(keyframer._scans) <= 4


def test_time_going_back_starts_anew():
    config = KeyframeConfig(distance_m=2.0, submap_m=10.0, submap_step_m=0.0)
    stamps = [START_NS + i * PERIOD_NS for i in (0, 1, 2, 0, 1, 2)]
    planned = plan(straight([0.0, 1.0, 1.0, -2.0, 1.0, 1.0]), config, stamps)
    assert planned == [(0,), None, (0, 1, 2), (3,), None, (3, 4, 5)]


def test_merged_points_stand_where_they_were_in_the_world():
    scans = [Scan(s.points, s.stamp_ns, s.T_odom_sensor) for s in make_scans(3)]
    merged = merge_scans(scans, voxel_m=0.0)
    world = transform_points(merged.T_odom_sensor, merged.points)
    expected = np.concatenate(
        [transform_points(s.T_odom_sensor, s.points) for s in reversed(scans)]
    )
    np.testing.assert_allclose(world, expected, atol=1e-4)
    assert merged.stamp_ns == scans[-1].stamp_ns


def test_streamed_and_planned_keyframes_are_the_same():
    config = KeyframeConfig(distance_m=2.0, submap_m=5.0, submap_voxel_m=0.5)
    scans = [Scan(s.points, s.stamp_ns, s.T_odom_sensor) for s in make_scans(20)]
    keyframer = Keyframer(config)
    streamed = [k for k in map(keyframer.add, scans) if k is not None]
    windows = [w for w in plan([s.T_odom_sensor for s in scans], config) if w is not None]
    assert len(streamed) == len(windows) > 3
    for keyframe, window in zip(streamed, windows, strict=True):
        planned = merge_scans([prepare(scans[i], config) for i in window], 0.5)
        np.testing.assert_array_equal(keyframe.points, planned.points)
        assert keyframe.stamp_ns == scans[window[-1]].stamp_ns


def test_thinning_keeps_one_real_point_per_voxel():
    points = np.random.default_rng(1).uniform(-3.0, 3.0, size=(5000, 3)).astype(np.float32)
    kept = thin(points, 0.5)
    voxels = {tuple(c) for c in np.floor(points / 0.5).astype(int)}
    assert len(kept) == len(voxels) == len({tuple(c) for c in np.floor(kept / 0.5).astype(int)})
    assert {tuple(p) for p in kept} <= {tuple(p) for p in points}
    np.testing.assert_array_equal(thin(points, 0.0), points)


def test_thinning_keeps_the_first_also_of_points_astronomically_far_apart():
    rng = np.random.default_rng(0)
    distinct = rng.uniform(-3e9, 3e9, size=(101, 3)).astype(np.float32)
    np.testing.assert_array_equal(thin(np.repeat(distinct, 3, axis=0), 0.1), distinct)
    near = np.array([[0.01, 0, 0], [0, 0, 0]], np.float32)
    np.testing.assert_array_equal(thin(near, 0.1), near[:1])


def test_scans_without_pose_cannot_be_merged():
    scan = Scan(np.zeros((1, 3), np.float32), 0)
    with pytest.raises(ConfigError, match='without a pose'):
        merge_scans([scan, scan], 0.1)
