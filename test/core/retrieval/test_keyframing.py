"""Keyframe selection by distance, rotation and time, and merging of scans into submaps."""

import numpy as np
import pytest
from toy_recordings import START_NS, make_scans

from lpr_ros.core.errors import ConfigError
from lpr_ros.core.geometry.points import voxel_downsample
from lpr_ros.core.geometry.se3 import pose_from_euler, transform_points
from lpr_ros.core.retrieval.keyframing import (
    KeyframeConfig,
    KeyframePlanner,
    Keyframer,
    merge_scans,
    prepare,
)
from lpr_ros.core.types import Scan

PERIOD_NS = 100_000_000


def plan(poses, config, stamps=None):
    planner = KeyframePlanner(config)
    stamps = stamps or [START_NS + i * PERIOD_NS for i in range(len(poses))]
    return [planner.add(stamp, T) for stamp, T in zip(stamps, poses, strict=True)]


def straight(steps_m):
    return [pose_from_euler([x, 0.0, 0.0], [0.0, 0.0, 0.0]) for x in np.cumsum(steps_m)]


def selected(planned):
    return [i for i, window in enumerate(planned) if window is not None]


def test_keyframes_are_selected_by_distance():
    poses = straight([0.0, *[0.5] * 9])
    assert selected(plan(poses, KeyframeConfig(distance_m=2.0))) == [0, 4, 8]


def test_keyframes_are_selected_by_rotation():
    poses = [pose_from_euler([0.0, 0.0, 0.0], [0.0, 0.0, np.deg2rad(10 * i)]) for i in range(10)]
    config = KeyframeConfig(distance_m=0.0, angle_deg=29.9)
    assert selected(plan(poses, config)) == [0, 3, 6, 9]


def test_keyframes_are_selected_by_time_with_and_without_odometry():
    config = KeyframeConfig(distance_m=0.0, interval_s=0.3)
    assert selected(plan([None] * 8, config)) == [0, 3, 6]
    assert selected(plan(straight([0.0] * 8), config)) == [0, 3, 6]


def test_no_keyframe_by_distance_without_odometry():
    assert selected(plan([None] * 8, KeyframeConfig())) == []


def test_the_first_scan_with_odometry_is_a_keyframe():
    still = straight([0.0] * 4)
    assert selected(plan(still, KeyframeConfig())) == [0]
    assert selected(plan([None, *still], KeyframeConfig())) == [1]
    by_time = KeyframeConfig(distance_m=2.0, interval_s=10.0)
    assert selected(plan([None, *still], by_time)) == [0, 1]


def test_between_intervals_scans_without_odometry_are_no_keyframes():
    config = KeyframeConfig(distance_m=2.0, interval_s=0.3)
    assert selected(plan([*straight([0.0]), None, None, None, None], config)) == [0, 3]


def test_any_criterion_suffices():
    turned = [pose_from_euler([x, 0.0, 0.0], [0.0, 0.0, x]) for x in (0.0, 0.6, 1.0, 1.6)]
    config = KeyframeConfig(distance_m=1.0, angle_deg=30.0, interval_s=100.0)
    assert selected(plan(turned, config)) == [0, 1, 3]  # 34 degrees; then 1 m
    assert selected(plan(turned, KeyframeConfig(distance_m=0.8))) == [0, 2]
    assert selected(plan(turned, KeyframeConfig(distance_m=9.0, angle_deg=80.0))) == [0, 3]


def test_distance_is_measured_in_all_directions():
    poses = [pose_from_euler([0.0, y, z], [0.0, 0.0, 1.0]) for y, z in ((0, 0), (3, 0), (3, 4))]
    assert selected(plan(poses, KeyframeConfig(distance_m=3.0))) == [0, 1, 2]
    assert selected(plan(poses, KeyframeConfig(distance_m=5.0))) == [0, 2]


def test_a_repeated_stamp_does_not_reset_the_planner():
    poses = straight([0.0, 0.5, 0.5])
    assert selected(plan(poses, KeyframeConfig(), [START_NS] * 3)) == [0]


def test_new_settings_take_effect_at_once():
    keyframer = Keyframer(KeyframeConfig(distance_m=2.0))
    scans = [Scan(np.zeros((1, 3), np.float32), START_NS + i, T)
             for i, T in enumerate(straight([0.0, 1.0, 1.0, 1.0, 1.0]))]  # fmt: skip
    assert [keyframer.add(scan) is scan for scan in scans[:3]] == [True, False, True]
    keyframer.config = KeyframeConfig(distance_m=1.0)
    assert [keyframer.add(scan) is scan for scan in scans[3:]] == [True, True]


def test_config_without_any_condition_is_rejected():
    with pytest.raises(ConfigError, match='no keyframe would ever'):
        KeyframeConfig(distance_m=0.0)


def test_submap_holds_the_scans_within_its_length():
    config = KeyframeConfig(distance_m=4.0, submap_m=3.0, submap_step_m=0.0)
    assert plan(straight([0.0, *[1.0] * 8]), config)[8] == (5, 6, 7, 8)


def test_without_submaps_a_keyframe_is_a_single_scan():
    config = KeyframeConfig(distance_m=0.0, interval_s=0.2)
    planned = plan(straight([0.0, 0.1, 0.0, 5.0, 0.0]), config)
    assert planned == [(0,), None, (2,), None, (4,)]


def test_submaps_may_be_shorter_than_a_meter():
    config = KeyframeConfig(distance_m=1.0, submap_m=0.5, submap_step_m=0.0, submap_voxel_m=5.0)
    assert plan(straight([0.0, *[0.25] * 4]), config)[4] == (2, 3, 4)
    (scan,) = make_scans(1)
    assert len(prepare(scan, config).points) < 200
    by_time = KeyframeConfig(distance_m=1.0, interval_s=0.1, submap_m=0.5)
    assert selected(plan([None] * 3, by_time)) == []


def test_submap_skips_scans_of_a_stationary_robot():
    config = KeyframeConfig(distance_m=2.0, submap_m=10.0, submap_step_m=0.5)
    planned = plan(straight([0.0, 1.0, 0.0, 0.0, 0.1, 1.0]), config)
    assert planned[5] == (0, 1, 5)
    assert plan(straight([0.0, 0.5, 0.5, 0.5, 0.5]), config)[4] == (0, 1, 2, 3, 4)


def test_a_keyframe_merges_itself_even_if_the_robot_stands_still():
    config = KeyframeConfig(distance_m=0.0, interval_s=0.2, submap_m=10.0, submap_step_m=0.5)
    planned = plan(straight([0.0, 1.0, 0.1, 0.0, 0.0]), config)
    assert planned == [(0,), None, (0, 1, 2), None, (0, 1, 4)]


def test_scans_without_odometry_are_never_keyframes_with_submaps():
    config = KeyframeConfig(distance_m=2.0, interval_s=0.1, submap_m=5.0)
    assert selected(plan([None] * 5, config)) == []
    assert plan([*straight([0.0]), None, *straight([1.0])], config) == [(0,), None, (0, 2)]


def test_submap_window_is_bounded():
    config = KeyframeConfig(distance_m=1.0, submap_m=1000.0, submap_scans=4, submap_step_m=0.0)
    planned = plan(straight([1.0] * 50), config)
    assert max(len(w) for w in planned) == 4
    keyframer = Keyframer(config)
    for scan in make_scans(30):
        keyframer.add(Scan(scan.points, scan.stamp_ns, scan.T_odom_sensor))
        assert len(keyframer._scans) <= 4


def test_a_stamp_going_back_resets_the_planner():
    config = KeyframeConfig(distance_m=2.0, submap_m=10.0, submap_step_m=0.0)
    stamps = [START_NS + i * PERIOD_NS for i in (0, 1, 2, 0, 1, 2)]
    planned = plan(straight([0.0, 1.0, 1.0, -2.0, 1.0, 1.0]), config, stamps)
    assert planned == [(0,), None, (0, 1, 2), (3,), None, (3, 4, 5)]


def test_merged_points_keep_their_world_coordinates():
    scans = [Scan(s.points, s.stamp_ns, s.T_odom_sensor) for s in make_scans(3)]
    merged = merge_scans(scans, voxel_m=0.0)
    world = transform_points(merged.T_odom_sensor, merged.points)
    expected = np.concatenate(
        [transform_points(s.T_odom_sensor, s.points) for s in reversed(scans)]
    )
    np.testing.assert_allclose(world, expected, atol=1e-4)
    assert merged.stamp_ns == scans[-1].stamp_ns


def test_streamed_and_planned_keyframes_are_identical():
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


def test_voxel_downsample_keeps_one_input_point_per_voxel():
    points = np.random.default_rng(1).uniform(-3.0, 3.0, size=(5000, 3)).astype(np.float32)
    kept = voxel_downsample(points, 0.5)
    voxels = {tuple(c) for c in np.floor(points / 0.5).astype(int)}
    assert len(kept) == len(voxels) == len({tuple(c) for c in np.floor(kept / 0.5).astype(int)})
    assert {tuple(p) for p in kept} <= {tuple(p) for p in points}
    np.testing.assert_array_equal(voxel_downsample(points, 0.0), points)


def test_voxel_downsample_keeps_the_first_point_for_huge_coordinates():
    rng = np.random.default_rng(0)
    distinct = rng.uniform(-3e9, 3e9, size=(101, 3)).astype(np.float32)
    np.testing.assert_array_equal(voxel_downsample(np.repeat(distinct, 3, axis=0), 0.1), distinct)
    near = np.array([[0.01, 0, 0], [0, 0, 0]], np.float32)
    np.testing.assert_array_equal(voxel_downsample(near, 0.1), near[:1])


def test_of_points_in_one_voxel_the_newest_is_kept():
    scans = [Scan(np.array([[x, 0.0, 0.0]], np.float32), i, np.eye(4))
             for i, x in enumerate((0.1, 0.2, 0.3))]  # fmt: skip
    np.testing.assert_array_equal(merge_scans(scans, 1.0).points, scans[2].points)


def test_a_single_scan_is_returned_unchanged():
    (scan,) = make_scans(1)
    assert merge_scans([scan], 0.5) is scan
    assert prepare(scan, KeyframeConfig()) is scan
    assert len(prepare(scan, KeyframeConfig(submap_m=1.0, submap_voxel_m=5.0)).points) < 200


@pytest.mark.parametrize('poses', [(None, np.eye(4)), (np.eye(4), None)])
def test_scans_without_odometry_cannot_be_merged(poses):
    with pytest.raises(ConfigError, match='without a pose'):
        merge_scans([Scan(np.zeros((1, 3), np.float32), 0, T) for T in poses], 0.1)
