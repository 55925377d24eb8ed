"""Follow one scan from its topic to a published loop closure, and list the files it passes.

    python test/scan_walk.py    rewrites the walk in docs/architecture.md

A hop is a call from one file into another, counted once per pair of files: what a reader who
follows the scan has to open next. Vocabulary that every file uses is left out: the ground floor of
the core, geometry, configuration classes, and the counters of the diagnostics.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Pipe
from pathlib import Path
import re
import sys
import tempfile
import threading
import time
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / 'docs' / 'architecture.md'
PACKAGE = ROOT / 'lpr_ros'
VOCABULARY = re.compile(r'core/[a-z]+\.py|core/geometry/.*|.*/config\.py|.*/diagnostics\.py')
BEGIN, END = '<!-- walk: by test/scan_walk.py -->\n', '<!-- end of walk -->'
TIMEOUT_S = 60.0
IDLE_S = 1.0


@dataclass(frozen=True)
class Hop:
    """The first call from one file into another."""

    caller: str  # file, relative to lpr_ros
    callee: str
    function: str

    def __str__(self) -> str:
        return f'`{self.caller}` → `{self.callee}` `{self.function}`'


def is_vocabulary(file: str) -> bool:
    return bool(VOCABULARY.fullmatch(file)) and file != 'core/pipeline.py'


class Tracer:
    """Records calls between files of the package, in every thread started after `install`."""

    def __init__(self) -> None:
        self.is_on = False
        self._calls: list[tuple[str, str, str]] = []

    def install(self) -> None:
        threading.setprofile(self._on_call)
        sys.setprofile(self._on_call)

    def remove(self) -> None:
        self.is_on = False
        threading.setprofile(None)
        sys.setprofile(None)

    def hops(self) -> list[Hop]:
        found: dict[tuple[str, str], Hop] = {}
        for caller, callee, function in list(self._calls):
            if caller != callee and not is_vocabulary(caller) and not is_vocabulary(callee):
                found.setdefault((caller, callee), Hop(caller, callee, function))
        return list(found.values())

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != 'call' or not self.is_on:
            return
        callee = _file_of(frame)
        if not callee or '<' in frame.f_code.co_name:  # comprehensions and lambdas
            return
        caller: FrameType | None = frame.f_back
        while caller is not None and not _file_of(
            caller
        ):  # through torch and the standard library
            caller = caller.f_back
        if caller is not None:
            name = getattr(frame.f_code, 'co_qualname', frame.f_code.co_name)
            self._calls.append((_file_of(caller), callee, name))


def _file_of(frame: FrameType) -> str:
    name = frame.f_code.co_filename
    return name[len(str(PACKAGE)) + 1 :] if name.startswith(f'{PACKAGE}/') else ''


@contextmanager
def verification_in_a_thread() -> Iterator[None]:
    """Run the child's side of verification in this process, where it can be traced."""
    from lpr_ros.core.loop_closure import worker_process

    class Thread:
        pid = 0

        def kill(self) -> None:
            pass

        def wait(self) -> int:
            return 0

    def start(self: Any) -> None:
        self._has_answered, self._verifications = True, 0
        self._connection, theirs = Pipe()
        self._process = Thread()
        threading.Thread(target=worker_process.serve, args=(theirs,), daemon=True).start()

    before = worker_process.VerificationProcess._start
    worker_process.VerificationProcess._start = start
    try:
        yield
    finally:
        worker_process.VerificationProcess._start = before


def trace_scan() -> list[Hop]:
    """Drive a lap with a real node, and trace the first scan after it that closes a loop."""
    from nav_msgs.msg import Odometry
    from node_rig import SHORT_LAPS, cloud_of, odometry_of
    import rclpy
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.parameter import Parameter
    from sensor_msgs.msg import PointCloud2
    from toy_drive import STEPS_PER_LAP, step, write_weights

    from lpr_ros.lpr_node.node import LprNode
    from lpr_ros.ros_utils.qos import LOOPS

    weights = write_weights(Path(tempfile.mkdtemp()) / 'weights.safetensors')
    settings = {'weights': str(weights), 'autostart': True, **SHORT_LAPS}
    tracer = Tracer()
    rclpy.init()
    tracer.install()  # before the node starts its workers
    try:
        with verification_in_a_thread():
            overrides = [Parameter(name, value=value) for name, value in settings.items()]
            node = LprNode(parameter_overrides=overrides)
            node.start()
            for timer in node.timers:  # the diagnostics are not part of the walk
                timer.cancel()
            robot = rclpy.create_node('robot')
            points = robot.create_publisher(PointCloud2, 'points', 5)
            odometry = robot.create_publisher(Odometry, 'odometry', 100)
            loops: list[Odometry] = []
            robot.create_subscription(Odometry, 'lpr_node/loop_closures', loops.append, LOOPS)
            executor = SingleThreadedExecutor()
            executor.add_node(node)
            executor.add_node(robot)
            until(executor, points.get_subscription_count)
            until(executor, odometry.get_subscription_count)
            for index in range(2 * STEPS_PER_LAP):
                sent = odometry_of(step(index)), cloud_of(step(index))
                wanted = {'described': index + 1}
                if loops:  # the verification of the previous keyframe must have ended
                    until_idle(executor, node)
                    wanted['loops'] = counts_of(node)['loops'] + 1
                    tracer.is_on = True
                odometry.publish(sent[0])
                points.publish(sent[1])
                until(executor, lambda wanted=wanted: has_counted(node, wanted))
                if tracer.is_on:
                    break
            tracer.remove()
            node.destroy_node()
            robot.destroy_node()
    finally:
        tracer.remove()
        rclpy.try_shutdown()
    return tracer.hops()


def counts_of(node: Any) -> dict[str, int]:
    return node._connections.events.statistics.counts()


def until_idle(executor: Any, node: Any) -> None:
    """Wait until nothing was counted for a while."""
    before: dict[str, int] = {}
    while counts_of(node) != before:
        before = counts_of(node)
        end_s = time.monotonic() + IDLE_S
        until(executor, lambda end_s=end_s: time.monotonic() > end_s)


def has_counted(node: Any, wanted: dict[str, int]) -> bool:
    counts = counts_of(node)
    return all(counts.get(name, 0) >= number for name, number in wanted.items())


def until(executor: Any, is_done: Any) -> None:
    end_s = time.monotonic() + TIMEOUT_S
    while not is_done():
        assert time.monotonic() < end_s, 'the scan did not arrive'
        executor.spin_once(timeout_sec=0.05)


def section(hops: list[Hop]) -> str:
    """Return the walk as a numbered list."""
    return ''.join(f'{number}. {hop}\n' for number, hop in enumerate(hops, start=1))


def written() -> str:
    """Return the walk as the page has it."""
    return PAGE.read_text(encoding='utf-8').partition(BEGIN)[2].partition(END)[0]


def main() -> None:
    """Rewrite the page."""
    text = PAGE.read_text(encoding='utf-8')
    before, _, rest = text.partition(BEGIN)
    hops = trace_scan()
    PAGE.write_text(
        before + BEGIN + section(hops) + END + rest.partition(END)[2], encoding='utf-8'
    )
    print(f'{len(hops)} hops between {len({hop.callee for hop in hops}) + 1} files')


if __name__ == '__main__':
    sys.path[:0] = [str(ROOT), str(ROOT / 'training'), str(ROOT / 'test')]
    main()
