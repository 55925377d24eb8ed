"""Bags as datasets: poses, keyframes, submaps, bad messages, worker processes."""

from dataclasses import replace
from multiprocessing import get_context

import numpy as np
import pytest
from toy_recordings import (
    MESSAGES,
    START_NS,
    assert_same_places,
    bad_rows,
    make_pose,
    make_scans,
    static_transforms,
    write_messages,
)

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.geometry.se3 import pose_from_euler
from lpr_ros.core.geometry.trajectory import Trajectory
from lpr_ros.core.io.pose_files import write_kitti_poses, write_tum
from lpr_ros.core.retrieval.keyframing import KeyframeConfig, Keyframer
from lpr_ros.core.types import Scan
from lpr_training.datasets.bag import BagDataset
from lpr_training.datasets.bag_writer import write_bag
from lpr_training.datasets.registry import make_dataset

EVERY = KeyframeConfig(distance_m=0.01)


@pytest.fixture
def bag(tmp_path):
    write_bag(tmp_path / 'drive', make_scans(12))
    return tmp_path / 'drive'


def test_every_scan_has_its_true_pose(bag):
    dataset = make_dataset('bag', bag, keyframes=EVERY)
    assert_same_places(dataset, make_scans(12), atol=1e-9)
    assert dataset.runs == ('drive',) * 12
    assert dataset.names[0] == str(START_NS)
    assert dataset.truth_topic == '/ground_truth'


def test_places_are_read_in_any_order(bag):
    dataset = BagDataset(bag, keyframes=EVERY)
    expected = list(make_scans(12))
    for i in (7, 0, 11, 3, 7):
        np.testing.assert_array_equal(dataset[i].points, expected[i].points)


def test_submaps_equal_those_of_the_node(bag):
    config = KeyframeConfig(distance_m=2.0, submap_m=4.0, submap_voxel_m=0.5)
    dataset = BagDataset(bag, keyframes=config)
    keyframer = Keyframer(config)
    streamed = [
        k
        for s in make_scans(12)
        if (k := keyframer.add(Scan(s.points, s.stamp_ns, s.T_odom_sensor))) is not None
    ]
    assert len(dataset) == len(streamed) > 3
    for place, keyframe in zip(dataset, streamed, strict=True):
        assert place.stamp_ns == keyframe.stamp_ns
        assert len(place.points) == pytest.approx(len(keyframe.points), rel=0.01)
        # Poses are stored as quaternions; rounding can move points at voxel borders.
        same = {tuple(p) for p in place.points.round(3)} & {
            tuple(p) for p in keyframe.points.round(3)
        }
        assert len(same) > 0.97 * len(keyframe.points)


def test_poses_from_a_file_replace_the_odometry(bag, tmp_path):
    stamps = np.array([START_NS + i * 100_000_000 for i in range(12)])
    poses = np.stack([pose_from_euler([3.0 * i, 0, 0], [0, 0, 0]) for i in range(12)])
    write_tum(tmp_path / 'poses.txt', Trajectory(stamps, poses))
    dataset = BagDataset(bag, poses=tmp_path / 'poses.txt', truth='/odometry', keyframes=EVERY)
    np.testing.assert_allclose(dataset.T_world_sensor[4], make_pose(4), atol=1e-9)
    write_kitti_poses(tmp_path / 'kitti.txt', poses)
    config = KeyframeConfig(distance_m=6.0)
    dataset = BagDataset(bag, poses=tmp_path / 'kitti.txt', keyframes=config)
    assert len(dataset) == 6


def test_a_pose_file_that_does_not_cover_the_clouds_is_rejected(bag, tmp_path):
    write_kitti_poses(tmp_path / 'kitti.txt', [np.eye(4)] * 5)
    with pytest.raises(DatasetError, match=r'kitti.txt: expected one pose for each of the 12'):
        BagDataset(bag, poses=tmp_path / 'kitti.txt')
    write_tum(tmp_path / 'tum.txt', Trajectory(np.array([1, 2]), np.stack([np.eye(4)] * 2)))
    with pytest.raises(DatasetError, match=r'none of 12 scans has a pose.* range of .*tum.txt'):
        BagDataset(bag, poses=tmp_path / 'tum.txt')


def test_scans_outside_the_odometry_are_counted(tmp_path):
    rows = [('/points', s.stamp_ns, MESSAGES.cloud(s)) for s in make_scans(6)]
    rows += [
        ('/odom', s.stamp_ns, MESSAGES.odometry(s.stamp_ns, 'odom', s.T_odom_sensor))
        for s in list(make_scans(6))[1:4]
    ]
    dataset = BagDataset(write_messages(tmp_path / 'drive', rows), keyframes=EVERY)
    assert (len(dataset), dataset.without_pose) == (3, 3)
    assert dataset.truth_topic == ''
    np.testing.assert_allclose(dataset.T_world_sensor[0], make_pose(1), atol=1e-9)


def test_scans_without_ground_truth_are_skipped(tmp_path):
    rows = []
    for i, s in enumerate(make_scans(6)):
        rows.append(('/points', s.stamp_ns, MESSAGES.cloud(s)))
        rows.append(('/odom', s.stamp_ns, MESSAGES.odometry(s.stamp_ns, 'o', s.T_odom_sensor)))
        if i >= 2:
            truth = MESSAGES.odometry(s.stamp_ns, 'world', s.T_world_sensor)
            rows.append(('/ground_truth', s.stamp_ns, truth))
    dataset = BagDataset(write_messages(tmp_path / 'drive', rows), keyframes=EVERY)
    assert_same_places(dataset, list(make_scans(6))[2:])
    assert dataset.without_pose == 2


def test_poses_are_not_interpolated_across_odometry_gaps(tmp_path):
    stamps = [START_NS + s * 1_000_000_000 for s in range(6)]
    scan = next(make_scans(1))
    half_s = 500_000_000
    rows = [('/points', t, MESSAGES.cloud(replace(scan, stamp_ns=t + half_s))) for t in stamps]
    rows += [
        ('/odom', t, MESSAGES.odometry(t, 'odom', make_pose(i)))
        for i, t in enumerate(stamps)
        if i not in (2, 3)
    ]
    dataset = BagDataset(write_messages(tmp_path / 'drive', rows), keyframes=EVERY)
    # Scans are at 0.5 to 5.5 s; the odometry has a gap from 1 to 4 s and ends at 5 s.
    assert dataset.stamps_ns.tolist() == [stamps[0] + half_s, stamps[4] + half_s]
    assert dataset.without_pose == 4


def test_odometry_of_the_base_and_truth_of_the_sensor(tmp_path):
    T_base_lidar = pose_from_euler([1.0, 0.0, 2.0], [0.0, 0.0, 0.5])
    rows = [('/tf_static', START_NS, static_transforms(('base', 'lidar', T_base_lidar)))]
    for s in make_scans(3):
        odometry = MESSAGES.odometry(s.stamp_ns, 'odom', s.T_odom_sensor)
        odometry.child_frame_id = 'base'
        truth = MESSAGES.odometry(s.stamp_ns, 'world', s.T_world_sensor)
        rows += [
            ('/points', s.stamp_ns, MESSAGES.cloud(s)),
            ('/odom', s.stamp_ns, odometry),
            ('/ground_truth', s.stamp_ns, truth),
        ]
    dataset = BagDataset(write_messages(tmp_path / 'both', rows), keyframes=EVERY)
    assert_same_places(dataset, make_scans(3))
    rows = [row for row in rows if row[0] != '/ground_truth']
    dataset = BagDataset(write_messages(tmp_path / 'odometry', rows), keyframes=EVERY)
    np.testing.assert_allclose(dataset.T_world_sensor[2], make_pose(2) @ T_base_lidar, atol=1e-9)


def test_repeated_stamps_give_each_place_once(tmp_path):
    rows = []
    for loop in range(2):
        for s in make_scans(4):
            log_ns = s.stamp_ns + loop * 10**12
            rows.append(('/points', log_ns, MESSAGES.cloud(s)))
            rows.append(('/odom', log_ns, MESSAGES.odometry(s.stamp_ns, 'o', s.T_odom_sensor)))
    dataset = BagDataset(write_messages(tmp_path / 'drive', rows), keyframes=EVERY)
    assert len(dataset) == len(set(dataset.names)) == 4


def test_a_bad_scan_is_reported_or_skipped_in_its_submap(tmp_path):
    rows = bad_rows() + [
        ('/odom', s.stamp_ns, MESSAGES.odometry(s.stamp_ns, 'odom', s.T_odom_sensor))
        for s in make_scans(5)
    ]
    path = write_messages(tmp_path / 'drive', rows)
    config = KeyframeConfig(distance_m=1.9, submap_m=10.0, submap_voxel_m=0.0)
    with pytest.raises(DatasetError, match='message 1 of /points'):
        BagDataset(path, keyframes=config)[1]
    bad = []
    dataset = BagDataset(path, keyframes=config, on_bad=bad.append)
    assert len(dataset[1].points) == 400  # scans 0 and 2; 1 was bad
    assert ['message 1 of /points' in str(e) for e in bad] == [True]


def test_a_dataset_can_be_sent_to_another_process(bag):
    dataset = BagDataset(bag, keyframes=EVERY)
    dataset[0]
    with get_context('spawn').Pool(1) as pool:
        (place,) = pool.map(dataset.__getitem__, [5])
    np.testing.assert_array_equal(place.points, list(make_scans(12))[5].points)


def test_forked_workers_do_not_share_a_file_position(tmp_path):
    scans = list(make_scans(12, points=5000))
    write_bag(tmp_path / 'drive', scans)
    FORKED['dataset'] = BagDataset(
        tmp_path / 'drive', keyframes=KeyframeConfig(distance_m=0.01, submap_scans=1)
    )
    order = list(range(12)) * 10
    with get_context('fork').Pool(2) as pool:
        sums = pool.map(forked_sum, order, chunksize=1)
        opened = pool.map(forked_bag, range(4), chunksize=1)
    assert id(FORKED['dataset']._source.bag) not in opened
    np.testing.assert_array_equal(sums, [float(scans[i].points.sum()) for i in order])


FORKED = {}


def forked_bag(_):
    return id(FORKED['dataset']._source.bag)


def forked_sum(index):
    return float(FORKED['dataset'][index].points.sum())
