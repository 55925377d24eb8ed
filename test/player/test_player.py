"""lpr_player as a separate process, observed by a subscriber."""

import importlib.util
import signal
import time

from nav_msgs.msg import Odometry
import numpy as np
import pytest
from rclpy.qos import QoSProfile, ReliabilityPolicy
from ros_processes import Ros, wait_until
from rosbags.rosbag1 import Writer as Ros1Writer
from rosbags.rosbag2 import Writer as Ros2Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import PointCloud2
from toy_recordings import START_NS, make_scans

from lpr_ros.conversions.poses import pose_from_message
from lpr_ros.core.errors import DatasetError
from lpr_ros.core.io.pointcloud2 import read_cloud
from lpr_ros.core.recordings.bag_reader import Bag
from lpr_ros.core.timing import stamp_ns
from lpr_ros.player.node import main, published_names
from lpr_ros.player.sources import BagPlayback, open_playback
from lpr_ros.ros_utils.spin import STOP_SIGNALS
from lpr_training.datasets.bag_writer import write_bag
from lpr_training.datasets.kitti import write_kitti

SCANS = 10  # 0.1 s apart
QOS = QoSProfile(depth=1000, reliability=ReliabilityPolicy.RELIABLE)


@pytest.fixture
def bag(tmp_path):
    write_bag(tmp_path / 'drive', make_scans(SCANS), clock=True)
    return tmp_path / 'drive'


class Subscriber:
    """Subscribe to everything that the player may publish."""

    def __init__(self, ros: Ros):
        node = ros.node()
        self.clouds = ros.listen(node, PointCloud2, '/points', QOS)
        self.odometry = ros.listen(node, Odometry, '/odometry', QOS)
        self.truth = ros.listen(node, Odometry, '/ground_truth', QOS)
        self.clock = ros.listen(node, Clock, '/clock', QOS)

    def times_ns(self) -> list[int]:
        return [m.clock.sec * 10**9 + m.clock.nanosec for m in self.clock.drain()]


def player(ros: Ros, *arguments):
    return ros.start('-m', 'lpr_ros.player', *map(str, arguments))


def stamps(messages) -> list[int]:
    return [stamp_ns(message.header) for message in messages]


def test_player_publishes_a_bag_complete_and_unchanged(ros: Ros, bag):
    subscriber = Subscriber(ros)
    process = player(ros, bag, '--rate', '0', '--wait', '1')
    clouds = [subscriber.clouds.take() for _ in range(SCANS)]
    poses = [subscriber.odometry.take() for _ in range(SCANS)]
    truth = [subscriber.truth.take() for _ in range(SCANS)]
    assert process.wait() == 0, process.output
    for expected, cloud, pose, true in zip(make_scans(SCANS), clouds, poses, truth, strict=True):
        np.testing.assert_array_equal(read_cloud(cloud).points, expected.points)
        assert [f.name for f in cloud.fields] == ['x', 'y', 'z', 'intensity', 'ring', 'time']
        assert stamps([cloud, pose, true]) == [expected.stamp_ns] * 3
        got = pose_from_message(pose.pose.pose)
        np.testing.assert_allclose(got, expected.T_odom_sensor, atol=1e-9)
        got = pose_from_message(true.pose.pose)
        np.testing.assert_allclose(got, expected.T_world_sensor, atol=1e-9)
    times = subscriber.times_ns()
    assert times == sorted(times)
    # The 100 Hz clock recorded in the bag is replaced by that of the player.
    assert set(times) == set(stamps(clouds))
    assert '100%' in process.output


def test_player_keeps_the_rate_and_publishes_the_clock_between_messages(ros: Ros, bag):
    subscriber = Subscriber(ros)
    process = player(ros, bag, '--rate', '0.5', '--start', '0.3', '--duration', '0.4', '--wait', 1)
    arrivals, clouds = [], []
    for _ in range(5):
        clouds.append(subscriber.clouds.take())
        arrivals.append(time.monotonic())
    assert process.wait() == 0, process.output
    assert stamps(clouds) == [START_NS + i * 100_000_000 for i in range(3, 8)]
    assert arrivals[-1] - arrivals[0] > 0.6  # 0.4 s at half the speed
    assert not subscriber.clouds.drain()
    times = subscriber.times_ns()
    assert times == sorted(times)
    assert len(times) > 30
    assert (times[0], times[-1]) == (stamps(clouds)[0], stamps(clouds)[-1])


def test_player_logs_that_it_waits_for_subscribers(ros: Ros, bag):
    process = player(ros, bag, '--rate', '0', '--wait', '1', '--quiet')
    message = 'waiting for subscribers of /points: 0 of 1'
    wait_until(lambda: message in process.output, message)
    subscriber = Subscriber(ros)
    assert subscriber.clouds.take()
    assert process.wait() == 0, process.output


@pytest.mark.parametrize('sent', [signal.SIGINT, signal.SIGTERM])
def test_player_loops_until_interrupted(ros: Ros, bag, sent):
    subscriber = Subscriber(ros)
    process = player(ros, bag, '--loop', '--rate', '3', '--wait', '1', '--quiet')
    got = stamps([subscriber.clouds.take() for _ in range(3 * SCANS)])
    once = [START_NS + i * 100_000_000 for i in range(SCANS)]
    assert got == once * 3
    process.interrupt(sent)
    process.interrupt()  # as `ros2 launch` does
    assert process.wait() == 0, process.output
    assert 'Traceback' not in process.output


def test_the_only_topics_of_their_types_are_published_under_the_names_asked_for(ros: Ros, bag):
    node = ros.node()
    clouds = ros.listen(node, PointCloud2, '/robot/scans', QOS)
    odometry = ros.listen(node, Odometry, '/odom', QOS)
    arguments = ('--points', 'scans', '--odometry', '/odom', '--rate', '0', '--wait', '1')
    process = player(ros, bag, *arguments, '--ros-args', '-r', '__ns:=/robot')
    assert stamps([clouds.take() for _ in range(SCANS)]) == stamps(
        [odometry.take() for _ in range(SCANS)]
    )
    assert process.wait() == 0, process.output
    assert '/points is published as /robot/scans' in process.output


def test_names_are_asked_for_if_the_recording_has_several(ros: Ros):
    node = ros.node()
    topics = {'/a': PointCloud2, '/b': PointCloud2, '/odom': Odometry, '/ground_truth': Odometry}
    assert published_names(node, topics, '', '') == {}
    assert published_names(node, topics, '/b', '/odom') == {}
    assert published_names(node, topics, 'a', 'odometry') == {'/odom': '/odometry'}
    with pytest.raises(DatasetError, match=r'no /points but 2 topics .* /a or /b'):
        published_names(node, topics, 'points', '')
    with pytest.raises(DatasetError, match='no PointCloud2 topic, only /odom'):
        published_names(node, {'/odom': Odometry}, 'points', '')
    assert published_names(node, {'/a': PointCloud2}, 'points', 'odometry') == {'/a': '/points'}


def write_ros1_bag(path, bag):
    """Convert a ROS 2 bag to ROS 1."""
    store = get_typestore(Stores.ROS1_NOETIC)
    with Bag([bag]) as source, Ros1Writer(path) as writer:
        for topic in ('/points', '/odometry'):
            for i, message in enumerate(source.messages(topic)):
                content = message.content
                if i == 0:
                    made = writer.add_connection(topic, content.__msgtype__, typestore=store)
                values = {**vars(content), 'header': _ros1_header(store, content.header, i)}
                content = store.types[content.__msgtype__](
                    **{k: v for k, v in values.items() if k != '__msgtype__'}
                )
                data = store.serialize_ros1(content, content.__msgtype__)
                writer.write(made, message.log_ns, data)


def _ros1_header(store, header, sequence):
    time_type = store.types['builtin_interfaces/msg/Time']
    stamp = time_type(sec=header.stamp.sec, nanosec=header.stamp.nanosec)
    kind = store.types['std_msgs/msg/Header']
    return kind(seq=sequence, stamp=stamp, frame_id=header.frame_id)


def test_player_plays_ros1_bags_kitti_and_packed_scans(ros: Ros, bag, tmp_path):
    write_ros1_bag(tmp_path / 'drive.bag', bag)
    write_kitti(tmp_path / 'kitti', '05', make_scans(SCANS))
    scans = list(make_scans(SCANS))
    points_cm = [np.round(s.points * 100.0).astype(np.int16) for s in scans]
    np.savez(
        tmp_path / 'scans_some.npz',
        points_cm=np.concatenate(points_cm),
        offsets=np.cumsum([0, *map(len, points_cm)]),
        stamps_ns=np.array([s.stamp_ns for s in scans]),
        T_odom_sensor=np.stack([s.T_odom_sensor for s in scans]),
    )
    subscriber = Subscriber(ros)
    for path, atol, odometry in [
        (tmp_path / 'drive.bag', 0.0, 'T_odom_sensor'),
        (tmp_path / 'kitti/sequences/05', 0.0, 'T_world_sensor'),
        (tmp_path / 'scans_some.npz', 0.0051, 'T_odom_sensor'),
    ]:
        process = player(ros, path, '--rate', '0', '--wait', '1')
        for expected in scans:
            cloud, pose = subscriber.clouds.take(), subscriber.odometry.take()
            np.testing.assert_allclose(read_cloud(cloud).points, expected.points, atol=atol)
            assert stamps([cloud, pose]) == [expected.stamp_ns] * 2
            got = pose_from_message(pose.pose.pose)
            np.testing.assert_allclose(got, getattr(expected, odometry), atol=1e-6)
        assert process.wait() == 0, process.output


def test_playback_lists_topics_whose_messages_are_not_installed(tmp_path):
    store = get_typestore(Stores.ROS2_JAZZY)
    if importlib.util.find_spec('vision_msgs'):
        pytest.skip('the package that must be absent is installed')
    with Ros2Writer(tmp_path / 'bag', version=8) as writer:
        kind = 'std_msgs/msg/String'
        made = writer.add_connection('/said', kind, typestore=store)
        writer.write(made, 5, store.serialize_cdr(store.types[kind]('hello'), kind))
        store.register(get_types_from_msg('string data', 'vision_msgs/msg/Other'))
        writer.add_connection('/seen', 'vision_msgs/msg/Other', typestore=store)
    source = BagPlayback([tmp_path / 'bag'])
    assert list(source.topics) == ['/said']
    assert 'install the package vision_msgs' in source.missing['/seen']


@pytest.fixture
def signals_restored():
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def test_player_reports_bad_input(ros: Ros, tmp_path, bag, capsys, signals_restored):
    assert main([str(tmp_path / 'nothing')]) == 1
    assert 'no such file or folder; expected one of: a KITTI folder' in capsys.readouterr().err
    (tmp_path / 'kitti/sequences/05').mkdir(parents=True)
    with pytest.raises(DatasetError, match='sequences/05'):
        open_playback([tmp_path / 'kitti'])
    assert main([str(bag), '--start', '99']) == 1
    assert 'within the 0.9 s of the recording' in capsys.readouterr().err
