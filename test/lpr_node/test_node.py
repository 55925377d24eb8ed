"""lpr_node as a subprocess: topics, services, parameters, lifecycle and signals."""

import math
import re
import signal

from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from nav_msgs.msg import Odometry
from node_rig import (
    START_S,
    Rig,
    cloud_of,
    ends_of,
    odometry_of,
    scan_balance,
    sessions_of,
    start_node,
)
import numpy as np
import pytest
from ros_processes import ros_session, wait_until
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Float64MultiArray
from toy_drive import START_NS, STEP_NS, STEPS_PER_LAP, step, write_weights

from lpr_ros.conversions.poses import pose_from_message

POINTS = 'lidar/points'  # remapped, as on most robots


def stamp_of(message):
    return message.header.stamp.sec * 10**9 + message.header.stamp.nanosec


LAP = range(STEPS_PER_LAP)
AGAIN = range(STEPS_PER_LAP, STEPS_PER_LAP + 8)


@pytest.fixture(scope='module')
def running(tmp_path_factory):
    """One node for many tests: starting one takes seconds."""
    folder = tmp_path_factory.mktemp('node')
    with pytest.MonkeyPatch.context() as patch, ros_session(folder, patch) as session:
        rig = Rig(
            session,
            POINTS,
            autostart=True,
            backends='[lio_sam]',
            map_path=folder / 'places.map',
            odometry_wait_s=0.3,
        )
        rig.wait_active()
        yield rig


@pytest.fixture
def rig(running):
    running.reset()
    return running


@pytest.fixture
def long_odometry_wait(running):
    """Let scans wait for odometry for as long as a test may take."""
    assert running.set('odometry_wait_s', 20.0) == (True, '')
    yield
    assert running.set('odometry_wait_s', 0.3) == (True, '')


def test_second_lap_closes_loops_with_the_true_pose(rig):
    lio_sam = rig.ros.listen(rig.node, Float64MultiArray, 'lio_loop/loop_closure_detection')
    rig.drive(LAP)
    assert not rig.loops.drain()
    table = None
    for index in AGAIN:
        table = rig.take(step(index))
    assert table.layout.dim[1].label == 'query_id,match_id,distance,probability'
    rows = np.reshape(table.data, (table.layout.dim[0].size, 4))
    assert rows[0][:2].tolist() == [AGAIN[-1], AGAIN[-1] - STEPS_PER_LAP]
    assert rows[0][2] == pytest.approx(0.0, abs=1e-5)
    for _ in range(2):
        loop = rig.loops.take()
        query, match = ends_of(loop)
        assert query - match == STEPS_PER_LAP
        assert np.allclose(pose_from_message(loop.pose.pose), np.eye(4), atol=0.05)
        covariance = np.reshape(loop.pose.covariance, (6, 6))
        assert (np.linalg.eigvalsh(covariance) > 0.0).all()
        assert stamp_of(loop) == step(query).stamp_ns
    line = r'first loop closure: \d+ to \d+'
    wait_until(lambda: re.search(line, rig.process.output), line)
    times = lio_sam.take().data
    assert times[0] - times[1] == pytest.approx(STEPS_PER_LAP * STEP_NS / 1e9, abs=1e-5)


def test_keyframes_are_at_the_poses_of_the_odometry(rig):
    rig.drive(range(4))
    path = rig.keyframes.take_until(lambda message: len(message.poses) == 4)
    assert path.header.frame_id == 'odom'
    for index, pose in enumerate(path.poses):
        assert np.allclose(pose_from_message(pose.pose), step(index).T_odom_sensor, atol=1e-9)
    markers = rig.markers.take_until(lambda message: len(message.markers[0].points) == 4)
    assert [m.ns for m in markers.markers] == ['keyframes', 'accepted', 'rejected']


def test_poses_are_interpolated_between_odometry_messages(rig):
    before, here, after = step(0), step(1), step(2)
    rig.odometry.publish(odometry_of(before))
    rig.odometry.publish(odometry_of(after))
    rig.points.publish(cloud_of(here))
    rig.candidates.take()
    path = rig.keyframes.take_until(lambda message: len(message.poses) == 1)
    middle = (before.T_odom_sensor[:3, 3] + after.T_odom_sensor[:3, 3]) / 2.0
    assert np.allclose(pose_from_message(path.poses[0].pose)[:3, 3], middle, atol=1e-9)


def test_scans_wait_for_late_odometry(rig, long_odometry_wait):
    before = int(rig.status()['scans'])
    rig.points.publish(cloud_of(step(0)))
    rig.status_with('scans', before + 1)
    assert not rig.candidates.drain()
    rig.odometry.publish(odometry_of(step(0)))
    rig.candidates.take()


def test_scans_without_odometry_are_dropped_and_the_next_is_processed(rig):
    before = int(rig.status().get('dropped.no_odometry', 0))
    rig.points.publish(cloud_of(step(0)))
    status = rig.status_with('dropped.no_odometry', before + 1)
    assert 'odometry is missing' in status['last_error']
    rig.take(step(1))


def test_a_jump_back_in_time_starts_a_new_session(rig):
    rig.drive(range(10, 14))
    rig.drive(range(4))
    path = rig.keyframes.take_until(lambda message: len(message.poses) == 8)
    assert sessions_of(path) == ['robot'] * 4 + ['robot (2)'] * 4


def test_scans_far_apart_do_not_split_a_session_that_odometry_continues(rig):
    """As under overload: of half a lap, 24 m, only the first and the last scan are handled."""
    far = STEPS_PER_LAP // 2
    rig.take(step(0))
    for index in range(1, far):
        rig.odometry.publish(odometry_of(step(index)))
    rig.take(step(far))
    path = rig.keyframes.take_until(lambda message: len(message.poses) == 2)
    assert sessions_of(path) == ['robot'] * 2


def test_an_odometry_jump_between_scans_starts_a_new_session_with_its_reason(rig):
    """There and back: a scan near the jump would not notice."""

    def odometry(index, x_m):
        message = odometry_of(step(index))
        message.pose.pose.position.x += x_m
        rig.odometry.publish(message)

    rig.take(step(0))
    odometry(1, 0.0)
    odometry(2, 500.0)
    odometry(3, 0.0)
    rig.take(step(4))
    path = rig.keyframes.take_until(lambda message: len(message.poses) == 2)
    assert sessions_of(path) == ['robot', 'robot (2)']
    line = r"session 'robot \(2\)' starts: odometry jump of \d+\.\d m between " + (
        f'{step(2).stamp_ns} ns and {step(3).stamp_ns} ns'
    )
    wait_until(lambda: re.search(line, rig.process.output), line)
    assert "session 'robot' starts: reset" in rig.process.output


# The node, except that the fourth trusted loop closure outvotes the first.
RETRACTING_NODE = """
from dataclasses import replace
import sys
from lpr_ros.core.pipeline import Pipeline
from lpr_ros.lpr_node.node import main

verify, published = Pipeline.verify, []


def verify_and_retract(self, keyframe_query):
    result = verify(self, keyframe_query)
    before = len(published)
    published.extend(result.trusted)
    if before < 4 <= len(published):
        return replace(result, retracted=(published[0],))
    return result


if __name__ == '__main__':
    Pipeline.verify = verify_and_retract
    sys.exit(main())
"""


def test_a_retracted_loop_is_published_counted_and_logged(ros):
    rig = Rig(ros, program=('-c', RETRACTING_NODE), autostart=True, backends='[lio_sam]')
    rig.wait_active()
    rig.drive(LAP)
    loops = []
    for index in AGAIN:
        rig.take(step(index))
        loops += rig.loops.drain()
    retraction = rig.retracted.take()
    while retraction not in loops:
        loops.append(rig.loops.take())
    query, match = ends_of(retraction)
    status = rig.status_with('retracted', 1)
    assert status['retracted'] == '1'
    wait_until(
        lambda: f'outvoted by later ones: {query} to {match}' in rig.process.output, 'a log line'
    )
    assert status['retractions_dropped.lio_sam'] == '1'  # it was sent at once
    assert f'retracted loop {query} to {match}' in rig.process.output
    rig.take(step(AGAIN[-1] + 1))  # and the drive goes on
    assert 'Traceback' not in rig.process.output


def test_malformed_clouds_are_dropped(rig):
    def without_z(cloud):
        cloud.fields = [f for f in cloud.fields if f.name != 'z']

    def short(cloud):
        cloud.data = cloud.data[:100]

    def empty(cloud):
        cloud.width, cloud.row_step, cloud.data = 0, 0, b''

    def not_finite(cloud):
        cloud.data = np.full(len(cloud.data) // 4, np.nan, np.float32).tobytes()

    before = int(rig.status().get('dropped.cloud', 0))
    for index, spoil in enumerate((without_z, short, empty, not_finite)):
        bad = cloud_of(step(2 * index))
        spoil(bad)
        rig.odometry.publish(odometry_of(step(2 * index)))
        rig.points.publish(bad)
        rig.status_with('dropped.cloud', before + index + 1)
        rig.take(step(2 * index + 1))
    assert rig.process.popen.poll() is None


def test_the_newest_scan_is_processed_and_every_scan_is_counted(rig, long_odometry_wait):
    before = rig.status()
    for index in range(3):  # the first waits for odometry, the last replaces the second
        rig.points.publish(cloud_of(step(index)))
        rig.status_with('scans', int(before['scans']) + index + 1)
    rig.odometry.publish(odometry_of(step(0)))
    rig.odometry.publish(odometry_of(step(2)))
    path = rig.keyframes.take_until(lambda message: len(message.poses) == 2)
    assert [stamp_of(pose) for pose in path.poses] == [step(0).stamp_ns, step(2).stamp_ns]
    assert scan_balance(rig.status()) == 0


def test_scans_replaced_in_the_dds_queue_are_counted(rig):
    def known():
        status = rig.status()
        return int(status['scans']) + int(status.get('scans_lost', 0))

    rig.take(step(0))
    before = known()
    burst = [cloud_of(step(index)) for index in range(1, 61)]
    for cloud in burst:
        rig.points.publish(cloud)
    wait_until(lambda: known() >= before + len(burst), 'all scans')
    assert known() == before + len(burst)


def test_every_scan_of_two_lidars_on_one_topic_is_counted(rig):
    def known():
        status = rig.status()
        return int(status['scans']) + int(status.get('scans_lost', 0))

    def cloud_of_other(index):
        cloud = cloud_of(step(index))
        cloud.header.frame_id = 'other_lidar'
        return cloud

    other = rig.node.create_publisher(PointCloud2, POINTS, 5)
    rig.ros.matched(other)
    for publish in (lambda: rig.points.publish(cloud_of(step(0))),
                    lambda: other.publish(cloud_of_other(0))):  # fmt: skip
        before = known()
        publish()  # alone: the first scan of a publisher has no predecessor to count from
        wait_until(lambda before=before: known() > before, 'the first scan')
    before = known()
    for index in range(60):
        rig.points.publish(cloud_of(step(index)))
        other.publish(cloud_of_other(index))
    # The last scan of one may be replaced by that of the other, which its next scan reveals.
    for publish in (lambda: rig.points.publish(cloud_of(step(60))),
                    lambda: other.publish(cloud_of_other(60))):  # fmt: skip
        known()
        publish()
    wait_until(lambda: known() >= before + 122, 'all scans')
    assert known() == before + 122
    rig.node.destroy_publisher(other)
    wait_until(lambda: rig.node.count_publishers(POINTS) == 1, 'removal of the second publisher')


def test_parameters_change_with_the_next_scan(rig):
    rig.drive(LAP)
    rig.drive(AGAIN)
    assert rig.take(step(AGAIN[-1] + 1)).layout.dim[0].size > 3
    assert rig.set('database.top_k', 3) == (True, '')
    assert rig.take(step(AGAIN[-1] + 2)).layout.dim[0].size == 3
    assert rig.set('database.top_k', 10) == (True, '')


@pytest.mark.parametrize(
    ('name', 'value', 'reason'),
    [
        ('database.top_k', 0, 'top_k'),
        ('device', 'cuda', 'cannot be changed'),
        ('weights', 'other', 'cannot be changed'),
        ('sequence.min_support', 5, 'exceeds window'),
        ('map_path', '~nosuchuser/places.map', 'expected a path'),
        ('database.exclude_s', math.inf, 'expected a finite number'),
    ],
)
def test_invalid_parameters_are_refused(rig, name, value, reason):
    is_set, message = rig.set(name, value)
    assert not is_set
    assert reason in message
    assert rig.status()['state'] == 'active'


def test_a_new_session_relocalizes_in_a_loaded_map(rig):
    rig.drive(LAP)
    saved = rig.trigger('save_map')
    assert saved.success, saved.message
    rig.reset()
    loaded = rig.trigger('load_map')
    assert loaded.success, loaded.message
    assert f'{STEPS_PER_LAP} keyframes' in loaded.message
    later = START_NS + 10**15
    for index in range(5, 11):
        rig.take(step(index, start_ns=later))
    query, match = ends_of(rig.loops.take())
    assert query - STEPS_PER_LAP + 5 == match  # step 5 was the first of the second drive
    path = rig.keyframes.take_until(lambda message: len(message.poses) == STEPS_PER_LAP + 6)
    assert sessions_of(path)[-1] != sessions_of(path)[0]


def test_a_map_in_a_missing_folder_is_refused_by_name(rig):
    path = rig.weights / 'places.map'  # a file is no folder
    assert rig.set('map_path', str(path)) == (True, '')
    for name in ('save_map', 'load_map'):
        answer = rig.trigger(name)
        assert not answer.success
        assert str(path) in answer.message
    rig.set('map_path', str(rig.ros.folder / 'places.map'))


def test_maps_stay_in_their_folder_and_replace_only_maps(rig):
    folder = rig.ros.folder
    for path in ('/etc/places.map', str(folder / '..' / 'places.map')):
        is_set, message = rig.set('map_path', path)
        assert not is_set
        assert f'outside {folder}' in message
    text = rig.weights.read_bytes()
    assert rig.set('map_path', str(rig.weights)) == (True, '')
    assert 'is not a map' in rig.trigger('save_map').message
    assert rig.weights.read_bytes() == text
    absent = folder / 'absent' / 'places.map'
    assert rig.set('map_path', str(absent)) == (True, '')
    assert not rig.trigger('save_map').success
    assert not absent.parent.exists()
    assert rig.set('map_path', str(folder / 'places.map')) == (True, '')


def test_diagnostics_contain_rates_timings_and_sizes(rig):
    rig.drive(range(3))
    status = rig.status_with('described', 3)
    for key in (
        'device',
        'keyframes',
        'scans_per_s',
        'keyframe_mean_ms',
        'keyframe_p95_ms',
        'stage.describe_mean_ms',
        'database_mib',
        'last_error',
    ):
        assert key in status
    assert status['state'] == 'active'
    assert status['keyframes'] == '3'
    assert status['backends'] == 'lio_sam'


def test_lifecycle_with_simulated_time(ros):
    rig = Rig(ros, use_sim_time=True)
    assert rig.state == 'unconfigured'
    assert not rig.trigger('save_map').success
    assert rig.set('weights', '/nowhere/other.safetensors')[0]
    assert not rig.change_state('configure')
    assert rig.state == 'unconfigured'
    assert '/nowhere/other.safetensors' in rig.process.output
    assert rig.set('weights', str(rig.weights))[0]
    assert rig.change_state('configure')
    assert rig.points.get_subscription_count() == 0
    assert rig.change_state('activate')
    rig.wait_active()
    clock = rig.node.create_publisher(Clock, '/clock', 10)
    wait_until(clock.get_subscription_count, 'subscription to the clock')

    def has_the_time(message) -> bool:
        # Repeated with every message: best-effort messages may be lost during discovery.
        clock.publish(Clock(clock=Time(sec=1234)))
        return message.header.stamp.sec == 1234

    rig.diagnostics.take_until(has_the_time)
    rig.drive(range(2))
    assert rig.change_state('deactivate')
    before = rig.status()
    rig.send(step(2))
    assert rig.status()['odometry'] == before['odometry']
    assert rig.status()['scans'] == before['scans']
    assert rig.change_state('activate')
    rig.drive(range(2, 4))
    assert rig.status()['keyframes'] == '4'
    assert rig.change_state('deactivate')
    assert rig.change_state('cleanup')
    assert rig.state == 'unconfigured'
    assert rig.change_state('configure')
    rig.process.interrupt(signal.SIGTERM)
    assert rig.process.wait() == 0
    assert 'Traceback' not in rig.process.output


# The node, which notices silence after a second and logs its progress every second.
IMPATIENT_NODE = """
import sys
from lpr_ros.lpr_node.node import main
from lpr_ros.ros_utils import progress_log, topic_watch

if __name__ == '__main__':
    progress_log.INTERVAL_S = topic_watch.SILENCE_S = topic_watch.LOG_INTERVAL_S = 1.0
    sys.exit(main())
"""


def test_a_node_without_scans_says_what_is_published(ros):
    """In a namespace the default topics are others than those of the driver."""
    weights = write_weights(ros.folder / 'weights.safetensors')
    driver = ros.node('driver')
    driver.create_publisher(PointCloud2, '/velodyne_points', 5)
    driver.create_publisher(Odometry, '/odom', 5)
    diagnostics = ros.listen(driver, DiagnosticArray, '/diagnostics')
    settings = {'weights': weights, 'autostart': True}
    process = start_node(ros, settings, '-r', '__ns:=/robot', program=('-c', IMPATIENT_NODE))
    texts = (
        'no message on /robot/points for 1 s: nobody publishes it',
        'is published on /velodyne_points: set points:=/velodyne_points',
        'no message on /robot/odometry for 1 s',
        'set odometry:=/odom; for a LiDAR alone set odometry_source: lidar',
    )
    # The first warning may come before the driver is discovered.
    warned = diagnostics.take_until(
        lambda message: all(text in message.status[0].message for text in texts), START_S
    )
    (status,) = warned.status
    assert (status.name, status.level) == ('/robot/lpr_node', DiagnosticStatus.WARN)
    for text in texts:
        wait_until(lambda text=text: text in process.output, text)


def test_the_log_tells_the_story_of_a_drive(ros):
    path = ros.folder / 'places.map'
    rig = Rig(ros, program=('-c', IMPATIENT_NODE), map_path=path, autosave_s=0.5)
    assert rig.state == 'unconfigured'
    rig.change_state('configure')
    rig.change_state('activate')
    rig.wait_active()
    rig.drive(range(3))
    points = len(step(0).points)
    story = (
        r'unconfigured: waiting for a lifecycle manager .*/lpr_node configure',
        r'subscribed to /odometry, /points',
        r"odometry: 'lidar' in 'odom'",
        r"session 'robot' starts: first scan",
        rf'first keyframe: stamp {step(0).stamp_ns} ns',
        rf"first scan: {points} points \(x, y, z, .*\) in frame 'lidar', \d+\.\d scans/s",
        rf'\d+ keyframes saved to {path}',
        r'scans \d+ \(\+\d+\), keyframes \d+ \(\+\d+\), loop closures \d+ .*, dropped scans 0',
    )
    for line in story:
        wait_until(lambda line=line: re.search(line, rig.process.output), line)
    assert len(re.findall('first ', rig.process.output)) == 3  # two, and the reason of session


@pytest.mark.parametrize(('name', 'value', 'reason'), [
    ('map_path', '~nosuchuser/places.map', "map_path '~nosuchuser/places.map': expected a path"),
    ('weights', 'w' * 300, 'File name too long'),
    ('extrinsic', [0.0] * 7, 'expected x y z and a nonzero quaternion'),
])  # fmt: skip
def test_a_failed_start_is_explained(ros, name, value, reason):
    process = start_node(ros, {name: value, 'autostart': True})
    assert process.wait() == 1
    assert reason in process.output
    assert 'Traceback' not in process.output


def test_interrupt_during_startup(ros):
    rig = Rig(ros, autostart=True)
    wait_until(lambda: 'lpr_node' in rig.node.get_node_names(), 'node', START_S)
    rig.process.interrupt()
    assert rig.process.wait() == 0
    assert 'Traceback' not in rig.process.output, rig.process.output


def test_two_interrupts_during_work(ros):
    rig = Rig(ros, autostart=True)
    bad = start_node(ros, {'weights': '/nowhere/other.safetensors', 'autostart': True})
    rig.wait_active()
    rig.drive(LAP)
    rig.drive(AGAIN)
    for index in range(AGAIN[-1] + 1, AGAIN[-1] + 9):
        rig.send(step(index))
    rig.process.interrupt()
    rig.process.interrupt()
    assert rig.process.wait() == 0
    assert 'Traceback' not in rig.process.output
    assert bad.wait(90.0) == 1
    assert '/nowhere/other.safetensors' in bad.output
