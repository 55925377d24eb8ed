from contextlib import closing
import sqlite3

import numpy as np
import pytest
from rosbags.rosbag1 import Writer as Ros1Writer
from rosbags.typesys import Stores, get_typestore
from toy_recordings import (
    MESSAGES,
    START_NS,
    bad_rows,
    make_scans,
    static_transforms,
    write_messages,
)
import yaml

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.geometry.se3 import pose_from_euler
from lpr_ros.core.io.pointcloud2 import read_cloud
from lpr_ros.core.recordings.bag_index import index_recording
from lpr_ros.core.recordings.bag_reader import Bag, choose_topic
from lpr_ros.core.recordings.base import RecordingOptions
from lpr_ros.core.recordings.message_types import CLOUD_TYPES, POSE_TYPES
from lpr_ros.core.recordings.open import open_recording
from lpr_training.datasets.bag_writer import BagTopics, write_bag


@pytest.mark.parametrize(
    ('storage', 'compression'),
    [('mcap', 'none'), ('mcap', 'message'), ('mcap', 'storage'), ('mcap', 'file'),
     ('sqlite3', 'none'), ('sqlite3', 'message'), ('sqlite3', 'file')],
)  # fmt: skip
def test_bag_written_with_any_storage_and_compression_reads_back(tmp_path, storage, compression):
    write_bag(tmp_path / 'drive', make_scans(), storage=storage, compression=compression)
    assert [p.name for p in tmp_path.iterdir()] == ['drive']
    recording = open_recording(tmp_path / 'drive')
    clouds = [read_cloud(m.content) for m in recording.bag.messages('/points')]
    for expected, read, cloud in zip(make_scans(), recording, clouds, strict=True):
        scan = read.scan
        np.testing.assert_array_equal(scan.points, expected.points)
        np.testing.assert_array_equal(cloud.intensity, expected.intensity)
        np.testing.assert_array_equal(cloud.ring, expected.ring)
        np.testing.assert_array_equal(cloud.time_s, expected.time_s)
        assert scan.stamp_ns == expected.stamp_ns
        np.testing.assert_allclose(scan.T_odom_sensor, expected.T_odom_sensor, atol=1e-12)
        np.testing.assert_allclose(read.T_world_sensor, expected.T_world_sensor, atol=1e-12)


def test_bag_with_an_unknown_compression_is_refused(tmp_path):
    write_bag(tmp_path / 'drive', make_scans(3), compression='storage')
    path = tmp_path / 'drive' / 'drive.mcap'
    data = path.read_bytes()
    assert b'zstd' in data
    path.write_bytes(data.replace(b'\x04\x00\x00\x00zstd', b'\x04\x00\x00\x00brot'))
    with pytest.raises(DatasetError, match=r'drive'):
        list(open_recording(tmp_path / 'drive'))


def test_bag_reads_a_storage_file_without_metadata(tmp_path):
    write_bag(tmp_path / 'drive', make_scans(2))
    assert len(list(open_recording(tmp_path / 'drive' / 'drive.mcap'))) == 2


def test_bag_writer_is_deterministic(tmp_path):
    write_bag(tmp_path / 'a' / 'drive', make_scans(3))
    write_bag(tmp_path / 'b' / 'drive', make_scans(3))
    for name in ('drive.mcap', 'metadata.yaml'):
        first = (tmp_path / 'a' / 'drive' / name).read_bytes()
        assert first == (tmp_path / 'b' / 'drive' / name).read_bytes()


def test_bag_writer_adds_a_clock_on_request(tmp_path):
    write_bag(tmp_path / 'drive', make_scans(3), clock=True, topics=BagTopics(points='/velodyne'))
    with Bag([tmp_path / 'drive']) as bag:
        assert {t.name: t.count for t in bag.topics} == {
            '/clock': 21, '/ground_truth': 3, '/odometry': 3, '/velodyne': 3
        }  # fmt: skip
        ticks = [m.content.clock.sec * 10**9 + m.content.clock.nanosec
                 for m in bag.messages('/clock')]  # fmt: skip
    assert ticks == list(range(START_NS, START_NS + 200_000_001, 10_000_000))


def test_bag_writer_leaves_nothing_when_interrupted(tmp_path):
    def broken():
        yield from make_scans(2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_bag(tmp_path / 'drive', broken())
    assert list(tmp_path.iterdir()) == []


def test_bag_writer_does_not_overwrite_a_bag(tmp_path):
    write_bag(tmp_path / 'drive', make_scans(1))
    with pytest.raises(DatasetError, match='drive already exists'):
        write_bag(tmp_path / 'drive', make_scans(1))


def test_bag_writer_consumes_scans_one_at_a_time(tmp_path):
    consumed = []

    def lazy():
        for scan in make_scans(20):
            consumed.append(scan.stamp_ns)
            yield scan
            if len(consumed) == 10:
                partial = tmp_path / '.drive.partial' / 'drive' / 'drive.mcap'
                sizes.append(partial.stat().st_size)

    sizes = []
    write_bag(tmp_path / 'drive', lazy())
    assert len(consumed) == 20
    assert sizes


def test_bag_reads_ros1(tmp_path):
    store = get_typestore(Stores.ROS1_NOETIC)
    kinds = store.types
    scan = next(make_scans(1))
    path = tmp_path / 'drive.bag'
    with Ros1Writer(path) as writer:
        connection = writer.add_connection(
            '/velodyne_points', 'sensor_msgs/msg/PointCloud2', typestore=store
        )
        ros2 = MESSAGES.cloud(scan)
        for i in range(3):
            stamp = kinds['builtin_interfaces/msg/Time'](1_700_000_000, i)
            message = kinds['sensor_msgs/msg/PointCloud2'](
                header=kinds['std_msgs/msg/Header'](seq=i, stamp=stamp, frame_id='velodyne'),
                height=ros2.height, width=ros2.width,
                fields=[kinds['sensor_msgs/msg/PointField'](f.name, f.offset, f.datatype, 1)
                        for f in ros2.fields],
                is_bigendian=False, point_step=ros2.point_step, row_step=ros2.row_step,
                data=ros2.data, is_dense=True,
            )  # fmt: skip
            writer.write(connection, 5 + i, store.serialize_ros1(message, message.__msgtype__))
    recording = open_recording(path)
    assert recording.cloud_topic == '/velodyne_points'
    assert recording.stamps_ns.tolist() == [1_700_000_000 * 10**9 + i for i in range(3)]
    np.testing.assert_array_equal(next(iter(recording)).scan.points, scan.points)
    np.testing.assert_array_equal(recording.points(2), scan.points)


def test_bag_reads_humble_storage_without_message_definitions(tmp_path):
    """The sqlite3 schema of rosbag2 before Iron: two tables, metadata version 5."""
    folder = tmp_path / 'drive'
    folder.mkdir()
    kind = 'sensor_msgs/msg/PointCloud2'
    with closing(sqlite3.connect(folder / 'drive_0.db3')) as store, store:
        store.execute(
            'CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT NOT NULL, type TEXT NOT NULL,'
            'serialization_format TEXT NOT NULL, offered_qos_profiles TEXT NOT NULL)'
        )
        store.execute(
            'CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER NOT NULL,'
            'timestamp INTEGER NOT NULL, data BLOB NOT NULL)'
        )
        store.execute('INSERT INTO topics VALUES(1, "/points", ?, "cdr", "")', (kind,))
        for scan in make_scans(3):
            data = bytes(MESSAGES.serialize(MESSAGES.cloud(scan)))
            store.execute('INSERT INTO messages VALUES(NULL, 1, ?, ?)', (scan.stamp_ns, data))
    topic = {'name': '/points', 'type': kind, 'serialization_format': 'cdr',
             'offered_qos_profiles': ''}  # fmt: skip
    information = {
        'version': 5, 'storage_identifier': 'sqlite3', 'message_count': 3,
        'relative_file_paths': ['drive_0.db3'], 'compression_format': '', 'compression_mode': '',
        'duration': {'nanoseconds': 200_000_000},
        'starting_time': {'nanoseconds_since_epoch': START_NS},
        'topics_with_message_count': [{'topic_metadata': topic, 'message_count': 3}],
    }  # fmt: skip
    (folder / 'metadata.yaml').write_text(yaml.dump({'rosbag2_bagfile_information': information}))
    for read, expected in zip(open_recording(folder), make_scans(3), strict=True):
        np.testing.assert_array_equal(read.scan.points, expected.points)


def test_bag_distinguishes_messages_with_the_same_log_time(tmp_path):
    rows = [('/points', 50, MESSAGES.cloud(scan)) for scan in make_scans(3)]
    recording = open_recording(write_messages(tmp_path / 'drive', rows))
    for index, expected in enumerate(make_scans(3)):
        np.testing.assert_array_equal(recording.points(index), expected.points)


def test_recording_interpolates_odometry_at_scan_stamps(tmp_path):
    start, end = np.eye(4), pose_from_euler([2.0, 0.0, 0.0], [0.0, 0.0, 1.0])
    times = START_NS - 40_000_000, START_NS + 60_000_000
    rows = [
        ('/odom', stamp, MESSAGES.odometry(stamp, 'odom', T))
        for stamp, T in zip(times, (start, end), strict=True)
    ]
    rows += [('/points', s.stamp_ns, MESSAGES.cloud(s)) for s in make_scans(2)]
    T_base_sensor = pose_from_euler([0.0, 0.0, 1.5], [0.0, 0.0, 0.0])
    path = write_messages(tmp_path / 'drive', rows)
    first, second = open_recording(path, RecordingOptions(T_base_sensor=T_base_sensor))
    expected = pose_from_euler([0.8, 0.0, 1.5], [0.0, 0.0, 0.4])
    np.testing.assert_allclose(first.scan.T_odom_sensor, expected, atol=1e-12)
    assert second.scan.T_odom_sensor is None  # 100 ms later, after the last odometry


def test_index_chains_the_extrinsic_through_static_transforms(tmp_path):
    T_base_mast = pose_from_euler([1.0, 0.0, 2.0], [0.0, 0.0, 0.5])
    T_lidar_mast = pose_from_euler([0.0, 0.1, 0.0], [0.0, 0.2, 0.0])
    static = static_transforms(
        ('/base_link', 'mast', T_base_mast), ('lidar', '/mast', T_lidar_mast)
    )
    odometry = MESSAGES.odometry(START_NS, 'odom', np.eye(4))
    odometry.child_frame_id = 'base_link'
    rows = [('/tf_static', 1, static), ('/odom', 2, odometry),
            ('/points', 3, MESSAGES.cloud(next(make_scans(1))))]  # fmt: skip
    with Bag([write_messages(tmp_path / 'drive', rows)]) as bag:
        T_base_lidar = index_recording(bag, '/points', ['/odom']).extrinsic('/odom')
    np.testing.assert_allclose(T_base_lidar, T_base_mast @ np.linalg.inv(T_lidar_mast), atol=1e-9)
    with Bag([write_messages(tmp_path / 'unlinked', rows[1:])]) as bag:
        assert index_recording(bag, '/points', ['/odom']).extrinsic('/odom') is None


def test_choose_topic_returns_the_only_one_or_lists_them(tmp_path):
    cloud, pose = MESSAGES.cloud(next(make_scans(1))), MESSAGES.odometry(0, 'odom', np.eye(4))
    rows = [('/front', 1, cloud), ('/rear', 2, cloud), ('/odom', 3, pose),
            ('/ground_truth/odom', 4, pose)]  # fmt: skip
    with Bag([write_messages(tmp_path / 'drive', rows)]) as bag:
        assert choose_topic(bag, POSE_TYPES, 'odometry') == '/odom'
        assert choose_topic(bag, POSE_TYPES, 'odometry', '/ground_truth/odom')
        assert choose_topic(bag, CLOUD_TYPES, 'PointCloud2', '/rear') == '/rear'
        with pytest.raises(DatasetError, match=r'choose one .*/front \(sensor_msgs.*/rear'):
            choose_topic(bag, CLOUD_TYPES, 'PointCloud2')
        with pytest.raises(DatasetError, match='/odom to be one of the PointCloud2 topics'):
            choose_topic(bag, CLOUD_TYPES, 'PointCloud2', '/odom')


def test_choose_topic_lists_all_topics_if_none_fits(tmp_path):
    rows = [('/odom', 3, MESSAGES.odometry(0, 'odom', np.eye(4)))]
    path = write_messages(tmp_path / 'drive', rows)
    with (
        Bag([path]) as bag,
        pytest.raises(
            DatasetError, match=r'no PointCloud2 topic; the bag has /odom \(nav_msgs'
        ) as error,
    ):
        choose_topic(bag, CLOUD_TYPES, 'PointCloud2')
    assert str(path) in str(error.value)


def test_recording_names_a_bad_message_by_index(tmp_path):
    recording = open_recording(write_messages(tmp_path / 'drive', bad_rows()))
    with pytest.raises(
        DatasetError, match=r"drive: message 1 of /points: expected fields x, y and z.*no 'z'"
    ):
        list(recording)
    bad = []
    assert [read.index for read in recording.scans(bad.append)] == [0, 2, 4]
    assert ['message 1 of' in str(bad[0]), 'message 3 of' in str(bad[1])] == [True, True]


def test_recording_names_a_bad_odometry_message(tmp_path):
    spoiled = MESSAGES.odometry(0, 'odom', np.eye(4))
    spoiled.pose.pose.position.y = float('nan')
    rows = [('/odom', 1, MESSAGES.odometry(0, 'odom', np.eye(4))), ('/odom', 2, spoiled)]
    rows.append(('/points', 3, MESSAGES.cloud(next(make_scans(1)))))
    path = write_messages(tmp_path / 'drive', rows)
    with pytest.raises(DatasetError, match='message 1 of /odom: expected a finite pose'):
        open_recording(path)
    bad = []
    assert len(open_recording(path, RecordingOptions(on_bad=bad.append))) == 1
    assert len(bad) == 1


@pytest.mark.parametrize('what', ['cut', 'absent', 'text'])
def test_bag_refuses_damaged_files(tmp_path, what):
    path = tmp_path / 'drive.mcap'
    if what == 'cut':
        write_bag(tmp_path / 'whole', make_scans(3))
        path.write_bytes((tmp_path / 'whole' / 'whole.mcap').read_bytes()[:-3000])
    elif what == 'text':
        path.write_text('not a bag')
    with pytest.raises(DatasetError, match=r'drive.mcap: expected a rosbag2 folder, an .mcap'):
        Bag([path])


def test_bag_reports_where_it_is_damaged(tmp_path):
    """Chunks have about a megabyte: the chunks before the damaged one are read."""
    write_bag(tmp_path / 'drive', make_scans(6, points=40_000), compression='storage')
    path = tmp_path / 'drive' / 'drive.mcap'
    before, magic, after = path.read_bytes().rpartition(b'\x28\xb5\x2f\xfd')  # of zstd
    path.write_bytes(before + bytes(len(magic)) + after)
    with (
        Bag([tmp_path / 'drive']) as bag,
        pytest.raises(DatasetError, match=r'drive: cannot be read past message \d of /points'),
    ):
        list(bag.messages('/points'))
    bad = []
    recording = open_recording(tmp_path / 'drive', RecordingOptions(on_bad=bad.append))
    assert 0 < len(list(recording.scans(bad.append))) < 6
    assert bad


def test_index_reads_pose_stamped(tmp_path):
    kinds = MESSAGES.store.types
    pose = MESSAGES.odometry(7, 'map', pose_from_euler([1.0, 2.0, 3.0], [0.0, 0.0, 1.0])).pose.pose
    message = kinds['geometry_msgs/msg/PoseStamped'](MESSAGES._header(7, 'map'), pose)
    rows = [('/pose', 1, message), ('/points', 2, MESSAGES.cloud(next(make_scans(1))))]
    with Bag([write_messages(tmp_path / 'drive', rows)]) as bag:
        assert choose_topic(bag, POSE_TYPES, 'odometry') == '/pose'
        trajectory = index_recording(bag, '/points', ['/pose']).trajectories['/pose']
    np.testing.assert_allclose(trajectory.T[0, :3, 3], [1.0, 2.0, 3.0])
    assert trajectory.stamps_ns.tolist() == [7]
