"""Faults at run time: kill -9, failing disks, missing odometry, clock jumps, malformed stamps."""

from collections.abc import Iterator
import math
import os
from pathlib import Path as FilePath
import resource
import signal

from nav_msgs.msg import Path
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
import pytest
from ros_processes import NoResponseError, ros_session, wait_until
from std_srvs.srv import Trigger
from toy_drive import START_NS, STEP_NS, STEPS_PER_LAP, step

from lpr_ros.core.database.place_database import DatabaseConfig, PlaceDatabase
from lpr_ros.core.model.checkpoint import load_checkpoint
from lpr_ros.ros_utils.qos import LATCHED
from lpr_training.harness.small_disk import SmallDisk

AGAIN = STEPS_PER_LAP + 8
HOUR_NS = 3600 * 10**9
ANSWER_S = 5.0  # of a node that is alive


def child_of(pid: int) -> int:
    """Return the process id of the verification process of a node."""
    tasks = FilePath(f'/proc/{pid}/task').glob('*/children')  # of the thread that started it
    (child,) = ' '.join(task.read_text() for task in tasks).split()
    return int(child)


def whole_map(rig: Rig, path) -> PlaceDatabase:
    """Read and check a map."""
    fingerprint = load_checkpoint(rig.weights).fingerprint
    return PlaceDatabase.load(path, DatabaseConfig(), fingerprint=fingerprint)


def start_again(ros, settings) -> Rig:
    """Start a node in place of a killed one, whose endpoints DDS keeps for 20 s."""
    rig = Rig(ros, **settings)
    wait_until(lambda: 'subscribed to' in rig.process.output, 'subscriptions', START_S)
    rig.status()  # it is published last, so whoever receives it receives everything else
    return rig


def loops_in_graph(ros, tester, keyframes: int) -> int:
    """Return the loop closures in the pose graph; -1 unless it has this many keyframes.

    -1 without a response, too: DDS keeps the services of a killed node for 20 s, and a request
    goes only to the servers that the client knows.
    """
    try:
        answer = ros.call(tester, Trigger, '/pose_graph_node/save_g2o', timeout_s=ANSWER_S)
    except NoResponseError:
        return -1
    said = answer.message.split(': ')[1]
    found, loops = (int(part.split()[0]) for part in said.split(', '))
    return loops if found == keyframes else -1


def test_node_and_back_end_recover_from_kill(ros):
    """A second node on the same map was started by mistake."""
    path = ros.folder / 'places.map'
    settings = {'autostart': True, 'map_path': path, 'load_map': True, 'autosave_s': 0.5}
    graph = ros.start('-m', 'lpr_ros.pose_graph_node')
    rig = Rig(ros, **settings)
    rig.wait_active()
    second = start_node(ros, {'weights': str(rig.weights)} | settings, '-r', '__node:=second')
    rig.drive(range(AGAIN))
    rig.loops.take(START_S)  # the verification process may still be starting
    rig.status_with('map_keyframes', AGAIN)
    loops = wait_until(lambda: max(0, loops_in_graph(ros, rig.node, AGAIN)), 'a loop in the graph')

    graph.interrupt(signal.SIGKILL)
    graph.wait()
    paths = ros.listen(rig.node, Path, '/pose_graph_node/path', LATCHED)
    ros.start('-m', 'lpr_ros.pose_graph_node')
    paths.take_until(lambda path: len(path.poses) == AGAIN, START_S)
    wait_until(
        lambda: loops_in_graph(ros, rig.node, AGAIN) >= loops, 'the restored graph', START_S
    )

    holder = f'locked by process {rig.process.popen.pid}'
    wait_until(lambda: holder in second.output, 'warning of the second node', START_S)
    refused = ros.call(rig.node, Trigger, '/second/save_map')
    assert not refused.success
    assert holder in refused.message
    second.interrupt()  # it would take over the map of the first one
    assert second.wait() == 0, second.output

    rig.drive(range(AGAIN, AGAIN + 3))
    rig.process.interrupt(signal.SIGKILL)
    rig.process.wait()
    saved = len(whole_map(rig, path))
    assert AGAIN <= saved <= AGAIN + 3

    again = start_again(ros, settings)
    assert again.status()['keyframes'] == str(saved)
    wait_until(lambda: loops_in_graph(ros, rig.node, saved) >= loops, 'the graph of the map')
    again.loops.drain()
    again.drive(range(5, 11), start_ns=START_NS + HOUR_NS)
    query, match = ends_of(again.loops.take(START_S))  # as above
    assert match < saved <= query
    again.status_with('map_keyframes', saved + 6)
    assert whole_map(rig, path).sessions[:2] == ('robot', 'robot (2)')


@pytest.fixture(scope='module')
def disk(tmp_path_factory) -> Iterator[SmallDisk]:
    made = SmallDisk(tmp_path_factory.mktemp('disk') / 'disk')
    yield made
    made.close()


@pytest.fixture(scope='module')
def rig(tmp_path_factory, disk) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp('faults')
    with pytest.MonkeyPatch.context() as patch, ros_session(folder, patch) as session:
        made = Rig(
            session,
            autostart=True,
            map_path=disk.folder / 'places.map',
            autosave_s=0.5,
            odometry_wait_s=0.3,
        )
        made.wait_active()
        yield made
        made.process.interrupt()
        assert made.process.wait() == 0, made.process.output
        assert 'Traceback' not in made.process.output


def test_a_full_or_read_only_disk_delays_saving_only(rig, disk):
    path, pid = disk.folder / 'places.map', rig.process.popen.pid
    rig.drive(range(4))
    rig.status_with('map_keyframes', 4)
    obstacles = (
        (lambda: disk.fill(pid), lambda: disk.free(pid), ('No space left', 'File too large')),
        (lambda: disk.set_writable(False), lambda: disk.set_writable(True),
         ('Read-only file system', 'Permission denied')),
    )  # fmt: skip
    for number, (begin, end, reasons) in enumerate(obstacles, 1):
        before = path.read_bytes()
        begin()
        rig.drive(range(4 * number, 4 * number + 4))
        status = wait_until(
            lambda: s if (s := rig.status())['map_error'] else None, 'a save that failed'
        )
        assert any(reason in status['map_error'] for reason in reasons)
        assert status['summary'].startswith('Map not saved')
        wait_until(lambda error=status['map_error']: error in rig.process.output, 'a warning')
        assert path.read_bytes() == before
        answer = rig.trigger('save_map')
        assert not answer.success
        end()
        rig.status_with('map_keyframes', 4 * number + 4)
        assert len(whole_map(rig, path)) == 4 * number + 4
        assert rig.status()['map_error'] == ''


def test_a_node_without_free_file_descriptors_keeps_its_drive(rig):
    """Services answer false, the verification process cannot be replaced, scans go on."""
    rig.reset()
    rig.drive(range(4))
    assert rig.trigger('save_map').success
    pid = rig.process.popen.pid
    allowed = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, allowed[1]))  # those it has stay open
    try:
        for name in ('load_map', 'save_map'):
            answer = rig.trigger(name)
            assert not answer.success
            assert 'Too many open files' in answer.message
        os.kill(child_of(pid), signal.SIGKILL)
        rig.drive(range(4, AGAIN))
        status = rig.status_with('keyframes_dropped.verification', 1)
        assert int(status['keyframes']) == AGAIN
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, allowed)
    rig.loops.drain()
    rig.drive(range(AGAIN, AGAIN + 4))
    rig.loops.take(START_S)
    assert rig.trigger('save_map').success
    assert rig.trigger('load_map').success
    assert rig.status()['keyframes'] == str(AGAIN + 4)


def test_odometry_missing_for_a_minute(rig):
    rig.reset()
    rig.drive(range(3))
    before = int(rig.status().get('dropped.no_odometry', 0))
    minute = 60 * 10**9 // STEP_NS
    for index in (3, 3 + minute // 2, 2 + minute):
        rig.points.publish(cloud_of(step(index)))
        before += 1
        rig.status_with('dropped.no_odometry', before)
    rig.drive(range(3 + minute, 6 + minute))
    path = rig.keyframes.take_until(lambda message: len(message.poses) == 6)
    assert set(sessions_of(path)) == {'robot'}


def test_clock_jumps_ahead_and_back(rig):
    rig.reset()
    rig.drive(range(3))
    rig.drive(range(3, 6), start_ns=START_NS + HOUR_NS)
    rig.drive(range(6, 9), start_ns=START_NS)
    path = rig.keyframes.take_until(lambda message: len(message.poses) == 9)
    assert sessions_of(path) == ['robot'] * 6 + ['robot (2)'] * 3
    assert rig.trigger('save_map').success


def test_a_malformed_stamp_costs_one_scan(rig):
    """Messages that check their fields cannot hold the sum of such a stamp."""
    rig.reset()
    before = int(rig.status().get('dropped.stamp', 0))
    rig.drive(range(2))
    bad = cloud_of(step(2))
    bad.header.stamp._sec, bad.header.stamp._nanosec = 2**31 - 1, 2**32 - 1
    rig.points.publish(bad)
    status = rig.status_with('dropped.stamp', before + 1)
    assert '4294967295 ns' in status['last_error']
    rig.drive(range(3, 6))
    assert scan_balance(rig.status()) == 0


def test_malformed_odometry_is_not_counted_as_a_scan(rig):
    rig.reset()
    before = int(rig.status().get('odometry_dropped.odometry', 0))
    bad = odometry_of(step(0))
    bad.pose.pose.position.x = math.nan
    rig.odometry.publish(bad)
    rig.status_with('odometry_dropped.odometry', before + 1)
    rig.drive(range(3))
    assert scan_balance(rig.status()) == 0


def test_participants_that_come_and_go_cost_no_scan(rig):
    """Subscribers, publishers and clients of the node appear and vanish, without goodbye."""
    rig.reset()
    program = (
        'import os, rclpy\n'
        'from nav_msgs.msg import Odometry\n'
        'from sensor_msgs.msg import PointCloud2\n'
        'from std_srvs.srv import Trigger\n'
        'rclpy.init()\n'
        'node = rclpy.create_node(f"guest_{os.getpid()}")\n'
        'node.create_publisher(PointCloud2, "points", 5)\n'
        'node.create_subscription(Odometry, "lpr_node/loop_closures", print, 10)\n'
        'client = node.create_client(Trigger, "lpr_node/save_map")\n'
        'client.wait_for_service(5.0)\n'
        'client.call_async(Trigger.Request())\n'
        'os._exit(0)\n'
    )
    for number in range(3):
        guest = rig.ros.start('-c', program)
        rig.drive(range(2 * number, 2 * number + 2))
        assert guest.wait() == 0, guest.output
    rig.drive(range(6, 8))
    assert scan_balance(rig.status()) == 0
