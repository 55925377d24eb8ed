"""Attack lpr_node and pose_graph_node at random, several attacks at a time.

The nodes run in their own processes over DDS while a simulated robot drives back and forth. Half
of the time every attack is admitted; in between, those that would end the drive, replace its map
or mislead its sensors pause, so that loops are published and can be checked. At the end every scan
the node received must be accounted for, no published loop may be wrong, the map must be readable,
and memory, threads and file descriptors must be what they were at half time, both measured at rest
with an empty map: the heap needs minutes to reach its size. A node that dies or hangs is reported
and restarted.
"""

import argparse
from contextlib import ExitStack
from functools import partial
from pathlib import Path
import random
import tempfile
import threading
import time
from typing import Any

from tqdm import tqdm

from lpr_ros.core.errors import LprError
from lpr_ros.core.markdown import markdown_table, metric_table
from lpr_training.benchmarks.options import add_option
from lpr_training.benchmarks.siege.attacks import ATTACKS, available_attacks, choose_attack
from lpr_training.benchmarks.siege.health import Health, health_growth
from lpr_training.benchmarks.siege.siege import NODE, NodeDiedError, Siege
from lpr_training.harness.accounting import HANDLED, SCANS_LOST, scan_outcomes
from lpr_training.harness.listener import Listener
from lpr_training.harness.processes import use_own_domain
from lpr_training.harness.service_calls import ServiceCalls

ATTACKERS = 3
WARM_UP_FRACTION, MAX_WARM_UP_S = 0.2, 120.0
SILENCE_S = 60.0  # without diagnostics after which the node counts as hanging
POLL_S = 0.5
ATTACK_S, DRIVE_S = 90.0, 90.0  # all attacks; then a drive, there and back more than once
TARGETS = {
    'deaths': '0',
    'failures': '0',
    'unaccounted': '0',
    'unexpected_exceptions': '0',
    'tracebacks': '0',
    'loops_correct': '> 0',
    'loops_wrong': '0',
    'map_unreadable': '0',
    'lpr_node_memory_growth_mb': '< 30',
    'lpr_node_threads_growth': '0',
    'lpr_node_descriptors_growth': '0',
    'pose_graph_node_memory_growth_mb': '< 30',
    'pose_graph_node_threads_growth': '0',
    'pose_graph_node_descriptors_growth': '0',
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_option(parser, '--minutes', 30.0, 'Duration of the attacks')
    add_option(parser, '--seed', 0, 'Seed of the attacks')
    parser.add_argument(
        '--attacks', nargs='+', default=[], metavar='NAME', choices=ATTACKS, help='Such as '
        "'scan flood' (all)",
    )  # fmt: skip


def run(minutes: float = 30.0, seed: int = 0, attacks: list[str] | None = None) -> dict[str, Any]:
    """Lay siege for this many minutes and return the measurements."""
    use_own_domain()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        listener = Listener()
        stack.callback(listener.close)
        siege = Siege(folder, listener)
        stack.callback(siege.robot.close)
        siege.robot.start_all()
        calls = siege.client('siege')
        stop = threading.Event()
        threads = _start_attackers(siege, stop, seed, attacks or available_attacks())
        stack.callback(_join, siege, stop, threads)
        warm_up_s = min(MAX_WARM_UP_S, WARM_UP_FRACTION * minutes * 60.0)
        _besiege(siege, calls, warm_up_s, 'warm-up')
        early = _at_rest(siege, calls)
        siege.keeps_graph = True
        _besiege(siege, calls, minutes * 30.0 - warm_up_s, 'first half')
        siege.baseline = _at_rest(siege, calls)
        _besiege(siege, calls, minutes * 30.0, 'second half')
        return {
            'minutes': minutes,
            'seed': seed,
            'disk': siege.robot.disk.description,
            **_memory(early, 'early'),
            **_memory(siege.baseline, 'half'),
            **_conclude(siege, calls),
        }


def table(result: dict[str, Any]) -> str:
    """Return the measurements and the attacks as markdown tables, then all that failed."""
    attacks = markdown_table(('attack', 'times'), result['attacks'].items())
    ends = [' ... '.join((text[:30], *text.splitlines()[-1:])) for text in result['death_texts']]
    found = [*result['wrong_loops'], *result['failure_texts'], *ends]
    return '\n'.join([metric_table('siege', result, TARGETS), attacks, *found])


def _start_attackers(
    siege: Siege, stop: threading.Event, seed: int, names: list[str]
) -> list[threading.Thread]:
    """Start threads that attack until told to stop, each with its own client and seed."""

    def attack_at_random(number: int) -> None:
        rng = random.Random(f'{seed} {number}')
        calls = siege.client(f'attacker_{number}')
        while not stop.is_set():
            with siege.gate.attack():
                name = choose_attack(names, rng, spare_drive=siege.spares_drive)
                if name is not None:
                    siege.attack(name, partial(ATTACKS[name].run, siege, rng, calls))
            stop.wait(rng.uniform(0.0, 0.5))

    threads = [
        threading.Thread(target=attack_at_random, args=(number,), daemon=True)
        for number in range(ATTACKERS)
    ]
    for thread in threads:
        thread.start()
    return threads


def _join(siege: Siege, stop: threading.Event, threads: list[threading.Thread]) -> None:
    stop.set()
    for thread in threads:
        thread.join(SILENCE_S)


def _besiege(siege: Siege, calls: ServiceCalls, seconds: float, title: str) -> None:
    """Let the attackers work for this long; restart a node that dies or hangs."""
    switch_s = time.monotonic() + ATTACK_S
    listener, end_s = siege.listener, time.monotonic() + seconds
    count, heard_s = listener.status_count, time.monotonic()
    with tqdm(total=round(seconds), desc=title, unit='s') as bar:
        while (left_s := end_s - time.monotonic()) > 0.0:
            time.sleep(min(POLL_S, left_s))
            bar.update(round(seconds - left_s) - bar.n)
            if listener.status_count != count:
                count, heard_s = listener.status_count, time.monotonic()
            is_silent = time.monotonic() - heard_s > SILENCE_S
            if is_silent or not siege.robot.node.is_running:
                siege.recover('no diagnostics' if is_silent else 'died')
                heard_s = time.monotonic()
                bar.write(f'lpr_node {"hangs" if is_silent else "died"}; restarted')
            if time.monotonic() > switch_s:
                switch_s = _switch(siege, calls)
    siege.spares_drive = False


def _switch(siege: Siege, calls: ServiceCalls) -> float:
    """Begin or end a drive that attacks leave alone; return when to switch again."""
    if siege.spares_drive:
        siege.spares_drive = False
        return time.monotonic() + ATTACK_S
    try:
        siege.start_drive(calls)
    except NodeDiedError:
        return time.monotonic()  # after its restart
    except LprError as error:
        siege.fail(f'start of a drive: {error}')
    return time.monotonic() + DRIVE_S


def _at_rest(siege: Siege, calls: ServiceCalls) -> dict[str, Health]:
    """Measure the nodes at rest; empty if lpr_node does not come to rest."""
    try:
        siege.recover_if_dead()
        with siege.quiet(calls):
            return siege.measure(calls)
    except LprError as error:
        siege.fail(f'at rest: {error}')
        return {}


def _memory(measured: dict[str, Health], when: str) -> dict[str, float]:
    return {f'{name}_memory_mb_{when}': found.usage.private_mb for name, found in measured.items()}


def _growth(before: dict[str, Health], after: dict[str, Health]) -> dict[str, float]:
    names = ('lpr_node', 'pose_graph_node')
    parts = [health_growth(name, before.get(name), after.get(name)) for name in names]
    return {key: value for part in parts for key, value in part.items()}


def _conclude(siege: Siege, calls: ServiceCalls) -> dict[str, Any]:
    """Check map, accounting and resources at rest, and that the node still works."""
    status: dict[str, str] = {}
    after: dict[str, Health] = {}
    map_keyframes, unreadable = 0, ''
    try:
        siege.recover_if_dead()
        with siege.quiet(calls):
            success, message = calls.trigger(f'{NODE}/save_map')
            status = dict(siege.listener.status)
            try:
                map_keyframes = siege.robot.read_map()
            except LprError as error:
                unreadable = f'{error} (save_map: {success}, {message})'
            after = siege.measure(calls)
        siege.robot.wait_for_keyframes()
    except LprError as error:
        siege.fail(f'at the end: {error}')
    if unreadable:
        siege.fail(f'map: {unreadable}')
    if map_keyframes != int(status.get('keyframes', 0)):
        siege.fail(f'map: {map_keyframes} keyframes, expected {status.get("keyframes")}')
    if siege.drives and not siege.loops.correct:
        siege.fail(f'no loop could be checked in {siege.drives} drives')
    outcomes = scan_outcomes(status)
    outcomes.pop(SCANS_LOST, None)  # meaningless: attackers share and change frames
    received = int(status.get('scans', 0))
    return {
        'sent': siege.sent + siege.robot.feed.sent,
        'received': received,
        'handled': sum(outcomes.get(name, 0) for name in HANDLED),
        'dropped': sum(n for name, n in outcomes.items() if name not in HANDLED),
        'unaccounted': received - sum(outcomes.values()),
        'drives': siege.drives,
        'loops_correct': siege.loops.correct,
        'loops_wrong': siege.loops.wrong,
        'loops_unchecked': siege.loops.unchecked,
        'map_keyframes': map_keyframes,
        'map_unreadable': int(bool(unreadable)),
        'unexpected_exceptions': int(status.get('faults', 0)),
        'tracebacks': siege.robot.node.output.count('Traceback'),
        'deaths': len(siege.deaths),
        'failures': len(siege.failures),
        **_growth(siege.baseline, after),
        'attacks': dict(sorted(siege.attacks.items())),
        'outcomes': outcomes,
        'wrong_loops': siege.loops.wrong_loops,
        'failure_texts': siege.failures,
        'death_texts': siege.deaths,
        'diagnostics': status,
    }
