"""The topics of lpr_node: markers, pacing, and one database after another."""

from dataclasses import replace
from types import SimpleNamespace

from message_samples import STAMP_NS, random_loop, random_pose, round_trip
from nav_msgs.msg import Odometry, Path
import numpy as np
import pytest
from ros_processes import wait_until
from toy_keyframes import circle, drive, empty
from visualization_msgs.msg import Marker, MarkerArray

from lpr_ros.conversions.loops import KeyframePath
from lpr_ros.core.types import KeyframeQuery, VerificationResult
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


def publish(publishers, database, result):
    stamps_ns = {i: database.place(i).stamp_ns for i in range(len(database))}
    publishers.publish_loops(result, stamps_ns)


def test_another_database_takes_over_the_topics(ros, rng, database):
    node = ros.node()
    publishers = Publishers(node)
    publishers.show(database, path_of(database))
    loop = random_loop(rng, query_id=4, match_id=0)
    publish(publishers, database, VerificationResult(4, loop, (loop,)))
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
    publish(publishers, database, VerificationResult(3, other, (other,)))
    assert late.take().child_frame_id == 'keyframe/3'  # not the loop closure of the old database
    assert loops.take().child_frame_id == 'keyframe/3'
    wait_until(lambda: node.count_publishers(f'{node.get_name()}/loop_closures') == 1, 'one')


def test_late_subscribers_know_which_loops_stand(ros, rng, database):
    """A loop stands if it was published more often than retracted, in any order of the topics."""
    node = ros.node()
    publishers = Publishers(node)
    publishers.show(database, path_of(database))
    stays, returns, goes = (random_loop(rng, query_id=4, match_id=i) for i in range(3))
    rival = replace(goes, T_match_query=random_pose(rng))  # the same pair at another pose
    for result in (
        VerificationResult(4, trusted=(stays, returns, goes)),
        VerificationResult(4, retracted=(returns, goes)),
        VerificationResult(4, trusted=(returns, rival)),
    ):
        publish(publishers, database, result)
    late, name = ros.node(), node.get_name()
    published = ros.listen(late, Odometry, f'{name}/loop_closures', LOOPS)
    retracted = ros.listen(late, Odometry, f'{name}/retracted_loop_closures', LOOPS)
    plus = [published.take() for _ in range(5)]
    minus = [retracted.take() for _ in range(2)]
    assert minus == [plus[1], plus[2]]  # exactly the messages that were published
    standing = [m for m in plus if plus.count(m) > minus.count(m)]
    poses = {m.pose.pose.position.x for m in standing}
    expected = {x.T_match_query[0, 3] for x in (stays, returns, rival)}
    assert sorted(poses) == pytest.approx(sorted(expected))

    publishers.show(database, path_of(database))  # as after a reset: neither is known any more
    for topic in ('loop_closures', 'retracted_loop_closures'):
        wait_until(lambda t=topic: node.count_publishers(f'{name}/{t}') == 1, 'one publisher')
    again = ros.node()
    published = ros.listen(again, Odometry, f'{name}/loop_closures', LOOPS)
    retracted = ros.listen(again, Odometry, f'{name}/retracted_loop_closures', LOOPS)
    other = random_loop(rng, query_id=3, match_id=1)
    publish(publishers, database, VerificationResult(3, trusted=(other,)))
    publish(publishers, database, VerificationResult(3, retracted=(other,)))
    assert published.take() == retracted.take()
    assert not published.drain()
    assert not retracted.drain()


def test_a_retracted_edge_moves_from_accepted_to_rejected(ros, rng, database):
    node = ros.node()
    publishers = Publishers(node)
    publishers.show(database, path_of(database))
    inbox = ros.listen(ros.node(), MarkerArray, f'{node.get_name()}/markers', LATCHED)
    wait_until(lambda: node.count_subscribers(f'{node.get_name()}/markers'), 'a subscriber')
    for i in range(5):
        keyframe = database[i]
        publishers.publish_keyframe(KeyframeQuery(keyframe, (), (), ()))
    loops = [random_loop(rng, query_id=4, match_id=i) for i in range(2)]

    def edges(result):
        publish(publishers, database, result)

        def arrived():
            publishers.publish_markers(STAMP_NS)
            return inbox.drain()

        lines = {m.ns: len(m.points) // 2 for m in wait_until(arrived, 'markers')[-1].markers}
        return lines['accepted'], lines['rejected']

    assert edges(VerificationResult(4, trusted=tuple(loops))) == (2, 0)
    assert edges(VerificationResult(4, retracted=(loops[0],))) == (1, 1)
