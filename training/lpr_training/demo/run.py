"""Play a drive to lpr_node and pose_graph_node, each in its own process."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
import time

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from lpr_ros.conversions.poses import pose_from_message
from lpr_ros.core.timing import stamp_ns
from lpr_ros.core.types import LoopClosure
from lpr_training.demo.drives import DemoDrive
from lpr_training.harness.listener import Listener, wait_for
from lpr_training.harness.processes import Program, cpu_seconds, ros_arguments, use_own_domain

START_TIMEOUT_S = 120.0  # importing torch takes long on a busy machine
FINISH_TIMEOUT_S = 120.0


@dataclass(frozen=True, eq=False)
class Played:
    """What the nodes published during a drive."""

    map_path: Path
    loops: list[LoopClosure]
    corrected: dict[int, NDArray[np.float64]]  # T_map_sensor by keyframe
    status: dict[str, str]  # latest diagnostics of lpr_node
    optimized: str  # response of the final optimization
    duration_s: float  # of playback
    cpu_s: float  # of lpr_node and its verification process during playback

    def p95_ms(self, stage: str) -> float:
        """Return the 95th percentile of a latency that lpr_node reports."""
        return float(self.status.get(f'{stage}_p95_ms', 'nan'))


def play(drive: DemoDrive, folder: Path) -> Played:
    """Start the processes, show progress, and return the results."""
    use_own_domain()
    map_path = (folder / 'places.map').absolute()
    parameters = {
        'autostart': True,
        'map_path': map_path,
        'session.name': 'demo',
        **drive.parameters,
    }
    with ExitStack() as stack:
        listener = Listener()
        stack.callback(listener.close)

        def start(module: str, *arguments: str) -> Program:
            log = folder / f'{module.rpartition(".")[2]}.log'
            program = Program(module, arguments, log)
            stack.callback(program.stop)
            return program

        node = start('lpr_ros.lpr_node', *ros_arguments(parameters))
        graph = start('lpr_ros.pose_graph_node', *ros_arguments(drive.graph_parameters))
        for topic, count in (('points', 1), ('lpr_node/loop_closures', 2)):
            wait_for(
                lambda topic=topic, count=count: (
                    _check(node, graph) or listener.subscribers(topic) >= count
                ),
                f'subscribers of {topic}',
                START_TIMEOUT_S,
            )
        started_s, cpu_before_s = time.monotonic(), cpu_seconds(node.pid)
        player = start(
            'lpr_ros.player', str(drive.path), '--rate', str(drive.rate), '--wait', '1', '--quiet'
        )
        _watch(drive, listener, player, [node, graph])
        duration_s = time.monotonic() - started_s
        _wait_until_idle(listener)
        cpu_s = cpu_seconds(node.pid) - cpu_before_s
        optimized = listener.call('pose_graph_node/optimize')
        listener.call('lpr_node/save_map')
        keyframes = listener.count('keyframes')
        wait_for(lambda: listener.corrected and len(listener.corrected.poses) >= keyframes,
                 'corrected path', FINISH_TIMEOUT_S)  # fmt: skip
        time.sleep(1.0)  # the path is published once per second
        return Played(
            map_path,
            listener.standing_loops(),
            _corrected(listener),
            dict(listener.status),
            optimized,
            duration_s,
            cpu_s,
        )


def _check(*programs: Program) -> None:
    for program in programs:
        program.check()


def _watch(drive: DemoDrive, listener: Listener, player: Program, others: list[Program]) -> None:
    """Show progress until playback ends."""
    with tqdm(total=drive.scans, desc=drive.title, unit='scan') as bar:
        while player.is_running:
            _check(*others)
            bar.set_postfix(
                keyframes=listener.count('keyframes'),
                loops=len(listener.standing_loops()),
                p95=f'{listener.status.get("keyframe_p95_ms", "?")} ms',
                refresh=False,
            )
            bar.update(listener.count('scans') - bar.n)
            time.sleep(0.25)


def _wait_until_idle(listener: Listener) -> None:
    """Wait until lpr_node has processed everything: its counters stay equal for a second."""
    previous: tuple[str, ...] = ()
    count = listener.status_count
    end_s = time.monotonic() + FINISH_TIMEOUT_S
    while time.monotonic() < end_s:
        wait_for(
            lambda count=count: listener.status_count > count, 'diagnostics', FINISH_TIMEOUT_S
        )
        count = listener.status_count
        names = ('scans', 'described', 'verified', 'loops', 'verification_queue')
        current = tuple(listener.status.get(name, '0') for name in names)
        if current == previous and current[-1] == '0':
            return
        previous = current


def _corrected(listener: Listener) -> dict[int, NDArray[np.float64]]:
    path = listener.corrected
    if path is None:
        return {}
    return {
        number: pose_from_message(pose.pose)
        for number, pose in enumerate(path.poses)
        if np.isfinite(pose.pose.position.x) and stamp_ns(pose.header)
    }
