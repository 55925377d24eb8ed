"""The siege: its checks detect what they should, and the nodes survive a short one."""

from contextlib import suppress
from random import Random
import threading
from types import SimpleNamespace

from builtin_interfaces.msg import Time
from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import Path
import numpy as np
import pytest
from std_msgs.msg import Header
from toy_graphs import loop_closure

from lpr_ros.conversions.clouds import cloud_message
from lpr_ros.conversions.loops import constraint_message
from lpr_ros.core.errors import CloudError
from lpr_ros.core.geometry.se3 import pose_from_euler
from lpr_ros.core.io.pointcloud2 import pack_cloud, read_cloud
from lpr_ros.ros_utils.fastdds_variable import FAST_DDS_2, FAST_DDS_3
from lpr_training.benchmarks.siege import health, run, scans
from lpr_training.benchmarks.siege.attacks import ATTACKS, available_attacks, choose_attack
from lpr_training.benchmarks.siege.health import Health, health_growth
from lpr_training.benchmarks.siege.loop_check import LoopCheck
from lpr_training.benchmarks.siege.siege import Gate
from lpr_training.harness.accounting import scan_outcomes
from lpr_training.harness.resource_usage import ResourceUsage

SECOND_NS = 10**9
SHORT_MINUTES = 0.12
SLOW_ATTACKS = {'player killed', 'pose_graph_node called or killed', 'sensor loss'}
ENVIRONMENT = (
    'ROS_DOMAIN_ID',
    'ROS_AUTOMATIC_DISCOVERY_RANGE',
    'ROS_LOCALHOST_ONLY',
    FAST_DDS_2,
    FAST_DDS_3,
)


class FakeListener:
    """Hands messages to the callbacks of one topic."""

    def __init__(self):
        self.callbacks = {}

    def subscribe(self, kind, topic, callback, qos):
        self.callbacks[topic] = callback


def path_of(*stamps_ns):
    stamps = [divmod(stamp_ns, SECOND_NS) for stamp_ns in stamps_ns]
    headers = [Header(stamp=Time(sec=sec, nanosec=nanosec)) for sec, nanosec in stamps]
    return Path(poses=[PoseStamped(header=header) for header in headers])


@pytest.fixture
def check():
    poses = {s * SECOND_NS: pose_from_euler([s, 0.0, 0.0], [0.0, 0.0, 0.0]) for s in range(1, 9)}
    listener = FakeListener()
    check = LoopCheck(listener, poses | {9 * SECOND_NS: None})

    def send_loop(match, query, stamp_s, x):
        loop = loop_closure(match, query, pose_from_euler([x, 0.0, 0.0], [0.0, 0.0, 0.0]))
        message = constraint_message(loop, stamp_s * SECOND_NS)
        listener.callbacks['lpr_node/loop_closures'](message)

    def send_path(*stamps_s):
        listener.callbacks['lpr_node/keyframes'](path_of(*(s * SECOND_NS for s in stamps_s)))

    return SimpleNamespace(result=check, loop=send_loop, path=send_path)


def test_loop_check_tells_correct_loops_from_wrong_ones(check):
    check.loop(0, 3, 4, 3.0)  # from x = 1 to x = 4
    check.loop(0, 2, 3, 5.0)
    assert check.result.unchecked == 2
    check.path(1, 2, 3, 4)
    assert (check.result.correct, check.result.wrong, check.result.unchecked) == (1, 1, 0)


def test_loop_check_waits_for_the_path_of_the_database_of_the_loop(check):
    check.loop(0, 1, 6, 1.0)
    check.path(1, 2, 3)  # of an older database, in which keyframe 1 has another stamp
    assert check.result.unchecked == 1
    check.path(5, 6)
    assert check.result.correct == 1


def test_a_loop_to_a_scan_of_no_place_is_wrong(check):
    check.loop(0, 1, 9, 0.0)
    check.path(1, 9)
    assert check.result.wrong == 1


def test_health_growth_is_unknown_after_a_restart():
    before = Health(1, ResourceUsage(100.0, 10, 20))
    after, restarted = (Health(pid, ResourceUsage(130.0, 12, 20)) for pid in (1, 2))
    assert health_growth('node', before, after)['node_memory_growth_mb'] == 30.0
    assert health_growth('node', before, after)['node_threads_growth'] == 2
    assert health_growth('node', before, restarted) == health_growth('node', None, after) == {}


def test_gate_waits_for_attacks_in_progress_and_keeps_others_out():
    gate, started, release, order = Gate(), threading.Event(), threading.Event(), []

    def attack(name):
        with gate.attack():
            started.set()
            release.wait()
            order.append(name)

    first = threading.Thread(target=attack, args=('first',))
    first.start()
    started.wait()
    threading.Timer(0.1, release.set).start()
    with gate.closed():
        second = threading.Thread(target=attack, args=('second',))
        second.start()
        second.join(0.1)
        order.append('closed')
    second.join()
    assert order == ['first', 'closed', 'second']


def test_what_would_disturb_a_drive_is_not_chosen_during_one():
    rng, names = Random(0), list(ATTACKS)
    during = {choose_attack(names, rng, spare_drive=True) for _ in range(500)}
    assert during == {name for name, attack in ATTACKS.items() if attack.spares_drive}
    assert during.isdisjoint({'map services', 'lifecycle cycles', 'scan flood', 'clock jump'})
    assert {choose_attack(names, rng, spare_drive=False) for _ in range(2000)} == set(names)
    assert choose_attack(['scan flood'], rng, spare_drive=True) is None


@pytest.mark.parametrize('mutation', scans.MUTATIONS, ids=lambda m: m.__name__.strip('_'))
def test_damaged_scans_are_read_or_rejected(mutation, rng):
    points = rng.uniform(-20.0, 20.0, (200, 3)).astype(np.float32)
    for seed in range(20):
        cloud = scans.copied(cloud_message(0, 'lidar', pack_cloud(points)))
        mutation(cloud, Random(seed))
        with suppress(CloudError):
            assert np.isfinite(read_cloud(cloud).points).all()


def test_scan_outcomes_leave_out_what_is_not_a_scan():
    status = {'described': '3', 'passed': '5', 'scans': '9', 'dropped.cloud': '1'}
    others = {
        'keyframes_dropped.verification': '7',
        'loops_dropped.rtabmap': '2',
        'last_error': '',
    }
    assert scan_outcomes(status | others) == {
        'described': 3, 'passed': 5, 'dropped.cloud': 1,
    }  # fmt: skip


def test_nodes_survive_a_short_siege(monkeypatch):
    for name in ENVIRONMENT:
        monkeypatch.setenv(name, '')  # restores the environment that the siege changes
        monkeypatch.delenv(name)
    monkeypatch.setattr(run, '_at_rest', lambda *arguments: {})  # growth shows after minutes only
    monkeypatch.setattr(health, 'SAMPLES', 1)
    quick = [name for name in available_attacks() if name not in SLOW_ATTACKS]
    result = run.run(SHORT_MINUTES, seed=1, attacks=quick)
    assert result['death_texts'] == []
    assert result['failure_texts'] == []
    assert result['wrong_loops'] == []
    assert result['unaccounted'] == 0, result['outcomes']
    assert result['received'] > 0
    assert result['tracebacks'] == 0
    assert sum(result['attacks'].values()) > 10
    assert '| deaths | 0 | 0 |' in run.table(result)
