"""Core records as ROS messages and back."""

import timeit
from types import SimpleNamespace

from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import Odometry, Path
import numpy as np
import pytest
from rclpy.serialization import deserialize_message, serialize_message
from ros_processes import Ros
from scipy.spatial.transform import Rotation
from sensor_msgs.msg import PointCloud2
from visualization_msgs.msg import Marker

from lpr_ros.cloud_messages import cloud_message, scan_from_message
from lpr_ros.core.errors import CloudError, GraphError, ScanError
from lpr_ros.core.geometry import pose_from_euler
from lpr_ros.core.pointcloud2 import pack_cloud
from lpr_ros.core.records import LoopClosure, Match, Place
from lpr_ros.loop_messages import (
    CANDIDATE_COLUMNS,
    KeyframePath,
    candidates_message,
    constraint_message,
    loop_from_constraint,
)
from lpr_ros.markers import markers_message
from lpr_ros.outputs import Pace
from lpr_ros.pose_messages import (
    header_message,
    odometry_message,
    pose_from_message,
    pose_message,
    transform_message,
)
from lpr_ros.qos import LATCHED, LOOPS

STAMP_NS = 1_700_000_000_123_456_789


def over_the_wire(message):
    return deserialize_message(serialize_message(message), type(message))


def random_pose(rng):
    return pose_from_euler(rng.normal(scale=10.0, size=3), rng.uniform(-np.pi, np.pi, size=3))


def random_loop(rng, query_id=7, match_id=3):
    root = rng.normal(size=(6, 6))
    match = Match(match_id, 0.5, 0.9)
    return LoopClosure(
        query_id, match_id, random_pose(rng), root @ root.T + np.eye(6), 0.8, 500, match
    )


def test_a_pose_comes_back(rng):
    for _ in range(20):
        T = random_pose(rng)
        message = over_the_wire(odometry_message(STAMP_NS, 'odom', 'base', T))
        np.testing.assert_allclose(pose_from_message(message.pose.pose), T, atol=1e-12)
        assert (message.header.frame_id, message.child_frame_id) == ('odom', 'base')
        assert message.header.stamp.sec * 10**9 + message.header.stamp.nanosec == STAMP_NS
        moved = transform_message(T)
        assert moved.rotation == message.pose.pose.orientation
        assert moved.translation.x == message.pose.pose.position.x


@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_a_pose_that_is_none_is_refused(value):
    message = odometry_message(STAMP_NS, 'odom', 'base', np.eye(4))
    message.pose.pose.position.y = value
    with pytest.raises(ScanError, match='finite'):
        pose_from_message(message.pose.pose)
    message = Odometry()
    message.pose.pose.orientation.w = 0.0
    with pytest.raises(ScanError, match='quaternion'):
        pose_from_message(message.pose.pose)


def test_a_cloud_comes_back(rng):
    points = rng.normal(scale=20.0, size=(100, 3)).astype(np.float32)
    zeros = np.zeros(100, np.float32)
    packed = pack_cloud(points, zeros, zeros.astype(np.uint16), zeros)
    message = over_the_wire(cloud_message(STAMP_NS, 'lidar', packed))
    T = random_pose(rng)
    scan = scan_from_message(message, T)
    np.testing.assert_array_equal(scan.points, points)
    assert scan.stamp_ns == STAMP_NS
    assert scan.T_odom_sensor is T
    with pytest.raises(CloudError, match='point_step'):
        scan_from_message(PointCloud2())


def test_a_loop_comes_back(rng):
    for _ in range(20):
        loop = random_loop(rng)
        got = loop_from_constraint(over_the_wire(constraint_message(loop, STAMP_NS)))
        assert (got.query_id, got.match_id) == (loop.query_id, loop.match_id)
        np.testing.assert_allclose(got.T_match_query, loop.T_match_query, atol=1e-12)
        np.testing.assert_allclose(got.covariance, loop.covariance, atol=1e-9)


def test_frames_and_stamp_of_a_constraint(rng):
    message = constraint_message(random_loop(rng), STAMP_NS)
    assert message.header.frame_id == 'keyframe/3'
    assert message.child_frame_id == 'keyframe/7'
    assert message.header.stamp.nanosec == 123_456_789


def test_the_covariance_is_about_the_axes_of_the_match(rng):
    """Query turned left by 90 degrees, unsure ahead (its x) and in roll: the match's y."""
    loop = LoopClosure(
        1, 0, pose_from_euler([5.0, 0.0, 0.0], [0.0, 0.0, np.pi / 2]),
        np.diag([4.0, 1.0, 1.0, 0.4, 0.1, 0.1]), 1.0, 1, Match(0, 0.0, 1.0),
    )  # fmt: skip
    got = np.array(constraint_message(loop, STAMP_NS).pose.covariance).reshape(6, 6)
    np.testing.assert_allclose(got, np.diag([1.0, 4.0, 1.0, 0.1, 0.4, 0.1]), atol=1e-12)


def test_the_covariance_is_that_of_sampled_poses(rng):
    """Draw small motions in the query's frame; look at them as ROS does, along the match's axes.

    There: the change of position, and the rotation applied on the left.
    """
    scale = np.diag([0.1, 0.05, 0.02, 0.01, 0.02, 0.03])
    root = scale @ (np.eye(6) + 0.3 * rng.normal(size=(6, 6)))
    loop = LoopClosure(1, 0, random_pose(rng), root @ root.T, 1.0, 1, Match(0, 0.0, 1.0))
    R = loop.T_match_query[:3, :3]
    motions = rng.normal(size=(40_000, 6)) @ root.T
    turned = Rotation.from_matrix(R) * Rotation.from_rotvec(motions[:, 3:])
    left = (turned * Rotation.from_matrix(R).inv()).as_rotvec()
    seen = np.hstack([motions[:, :3] @ R.T, left])
    got = np.array(constraint_message(loop, STAMP_NS).pose.covariance).reshape(6, 6)
    deviation = np.sqrt(np.diag(got))
    np.testing.assert_allclose(
        np.cov(seen.T) / np.outer(deviation, deviation),
        got / np.outer(deviation, deviation),
        atol=0.03,
    )


@pytest.mark.parametrize('frame', ['', 'map', 'keyframe/', 'keyframe/-1', 'keyframe/1.5'])
def test_a_constraint_between_other_frames_is_refused(rng, frame):
    message = constraint_message(random_loop(rng), STAMP_NS)
    message.child_frame_id = frame
    with pytest.raises(GraphError, match=r'keyframe/<id>'):
        loop_from_constraint(message)


def test_a_constraint_without_a_pose_is_refused(rng):
    message = constraint_message(random_loop(rng), STAMP_NS)
    message.pose.pose.position.x = np.nan
    with pytest.raises(GraphError, match='loop closure 7 to 3'):
        loop_from_constraint(message)


def test_the_place_in_the_path_is_the_id(rng):
    path = KeyframePath('odom')
    poses = [random_pose(rng), None, random_pose(rng)]
    for i, (T, session) in enumerate(zip(poses, ('a', 'a', 'b'), strict=True)):
        path.add(Place(i, session, i, STAMP_NS + i, T, 0.0))
    got = over_the_wire(path.message)
    assert got.header.frame_id == 'odom'
    assert [pose.header.frame_id for pose in got.poses] == ['a', 'a', 'b']
    assert [pose.header.stamp.nanosec - 123_456_789 for pose in got.poses] == [0, 1, 2]
    np.testing.assert_allclose(pose_from_message(got.poses[2].pose), poses[2], atol=1e-12)
    assert np.isnan(got.poses[1].pose.position.x)
    with pytest.raises(GraphError, match='expected 3'):
        path.add(Place(5, 'b', 0, STAMP_NS, None, 0.0))


@pytest.mark.parametrize('frame', ['', 'odom', 'map/a', 'robots/one/odometry'])
def test_the_path_grows_by_bytes_and_is_the_message_that_rclpy_would_send(rng, frame):
    """Strings of every length modulo 8 before the doubles, as those are aligned."""
    path, plain = KeyframePath('before'), Path()
    assert len(path.message.poses) == 0
    path.frame_id = frame
    plain.header.frame_id = frame
    for i in range(20):
        keyframe = Place(i, 'session'[: i % 8], i, STAMP_NS + i, random_pose(rng), 0.0)
        path.add(keyframe)
        header = header_message(keyframe.stamp_ns, keyframe.session)
        pose = pose_message(keyframe.T_odom_sensor)
        plain.poses.append(PoseStamped(header=header, pose=pose))
        plain.header.stamp = header.stamp
        assert path.message == plain
        assert len(path.serialised()) == len(serialize_message(plain))


def test_a_long_path_is_sent_without_making_it_anew():
    """It is published whole again and again: rclpy takes 0.4 s for 5000 poses."""
    path = KeyframePath('odom')
    for i in range(2000):
        path.add(Place(i, 'robot', i, STAMP_NS + i, np.eye(4), 0.0))
    plain = path.message
    assert fastest(path.serialised) < 0.05 * fastest(lambda: serialize_message(plain))


def fastest(work):
    """Return the least of some times: what else runs only makes it longer."""
    return min(timeit.repeat(work, number=1, repeat=5))


def test_candidates_are_a_table_with_named_columns():
    matches = [Match(3, 0.25, 0.9), Match(8, 0.5, 0.1)]
    got = over_the_wire(candidates_message(20, matches))
    rows, columns = got.layout.dim
    assert (rows.label, rows.size, rows.stride) == ('candidates', 2, 8)
    assert (columns.label.split(','), columns.stride) == (list(CANDIDATE_COLUMNS), 4)
    table = np.array(got.data).reshape(rows.size, columns.size)
    np.testing.assert_array_equal(table, [[20, 3, 0.25, 0.9], [20, 8, 0.5, 0.1]])
    assert over_the_wire(candidates_message(20, [])) == candidates_message(20, [])


def test_markers_show_keyframes_and_edges_of_known_ends(rng):
    poses = {i: random_pose(rng) for i in range(4)}
    array = over_the_wire(
        markers_message(STAMP_NS, 'odom', poses, accepted=[(3, 0), (9, 0)], rejected=[(2, 1)])
    )
    by_name = {marker.ns: marker for marker in array.markers}
    assert len(by_name['keyframes'].points) == 4
    assert by_name['accepted'].type == Marker.LINE_LIST
    ends = [[p.x, p.y, p.z] for p in by_name['accepted'].points]
    np.testing.assert_allclose(ends, [poses[3][:3, 3], poses[0][:3, 3]])
    assert len(by_name['rejected'].points) == 2
    assert {marker.header.frame_id for marker in array.markers} == {'odom'}
    assert len({(m.color.r, m.color.g, m.color.b) for m in array.markers}) == 3


def test_what_grows_is_published_ever_more_rarely(monkeypatch):
    """A drive of 20,000 keyframes, one in a second: its poses are sent at most 2,000 a second."""
    clock = SimpleNamespace(now_s=100.0)
    monkeypatch.setattr('lpr_ros.outputs.time.monotonic', lambda: clock.now_s)
    pace, sent, seconds = Pace(), 0, 20_000
    for count in range(1, seconds + 1):
        clock.now_s += 1.0
        sent += count * pace.is_due((count,), count)
    assert seconds * 500 < sent < seconds * 2000
    clock.now_s += 60.0
    pace.is_due((seconds,), seconds)
    clock.now_s += 60.0
    assert not pace.is_due((seconds,), seconds)  # nothing is new
    assert pace.is_due((seconds, 'a new listener'), seconds)


def test_who_listens_late_gets_path_and_loops(ros: Ros, rng):
    node, path = ros.node(), KeyframePath('odom')
    path.add(Place(0, 'robot', 0, STAMP_NS, np.eye(4), 0.0))
    loops = [random_loop(rng, query_id=i) for i in (5, 6)]
    sent = node.create_publisher(Odometry, 'loops', LOOPS)
    for loop in loops:
        sent.publish(constraint_message(loop, STAMP_NS))
    node.create_publisher(Path, 'keyframes', LATCHED).publish(path.message)
    late = ros.node()
    inbox = ros.listen(late, Odometry, 'loops', LOOPS)
    assert [loop_from_constraint(inbox.take()).query_id for _ in loops] == [5, 6]
    assert ros.listen(late, Path, 'keyframes', LATCHED).take() == path.message
