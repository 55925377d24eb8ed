"""Faults at run time: which of them the nodes survive, and what is lost.

A simulated robot drives back and forth, with the nodes in their own processes over DDS. Every
round injects each fault once, in random order and at a random moment. A fault is survived if the
node behaves as documented (docs/reliability.md) and the map on disk is intact.
"""

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from copy import deepcopy
import os
from pathlib import Path
import random
import resource
import signal
import tempfile
import time
from typing import Any

from nav_msgs.msg import Odometry
from tqdm import tqdm

from lpr_ros.core.errors import LprError
from lpr_ros.core.files import sidecar_path
from lpr_ros.core.markdown import markdown_table
from lpr_ros.core.timing import NS_PER_S
from lpr_ros.lpr_node.map_lock import MapLock, MapLockedError
from lpr_training.benchmarks.faults.robot import PERIOD_S, START_TIMEOUT_S, Robot
from lpr_training.benchmarks.options import add_option
from lpr_training.harness.listener import Listener
from lpr_training.harness.processes import use_own_domain

MAX_DELAY_S = 3.0
MINUTE_S = 60.0
HOUR_NS = 3600 * NS_PER_S
CHECKED_FIELDS = {'ROS_PYTHON_CHECK_FIELDS': '1'}  # as on Humble
Counts = dict[str, int]  # further results of one fault


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_option(parser, '--rounds', 5, 'Rounds; each injects every fault once')
    add_option(parser, '--seed', 0, 'Seed of the order and the moments')


def run(rounds: int = 5, seed: int = 0) -> dict[str, Any]:
    """Inject every fault in every round and return the results."""
    rng = random.Random(seed)
    started_s = time.monotonic()
    rows = {name: {'fault': name, 'tried': 0, 'survived': 0, 'maps_whole': 0} for name in FAULTS}
    failures: list[str] = []
    use_own_domain()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        listener = Listener()
        stack.callback(listener.close)
        robot = Robot(folder, listener, CHECKED_FIELDS)
        stack.callback(robot.close)
        robot.start_all()
        bar = stack.enter_context(tqdm(total=rounds * len(FAULTS), unit='fault'))
        for number in range(rounds):
            for name in rng.sample(list(FAULTS), len(FAULTS)):
                bar.set_description(name)
                failure = _inject(robot, name, rows[name], rng)
                if failure:
                    failures.append(f'round {number}, {name}: {failure}')
                    bar.write(failures[-1])
                bar.update()
        disk = robot.disk.description
    return {
        'seed': seed,
        'rounds': rounds,
        'disk': disk,
        'tried': sum(row['tried'] for row in rows.values()),
        'survived': sum(row['survived'] for row in rows.values()),
        'seconds': time.monotonic() - started_s,
        'faults': list(rows.values()),
        'failures': failures,
    }


def table(result: dict[str, Any]) -> str:
    """Return the results as a markdown table, followed by the failures."""
    head = ('fault', 'injected', 'survived', 'maps intact', 'max keyframes lost', 'other counts')
    columns = ('fault', 'tried', 'survived', 'maps_whole', 'keyframes_lost')
    rows = []
    for row in result['faults']:
        other = [f'{key.replace("_", " ")} {n}' for key, n in row.items() if key not in columns]
        rows.append((*(row.get(key, '') for key in columns), ', '.join(other)))
    summary = (
        f'{result["survived"]} of {result["tried"]} faults survived in '
        f'{result["seconds"]:.0f} s. Disk: {result["disk"]}.'
    )
    return '\n'.join([markdown_table(head, rows), summary, *result['failures']])


def _inject(robot: Robot, name: str, row: dict[str, Any], rng: random.Random) -> str:
    """Inject one fault at a random moment; return the reason if it was not survived."""
    row['tried'] += 1
    try:
        robot.wait_for_keyframes(1)
        time.sleep(rng.uniform(0.0, MAX_DELAY_S))
        for key, value in FAULTS[name](robot, rng).items():
            row[key] = (
                max(row.get(key, 0), value) if key == 'keyframes_lost' else row.get(key, 0) + value
            )
        robot.wait_for_keyframes()
        robot.read_map()
        row['maps_whole'] += 1
        row['survived'] += 1
    except LprError as error:
        _recover(robot)
        return str(error)
    return ''


def _recover(robot: Robot) -> None:
    """Restore input and nodes after a fault that was not survived."""
    robot.feed.is_publishing = robot.feed.is_moving = robot.feed.has_odometry = True
    robot.feed.stamp_step_s = PERIOD_S
    if not robot.node.is_running:
        robot.start_node()
    if not robot.graph.is_running:
        robot.start_graph()


def kill_node(robot: Robot, rng: random.Random) -> Counts:
    """Kill lpr_node, every other time during a save; it resumes from its map."""
    if rng.random() < 0.5:
        end_s = time.monotonic() + MAX_DELAY_S
        while not robot.partial_path.exists() and time.monotonic() < end_s:
            time.sleep(0.0005)
    robot.node.kill()
    during_save = int(robot.partial_path.exists())
    time.sleep(0.1)  # until its last messages have arrived
    lost = robot.keyframes - robot.read_map()
    robot.start_node()
    return {'keyframes_lost': lost, 'during_a_save': during_save}


def kill_player(robot: Robot, rng: random.Random) -> Counts:
    """Kill the player during playback, and play the recording again."""
    robot.feed.is_publishing = False
    for _ in range(2):
        player = robot.start('lpr_ros.player', str(robot.recording), '--wait', '1', '--quiet')
        before = robot.keyframes
        robot.wait(
            lambda before=before: robot.keyframes > before,
            'keyframe of the player',
            START_TIMEOUT_S,
        )
        time.sleep(rng.uniform(0.0, MAX_DELAY_S))
        player.kill()
    robot.feed.is_publishing = True
    return {}


def kill_pose_graph_node(robot: Robot, rng: random.Random) -> Counts:
    """Kill pose_graph_node; after a restart it receives all keyframes and loops again."""
    robot.wait(lambda: robot.listener.loops, 'a loop')
    robot.graph.kill()
    known = len(robot.listener.loops)
    robot.start_graph()
    robot.wait(lambda: robot.graph_size()[1] >= known, f'{known} loops in the restarted graph')
    return {'loops_received_again': known}


def full_disk(robot: Robot, rng: random.Random) -> Counts:
    """Fill the disk of the map, then make space again."""
    return _fail_saves(
        robot,
        lambda: robot.disk.fill(robot.node.pid),
        lambda: robot.disk.free(robot.node.pid),
        ('No space left', 'File too large'),
    )


def read_only_map(robot: Robot, rng: random.Random) -> Counts:
    """Make the disk of the map read-only, then writable again."""
    return _fail_saves(
        robot,
        lambda: robot.disk.set_writable(False),
        lambda: robot.disk.set_writable(True),
        ('Read-only', 'Permission denied'),
    )


def odometry_gone(robot: Robot, rng: random.Random) -> Counts:
    """Stop odometry for a minute of stamps while the robot stands; the session continues."""
    feed, session = robot.feed, robot.listener.status['session']
    before = robot.listener.count('dropped.no_odometry')
    feed.is_moving = feed.has_odometry = False
    feed.stamp_step_s = 10.0 * PERIOD_S
    end_ns = feed.stamp_ns + int(MINUTE_S * NS_PER_S)
    robot.wait(lambda: feed.stamp_ns >= end_ns, 'the minute without odometry')
    feed.stamp_step_s = PERIOD_S
    feed.is_moving = feed.has_odometry = True
    robot.wait_for_keyframes()
    dropped = robot.listener.count('dropped.no_odometry') - before
    _expect(dropped > 0, 'scans without odometry were not counted as dropped')
    _expect(robot.listener.status['session'] == session, 'the session changed')
    return {'scans_dropped': dropped}


def clock_ahead(robot: Robot, rng: random.Random) -> Counts:
    """Set the stamps ahead by up to an hour; the session continues."""
    session = robot.listener.status['session']
    robot.feed.stamp_ns += int(rng.uniform(0.01, 1.0) * HOUR_NS)
    robot.wait_for_keyframes()
    _expect(robot.listener.status['session'] == session, 'the session changed')
    return {}


def clock_back(robot: Robot, rng: random.Random) -> Counts:
    """Set the stamps back by up to an hour; a new session starts."""
    sessions = robot.listener.count('sessions')
    robot.feed.stamp_ns -= int(rng.uniform(0.01, 1.0) * HOUR_NS)
    robot.wait_for_keyframes()
    robot.wait(lambda: robot.listener.count('sessions') > sessions, 'a new session')
    return {}


def second_node(robot: Robot, rng: random.Random) -> Counts:
    """Start a second node on the same map: it runs, but refuses to write the map."""
    second = robot.start('lpr_ros.lpr_node', *robot.node_arguments('-r', '__node:=second'))
    try:
        robot.wait(
            lambda: robot.listener.subscribers('points') > 1, 'the second node', START_TIMEOUT_S
        )
        holder = str(robot.node.pid)
        try:
            robot.listener.call('second/save_map')
            raise LprError('the second node wrote the map')
        except LprError as error:
            _expect(holder in str(error), f'save_map of the second node: {error}')
            _expect(holder in second.output, f'the second node did not log process {holder}')
    finally:
        second.kill()
    return {}


def verification_hangs(robot: Robot, rng: random.Random) -> Counts:
    """Suspend the verification process: it is replaced and verification continues."""
    listener = robot.listener
    verified = listener.count('verified')
    robot.wait(lambda: listener.count('verified') > verified, 'verification')
    before = listener.count('keyframes_dropped.verification')
    os.kill(robot.verifier_pid(), signal.SIGSTOP)
    robot.wait(
        lambda: listener.count('keyframes_dropped.verification') > before,
        'timeout of the verification',
    )
    verified = listener.count('verified')
    robot.wait(lambda: listener.count('verified') > verified, 'verification by a new process')
    return {}


def malformed_stamps(robot: Robot, rng: random.Random) -> Counts:
    """Send scans and odometry whose stamps no other message can hold; each is dropped."""
    count = robot.listener.count
    before = count('dropped.stamp'), count('odometry_dropped.stamp')
    cloud, odometry = deepcopy(robot.feed.clouds[0]), Odometry()
    for message in (cloud, odometry):
        message.header.stamp._sec, message.header.stamp._nanosec = 2**31 - 1, 2**32 - 1
    robot.wait(
        lambda: (
            [robot.feed.points.publish(cloud), robot.feed.odometry.publish(odometry)]
            and count('dropped.stamp') > before[0]
            and count('odometry_dropped.stamp') > before[1]
        ),
        'malformed stamps to be dropped',
    )
    _expect(robot.graph.is_running, f'pose_graph_node exited: {robot.graph.output[-500:]}')
    return {}


def no_descriptors(robot: Robot, rng: random.Random) -> Counts:
    """Leave lpr_node no file descriptor, and kill its verification process meanwhile."""
    pid = robot.node.pid
    allowed = resource.prlimit(pid, resource.RLIMIT_NOFILE)

    def block() -> None:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, allowed[1]))
        os.kill(robot.verifier_pid(), signal.SIGKILL)

    found = _fail_saves(
        robot,
        block,
        lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, allowed),
        ('Too many open files',),
    )
    verified = robot.listener.count('verified')
    robot.wait(lambda: robot.listener.count('verified') > verified, 'verification')
    return found


def lock_removed(robot: Robot, rng: random.Random) -> Counts:
    """Remove the lock file of the map; the node takes a new lock with its next save."""
    lock = sidecar_path(robot.map_path, '.lock')
    lock.unlink()
    robot.wait(lock.exists, 'a new lock')
    try:
        MapLock(robot.map_path).release()
        raise LprError('the map is not locked')
    except MapLockedError:
        return {}


def _fail_saves(
    robot: Robot,
    block: Callable[[], object],
    unblock: Callable[[], object],
    reasons: tuple[str, ...],
) -> Counts:
    """Make saving fail, then succeed again; the previous map stays intact meanwhile."""
    listener = robot.listener
    block()
    try:
        robot.wait(lambda: listener.status.get('map_error'), 'a failed save')
        error = listener.status['map_error']
        _expect(any(reason in error for reason in reasons), f'map_error is {error!r}')
        before = robot.read_map()
        robot.wait_for_keyframes()
        _expect(robot.read_map() == before, 'the map changed')
    finally:
        unblock()
    robot.wait(
        lambda: not listener.status.get('map_error') and listener.count('map_keyframes') > before,
        'a successful save',
    )
    return {}


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise LprError(message)


FAULTS: dict[str, Callable[[Robot, random.Random], Counts]] = {
    'kill -9 of lpr_node': kill_node,
    'kill -9 of lpr_player': kill_player,
    'kill -9 of pose_graph_node': kill_pose_graph_node,
    'full disk': full_disk,
    'read-only map': read_only_map,
    'no odometry for a minute': odometry_gone,
    'clock jumps ahead': clock_ahead,
    'clock jumps back': clock_back,
    'second node on the map': second_node,
    'verification hangs': verification_hangs,
    'malformed stamps': malformed_stamps,
    'no file descriptors left': no_descriptors,
    'lock file removed': lock_removed,
}
