"""The topics of lpr_node: markers, pacing, and one database after another."""

from dataclasses import replace
from types import SimpleNamespace

from message_samples import STAMP_NS, random_loop, random_pose, round_trip
from nav_msgs.msg import Odometry, Path
import numpy as np
import pytest
from ros_processes import wait_until
from toy_keyframes import circle, drive, empty
from visualization_msgs.msg import Marker

from lpr_ros.conversions.loops import KeyframePath
from lpr_ros.core.types import VerificationResult
from lpr_ros.lpr_node.publishers import Pace, Publishers, extend_path, markers_message
from lpr_ros.ros_utils.qos import LATCHED, LOOPS


def test_markers_show_keyframes_and_edges_between_known_keyframes(rng):
    poses = {i: random_pose(rng) for i in range(4)}
    array = round_trip(
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


def test_pace_publishes_longer_messages_less_often(monkeypatch):
    """A drive of 20,000 keyframes, one per second, sends at most 2,000 poses per second."""
    clock = SimpleNamespace(now_s=100.0)
    monkeypatch.setattr('lpr_ros.lpr_node.publishers.time.monotonic', lambda: clock.now_s)
    pace, sent, seconds = Pace(), 0, 20_000
    for count in range(1, seconds + 1):
        clock.now_s += 1.0
        sent += count * pace.is_due((count,), count)
    assert seconds * 500 < sent < seconds * 2000
    clock.now_s += 60.0
    pace.is_due((seconds,), seconds)
    clock.now_s += 60.0
    assert not pace.is_due((seconds,), seconds)  # unchanged
    assert pace.is_due((seconds, 'new subscriber'), seconds)


@pytest.fixture
def database(rng):
    made = empty()
    drive(made, circle(5), rng, session='first')
    return made


def path_of(database):
    path = KeyframePath('odom')
    extend_path(path, database, strict=True)
    return path


def test_a_keyframe_that_cannot_be_sent_does_not_stop_the_path(database, monkeypatch):
    real = type(database).place

    def place(self, keyframe_id):
        found = real(self, keyframe_id)
        return found if keyframe_id != 2 else replace(found, session='\udcff')

    monkeypatch.setattr(type(database), 'place', place)
    path = KeyframePath('odom')
    extend_path(path, database)
    poses = path.message.poses
    assert [pose.header.frame_id for pose in poses] == ['first', 'first', '', 'first', 'first']
    assert np.isnan(poses[2].pose.position.x)
    with pytest.raises(UnicodeEncodeError):
        extend_path(KeyframePath('odom'), database, strict=True)


def test_another_database_takes_over_the_topics(ros, rng, database):
    node = ros.node()
    publishers = Publishers(node)
    publishers.show(database, path_of(database))
    loop = random_loop(rng, query_id=4, match_id=0)
    publishers.publish_loops(VerificationResult(4, loop, (loop,)), [database.place(4)])
    publishers.publish_path()
    before = ros.node()
    loops = ros.listen(before, Odometry, f'{node.get_name()}/loop_closures', LOOPS)
    paths = ros.listen(before, Path, f'{node.get_name()}/keyframes', LATCHED)
    assert loops.take().child_frame_id == 'keyframe/4'
    assert len(paths.take().poses) == 5

    publishers.show(empty(), KeyframePath('odom'))
    publishers.publish_path()
    assert len(paths.take().poses) == 0
    late = ros.listen(ros.node(), Odometry, f'{node.get_name()}/loop_closures', LOOPS)
    publishers.show(database, path_of(database))
    other = random_loop(rng, query_id=3, match_id=1)
    publishers.publish_loops(VerificationResult(3, other, (other,)), [database.place(3)])
    assert late.take().child_frame_id == 'keyframe/3'  # not the loop closure of the old database
    assert loops.take().child_frame_id == 'keyframe/3'
    wait_until(lambda: node.count_publishers(f'{node.get_name()}/loop_closures') == 1, 'one')
