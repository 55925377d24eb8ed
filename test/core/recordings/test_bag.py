from contextlib import closing
import sqlite3

import numpy as np
import pytest
from recordings import START_NS, make_scans
from rosbags.rosbag1 import Writer as Ros1Writer
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore
import yaml

from lpr_ros.core.bag_scans import (
    CLOUD_TYPES,
    POSE_TYPES,
    index_recording,
    read_scans,
    read_trajectory,
)
from lpr_ros.core.bags import Bag, choose_topic
from lpr_ros.core.errors import DatasetError
from lpr_ros.core.geometry import pose_from_euler, quaternion_from_pose
from lpr_ros.core.pointcloud2 import read_cloud
from lpr_training.datasets.bag_writer import BagTopics, Messages, write_bag

MESSAGES = Messages()


def write_messages(path, rows):
    """A bag of (topic, time, message) rows; a message may also be (type, bytes)."""
    with Writer(path, version=8, storage_plugin=StoragePlugin.MCAP) as writer:
        connections = {}
        for topic, stamp, message in rows:
            kind, data = message if isinstance(message, tuple) else (message.__msgtype__, None)
            if topic not in connections:
                connections[topic] = writer.add_connection(topic, kind, typestore=MESSAGES.store)
            data = data if data is not None else MESSAGES.serialize(message)
            writer.write(connections[topic], stamp, data)
    return path


@pytest.mark.parametrize(
    ('storage', 'compression'),
    [('mcap', 'none'), ('mcap', 'message'), ('mcap', 'storage'), ('mcap', 'file'),
     ('sqlite3', 'none'), ('sqlite3', 'message'), ('sqlite3', 'file')],
)  # fmt: skip
def test_written_bag_reads_back(tmp_path, storage, compression):
    write_bag(tmp_path / 'drive', make_scans(), storage=storage, compression=compression)
    assert [p.name for p in tmp_path.iterdir()] == ['drive']
    with Bag([tmp_path / 'drive']) as bag:
        odometry = read_trajectory(bag, '/odometry')
        truth = read_trajectory(bag, '/ground_truth')
        scans = list(read_scans(bag, '/points', odometry))
        clouds = [read_cloud(m.content) for m in bag.messages('/points')]
    for expected, scan, cloud in zip(make_scans(), scans, clouds, strict=True):
        np.testing.assert_array_equal(scan.points, expected.points)
        np.testing.assert_array_equal(cloud.intensity, expected.intensity)
        np.testing.assert_array_equal(cloud.ring, expected.ring)
        np.testing.assert_array_equal(cloud.time_s, expected.time_s)
        assert scan.stamp_ns == expected.stamp_ns
        np.testing.assert_allclose(scan.T_odom_sensor, expected.T_odom_sensor, atol=1e-12)
        np.testing.assert_allclose(
            truth.at(scan.stamp_ns), expected.T_world_sensor, atol=1e-12
        )


def test_bare_storage_file_is_read_too(tmp_path):
    write_bag(tmp_path / 'drive', make_scans(2))
    with Bag([tmp_path / 'drive' / 'drive.mcap']) as bag:
        assert len(list(read_scans(bag, '/points'))) == 2


def test_the_same_scans_give_the_same_bytes(tmp_path):
    write_bag(tmp_path / 'a' / 'drive', make_scans(3))
    write_bag(tmp_path / 'b' / 'drive', make_scans(3))
    for name in ('drive.mcap', 'metadata.yaml'):
        first = (tmp_path / 'a' / 'drive' / name).read_bytes()
        assert first == (tmp_path / 'b' / 'drive' / name).read_bytes()


def test_clock_runs_where_asked(tmp_path):
    write_bag(tmp_path / 'drive', make_scans(3), clock=True, topics=BagTopics(points='/velodyne'))
    with Bag([tmp_path / 'drive']) as bag:
        assert {t.name: t.count for t in bag.topics} == {
            '/clock': 21, '/ground_truth': 3, '/odometry': 3, '/velodyne': 3
        }  # fmt: skip
        ticks = [m.content.clock.sec * 10**9 + m.content.clock.nanosec
                 for m in bag.messages('/clock')]  # fmt: skip
    assert ticks == list(range(START_NS, START_NS + 200_000_001, 10_000_000))


def test_an_interrupted_writer_leaves_nothing(tmp_path):
    def broken():
        yield from make_scans(2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_bag(tmp_path / 'drive', broken())
    assert list(tmp_path.iterdir()) == []


def test_an_existing_bag_is_not_overwritten(tmp_path):
    write_bag(tmp_path / 'drive', make_scans(1))
    with pytest.raises(DatasetError, match='drive exists already'):
        write_bag(tmp_path / 'drive', make_scans(1))


def test_scans_are_taken_one_at_a_time(tmp_path):
    alive = []

    def lazy():
        for scan in make_scans(20):
            alive.append(scan.stamp_ns)
            yield scan
            if len(alive) == 10:
                partial = tmp_path / '.drive.partial' / 'drive' / 'drive.mcap'
                sizes.append(partial.stat().st_size)

    sizes = []
    write_bag(tmp_path / 'drive', lazy())
    assert len(alive) == 20
    assert sizes


def test_ros1_bag(tmp_path):
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
    with Bag([path]) as bag:
        assert choose_topic(bag, CLOUD_TYPES, 'PointCloud2') == '/velodyne_points'
        scans = list(read_scans(bag, '/velodyne_points'))
        entries = index_recording(bag, '/velodyne_points', []).entries
        third = bag.read('/velodyne_points', entries[2])
    assert [s.stamp_ns for s in scans] == [1_700_000_000 * 10**9 + i for i in range(3)]
    assert [e.stamp_ns for e in entries] == [s.stamp_ns for s in scans]
    np.testing.assert_array_equal(scans[0].points, scan.points)
    np.testing.assert_array_equal(read_cloud(third.content).points, scan.points)


def test_a_bag_of_humble_has_no_message_definitions(tmp_path):
    """sqlite3 as rosbag2 wrote it before Iron: two tables and a metadata of version 5."""
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
    with Bag([folder]) as bag:
        scans = list(read_scans(bag, '/points'))
    for scan, expected in zip(scans, make_scans(3), strict=True):
        np.testing.assert_array_equal(scan.points, expected.points)


def test_messages_recorded_at_one_time_are_told_apart(tmp_path):
    rows = [('/points', 50, MESSAGES.cloud(scan)) for scan in make_scans(3)]
    with Bag([write_messages(tmp_path / 'drive', rows)]) as bag:
        entries = index_recording(bag, '/points', []).entries
        got = [read_cloud(bag.read('/points', e).content).points for e in entries]
    for expected, points in zip(make_scans(3), got, strict=True):
        np.testing.assert_array_equal(points, expected.points)


def test_odometry_is_interpolated_at_the_stamp_of_the_scan(tmp_path):
    start, end = np.eye(4), pose_from_euler([2.0, 0.0, 0.0], [0.0, 0.0, 1.0])
    times = START_NS - 40_000_000, START_NS + 60_000_000
    rows = [
        ('/odom', stamp, MESSAGES.odometry(stamp, 'odom', T))
        for stamp, T in zip(times, (start, end), strict=True)
    ]
    rows += [('/points', s.stamp_ns, MESSAGES.cloud(s)) for s in make_scans(2)]
    T_base_sensor = pose_from_euler([0.0, 0.0, 1.5], [0.0, 0.0, 0.0])
    with Bag([write_messages(tmp_path / 'drive', rows)]) as bag:
        trajectory = read_trajectory(bag, '/odom')
        first, second = read_scans(bag, '/points', trajectory, T_base_sensor=T_base_sensor)
    expected = pose_from_euler([0.8, 0.0, 1.5], [0.0, 0.0, 0.4])
    np.testing.assert_allclose(first.T_odom_sensor, expected, atol=1e-12)
    assert second.T_odom_sensor is None  # 100 ms on, beyond the last odometry


def static_transforms(*links):
    """A TFMessage from (parent, child, T_parent_child) rows."""
    kinds, g = MESSAGES.store.types, 'geometry_msgs/msg/'
    return kinds['tf2_msgs/msg/TFMessage'](
        [
            kinds[g + 'TransformStamped'](
                MESSAGES._header(0, parent),
                child,
                kinds[g + 'Transform'](
                    kinds[g + 'Vector3'](*T[:3, 3]),
                    kinds[g + 'Quaternion'](*quaternion_from_pose(T)),
                ),
            )
            for parent, child, T in links
        ]
    )


def test_extrinsic_is_chained_through_static_transforms(tmp_path):
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


def test_topics_are_chosen_when_there_is_one_and_listed_when_not(tmp_path):
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


def test_a_bag_without_clouds_says_what_it_has(tmp_path):
    rows = [('/odom', 3, MESSAGES.odometry(0, 'odom', np.eye(4)))]
    path = write_messages(tmp_path / 'drive', rows)
    with Bag([path]) as bag, pytest.raises(
        DatasetError, match=r'no PointCloud2 topic; the recording has /odom \(nav_msgs'
    ) as error:
        choose_topic(bag, CLOUD_TYPES, 'PointCloud2')
    assert str(path) in str(error.value)


def bad_rows():
    """Five clouds; the second lacks z, the fourth is cut short."""
    good = [MESSAGES.cloud(scan) for scan in make_scans(5)]
    good[1].fields = [f for f in good[1].fields if f.name != 'z']
    raw = bytes(MESSAGES.serialize(good[3]))[:200]
    rows = [('/points', s.stamp_ns, m) for s, m in zip(make_scans(5), good, strict=True)]
    rows[3] = ('/points', rows[3][1], ('sensor_msgs/msg/PointCloud2', raw))
    return rows


def test_bad_messages_are_named_by_number(tmp_path):
    path = write_messages(tmp_path / 'drive', bad_rows())
    with Bag([path]) as bag, pytest.raises(
        DatasetError, match=r"drive: message 1 of /points: expected fields x, y and z.*no 'z'"
    ):
        list(read_scans(bag, '/points'))


def test_bad_messages_are_collected_where_asked(tmp_path):
    bad = []
    with Bag([write_messages(tmp_path / 'drive', bad_rows())]) as bag:
        scans = list(read_scans(bag, '/points', on_bad=bad.append))
    assert len(scans) == 3
    assert ['message 1 of' in str(bad[0]), 'message 3 of' in str(bad[1])] == [True, True]


def test_bad_odometry_is_named(tmp_path):
    spoiled = MESSAGES.odometry(0, 'odom', np.eye(4))
    spoiled.pose.pose.position.y = float('nan')
    rows = [('/odom', 1, MESSAGES.odometry(0, 'odom', np.eye(4))), ('/odom', 2, spoiled)]
    with Bag([write_messages(tmp_path / 'drive', rows)]) as bag:
        with pytest.raises(DatasetError, match='message 1 of /odom: expected a finite pose'):
            read_trajectory(bag, '/odom')
        assert len(read_trajectory(bag, '/odom', [].append)) == 1


@pytest.mark.parametrize('what', ['cut', 'absent', 'text'])
def test_damaged_recordings_are_refused_in_words(tmp_path, what):
    path = tmp_path / 'drive.mcap'
    if what == 'cut':
        write_bag(tmp_path / 'whole', make_scans(3))
        path.write_bytes((tmp_path / 'whole' / 'whole.mcap').read_bytes()[:-3000])
    elif what == 'text':
        path.write_text('not a bag')
    with pytest.raises(DatasetError, match=r'drive.mcap: expected a rosbag2 folder, an .mcap'):
        Bag([path])


def test_a_bag_damaged_in_the_middle_says_where(tmp_path):
    """Chunks are about a megabyte: the damage hits one, those before are read."""
    write_bag(tmp_path / 'drive', make_scans(6, points=40_000), compression='storage')
    path = tmp_path / 'drive' / 'drive.mcap'
    before, magic, after = path.read_bytes().rpartition(b'\x28\xb5\x2f\xfd')  # of zstd
    path.write_bytes(before + bytes(len(magic)) + after)
    bad = []
    with Bag([tmp_path / 'drive']) as bag, pytest.raises(
        DatasetError, match=r'drive: cannot be read beyond message \d of /points'
    ):
        list(read_scans(bag, '/points'))
    with Bag([tmp_path / 'drive']) as bag:
        scans = list(read_scans(bag, '/points', on_bad=bad.append))
    assert 0 < len(scans) < 6
    assert bad


def test_pose_stamped_is_a_source_of_poses(tmp_path):
    kinds = MESSAGES.store.types
    pose = MESSAGES.odometry(7, 'map', pose_from_euler([1.0, 2.0, 3.0], [0.0, 0.0, 1.0])).pose.pose
    message = kinds['geometry_msgs/msg/PoseStamped'](MESSAGES._header(7, 'map'), pose)
    with Bag([write_messages(tmp_path / 'drive', [('/pose', 1, message)])]) as bag:
        assert choose_topic(bag, POSE_TYPES, 'odometry') == '/pose'
        trajectory = read_trajectory(bag, '/pose')
    np.testing.assert_allclose(trajectory.T[0, :3, 3], [1.0, 2.0, 3.0])
    assert trajectory.stamps_ns.tolist() == [7]
