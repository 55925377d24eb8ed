"""Faults while running: what survives them, and what is lost.

A simulated robot drives forth and back for ever, its nodes in processes of their own over DDS.
Every round tries each fault once, in random order and at a random moment. A fault is survived
when the node goes on as documented (docs/reliability.md) and its map on disk is whole.
"""

from collections.abc import Callable
from contextlib import ExitStack
import os
from pathlib import Path
import random
import signal
import tempfile
import time
from typing import Any

from tqdm import tqdm

from lpr_ros.core.clock import NS_PER_S
from lpr_ros.core.errors import LprError
from lpr_training.benchmarks.faults_robot import PERIOD_S, START_S, Robot
from lpr_training.demo.listener import Listener
from lpr_training.demo.processes import use_own_domain

LONGEST_MOMENT_S = 3.0
MINUTE_S = 60.0
HOUR_NS = 3600 * NS_PER_S
Tried = dict[str, int]  # figures of one fault, besides whether it was survived


def run(rounds: int = 5, seed: int = 0) -> dict[str, Any]:
    """Try every fault in every round and return the figures."""
    rng = random.Random(seed)
    began_s = time.monotonic()
    rows = {name: {'fault': name, 'tried': 0, 'survived': 0, 'maps_whole': 0} for name in FAULTS}
    failures: list[str] = []
    use_own_domain()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        listener = Listener()
        stack.callback(listener.close)
        robot = Robot(folder, listener)
        stack.callback(robot.close)
        robot.start_all()
        bar = stack.enter_context(tqdm(total=rounds * len(FAULTS), unit='fault'))
        for number in range(rounds):
            for name in rng.sample(list(FAULTS), len(FAULTS)):
                bar.set_description(name)
                failure = _try(robot, name, rows[name], rng)
                if failure:
                    failures.append(f'round {number}, {name}: {failure}')
                    bar.write(failures[-1])
                bar.update()
        means = robot.disk.means
    return {
        'seed': seed,
        'rounds': rounds,
        'disk': means,
        'tried': sum(row['tried'] for row in rows.values()),
        'survived': sum(row['survived'] for row in rows.values()),
        'seconds': time.monotonic() - began_s,
        'faults': list(rows.values()),
        'failures': failures,
    }


def table(result: dict[str, Any]) -> str:
    """Return the figures as a markdown table."""
    lines = [
        '| fault | tried | survived | maps whole | keyframes lost at most | besides |',
        '|---|---|---|---|---|---|',
    ]
    fixed = ('fault', 'tried', 'survived', 'maps_whole', 'keyframes_lost')
    for row in result['faults']:
        besides = ', '.join(f'{key.replace("_", " ")} {n}' for key, n in row.items()
                            if key not in fixed)  # fmt: skip
        cells = [*(row[key] for key in fixed[:4]), row.get('keyframes_lost', ''), besides]
        lines.append(f'| {" | ".join(map(str, cells))} |')
    lines.append(
        f'\n{result["survived"]} of {result["tried"]} faults survived in '
        f'{result["seconds"]:.0f} s. Disk: {result["disk"]}.'
    )
    return '\n'.join([*lines, *result['failures']])


def _try(robot: Robot, name: str, row: dict[str, Any], rng: random.Random) -> str:
    """Try one fault at a random moment; return why it was not survived, if so."""
    row['tried'] += 1
    try:
        robot.wait_for_keyframes(1)
        time.sleep(rng.uniform(0.0, LONGEST_MOMENT_S))
        for key, value in FAULTS[name](robot, rng).items():
            row[key] = max(row.get(key, 0), value) if key == 'keyframes_lost' \
                else row.get(key, 0) + value
        robot.wait_for_keyframes()
        robot.read_map()
        row['maps_whole'] += 1
        row['survived'] += 1
    except LprError as error:
        _recover(robot)
        return str(error)
    return ''


def _recover(robot: Robot) -> None:
    """Begin the next fault with a node that runs, whatever this one left."""
    robot.feed.is_on = robot.feed.is_moving = robot.feed.has_odometry = True
    robot.feed.stamp_step_s = PERIOD_S
    if not robot.node.is_running:
        robot.start_node()
    if not robot.graph.is_running:
        robot.start_graph()


def kill_node(robot: Robot, rng: random.Random) -> Tried:
    """Kill lpr_node, every second time in the middle of a save; it goes on from its map."""
    if rng.random() < 0.5:
        end_s = time.monotonic() + LONGEST_MOMENT_S
        while not robot.partial_path.exists() and time.monotonic() < end_s:
            time.sleep(0.0005)
    robot.node.kill()
    in_a_save = int(robot.partial_path.exists())
    time.sleep(0.1)  # what it has told is heard
    lost = robot.seen - robot.read_map()
    robot.start_node()
    return {'keyframes_lost': lost, 'in_the_middle_of_a_save': in_a_save}


def kill_player(robot: Robot, rng: random.Random) -> Tried:
    """Kill the player in the middle of a recording, and play it again."""
    robot.feed.is_on = False
    for _ in range(2):
        player = robot.start('lpr_ros.player', str(robot.recording), '--wait', '1', '--quiet')
        seen = robot.seen
        robot.wait(lambda seen=seen: robot.seen > seen, 'keyframe of the player', START_S)
        time.sleep(rng.uniform(0.0, LONGEST_MOMENT_S))
        player.kill()
    robot.feed.is_on = True
    return {}


def kill_back_end(robot: Robot, rng: random.Random) -> Tried:
    """Kill pose_graph_node; it gets all keyframes and loops of lpr_node again."""
    robot.wait(lambda: robot.listener.loops, 'a loop')
    robot.graph.kill()
    known = len(robot.listener.loops)
    robot.start_graph()
    robot.wait(
        lambda: robot.graph_size()[1] >= known, f'{known} loops in the graph again'
    )
    return {'loops_known_again': known}


def full_disk(robot: Robot, rng: random.Random) -> Tried:
    """Leave no room for the map, and then some again."""
    return _no_save(
        robot,
        lambda: robot.disk.fill(robot.node.pid),
        lambda: robot.disk.free(robot.node.pid),
        ('No space left', 'File too large'),
    )


def read_only_map(robot: Robot, rng: random.Random) -> Tried:
    """Let nobody write to the map's disk, and then again."""
    return _no_save(
        robot,
        lambda: robot.disk.set_writable(False),
        lambda: robot.disk.set_writable(True),
        ('Read-only', 'Permission denied'),
    )


def odometry_gone(robot: Robot, rng: random.Random) -> Tried:
    """Give no odometry for a minute of stamps to a robot that stands; the session goes on."""
    feed, session = robot.feed, robot.listener.status['session']
    before = robot.listener.count('dropped.no_odometry')
    feed.is_moving = feed.has_odometry = False
    feed.stamp_step_s = 10.0 * PERIOD_S
    end_ns = feed.stamp_ns + int(MINUTE_S * NS_PER_S)
    robot.wait(lambda: feed.stamp_ns >= end_ns, 'end of the minute')
    feed.stamp_step_s = PERIOD_S
    feed.is_moving = feed.has_odometry = True
    robot.wait_for_keyframes()
    dropped = robot.listener.count('dropped.no_odometry') - before
    _expect(dropped > 0, 'scans without odometry were not counted')
    _expect(robot.listener.status['session'] == session, 'the session did not go on')
    return {'scans_dropped': dropped}


def clock_ahead(robot: Robot, rng: random.Random) -> Tried:
    """Set the stamps ahead by up to an hour; the session goes on."""
    session = robot.listener.status['session']
    robot.feed.stamp_ns += int(rng.uniform(0.01, 1.0) * HOUR_NS)
    robot.wait_for_keyframes()
    _expect(robot.listener.status['session'] == session, 'the session did not go on')
    return {}


def clock_back(robot: Robot, rng: random.Random) -> Tried:
    """Set the stamps back by up to an hour; a new session begins."""
    sessions = robot.listener.count('sessions')
    robot.feed.stamp_ns -= int(rng.uniform(0.01, 1.0) * HOUR_NS)
    robot.wait_for_keyframes()
    robot.wait(lambda: robot.listener.count('sessions') > sessions, 'a new session')
    return {}


def second_node(robot: Robot, rng: random.Random) -> Tried:
    """Start another node on the same map: it runs, but refuses to write; then kill it."""
    second = robot.start('lpr_ros.node', *robot.node_arguments('-r', '__node:=second'))
    try:
        robot.wait(lambda: 'listening to' in second.output, 'start of the second node', START_S)
        holder = f'kept by process {robot.node.pid}'
        _expect(holder in second.output, f'the second node did not say {holder!r}')
        try:
            robot.listener.call('second/save_map')
            raise LprError('the second node wrote the map')
        except LprError as error:
            _expect(holder in str(error), f'save_map of the second node: {error}')
    finally:
        second.kill()
    return {}


def verification_hangs(robot: Robot, rng: random.Random) -> Tried:
    """Stop the process that verifies: it is replaced, and the next candidates are verified."""
    listener = robot.listener
    verified = listener.count('verified')
    robot.wait(lambda: listener.count('verified') > verified, 'verification')
    before = listener.count('dropped.verification')
    os.kill(robot.verifier_pid(), signal.SIGSTOP)
    robot.wait(
        lambda: listener.count('dropped.verification') > before, 'end of a hanging verification'
    )
    verified = listener.count('verified')
    robot.wait(lambda: listener.count('verified') > verified, 'verification by a new process')
    return {}


def _no_save(
    robot: Robot, hinder: Callable[[], None], allow: Callable[[], None], reasons: tuple[str, ...]
) -> Tried:
    """Make saving fail and succeed again; the map of before stays meanwhile."""
    listener = robot.listener
    hinder()
    try:
        robot.wait(lambda: listener.status.get('map_error'), 'a save that fails')
        said = listener.status['map_error']
        _expect(any(reason in said for reason in reasons), f'map_error is {said!r}')
        before = robot.read_map()
        robot.wait_for_keyframes()
        _expect(robot.read_map() == before, 'the map changed')
    finally:
        allow()
    robot.wait(
        lambda: not listener.status.get('map_error') and listener.count('map_keyframes') > before,
        'a save that succeeds',
    )
    return {}


def _expect(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise LprError(otherwise)


FAULTS: dict[str, Callable[[Robot, random.Random], Tried]] = {
    'kill -9 of lpr_node': kill_node,
    'kill -9 of lpr_player': kill_player,
    'kill -9 of pose_graph_node': kill_back_end,
    'full disk': full_disk,
    'read-only map': read_only_map,
    'odometry gone for a minute': odometry_gone,
    'clock jumps ahead': clock_ahead,
    'clock jumps back': clock_back,
    'second node on the map': second_node,
    'verification hangs': verification_hangs,
}
