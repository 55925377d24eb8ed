"""Check loop closures against ground truth while databases come and go."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
import threading

from nav_msgs.msg import Odometry, Path
import numpy as np
from numpy.typing import NDArray

from lpr_ros.conversions.loops import loop_from_constraint
from lpr_ros.core.geometry.se3 import invert
from lpr_ros.core.timing import stamp_ns
from lpr_ros.core.types import LoopClosure
from lpr_ros.ros_utils.qos import LATCHED, LOOPS
from lpr_training.harness.listener import Listener

CORRECT_M = 1.0
MAX_PENDING = 1000

Poses = Mapping[int, NDArray[np.float64] | None]


@dataclass(frozen=True, eq=False)
class _Pending:
    loop: LoopClosure
    query_ns: int


class LoopCheck:
    """Counts correct and wrong loops.

    A loop names its keyframes by id, and a reset reuses ids. The path of keyframes has the stamps:
    a loop is checked with the first path in which its query id has the stamp of the loop. Loops
    whose database is gone before that stay unchecked.
    """

    def __init__(self, listener: Listener, truth: Poses):
        self.correct = self.wrong = 0
        self.wrong_loops: list[str] = []
        self._truth = truth  # by stamp; None: a scan of no place
        self._pending: deque[_Pending] = deque(maxlen=MAX_PENDING)
        self._received = 0
        self._lock = threading.Lock()
        listener.subscribe(Odometry, 'lpr_node/loop_closures', self._on_loop, LOOPS)
        listener.subscribe(Path, 'lpr_node/keyframes', self._on_path, LATCHED)

    @property
    def unchecked(self) -> int:
        """Return the number of loops that no path could explain."""
        return self._received - self.correct - self.wrong

    def _on_loop(self, message: Odometry) -> None:
        with self._lock:
            self._received += 1
            self._pending.append(_Pending(loop_from_constraint(message), stamp_ns(message.header)))

    def _on_path(self, path: Path) -> None:
        stamps = [stamp_ns(pose.header) for pose in path.poses]
        with self._lock:
            waiting = list(self._pending)
            self._pending.clear()
            for pending in waiting:
                query = pending.loop.query_id
                if query < len(stamps) and stamps[query] == pending.query_ns:
                    self._check(pending, stamps[pending.loop.match_id])
                else:
                    self._pending.append(pending)

    def _check(self, pending: _Pending, match_ns: int) -> None:
        if pending.query_ns not in self._truth or match_ns not in self._truth:
            return  # sent by somebody else
        ends = self._truth[match_ns], self._truth[pending.query_ns]
        error_m = loop_error_m(pending.loop, *ends)
        if error_m <= CORRECT_M:
            self.correct += 1
        else:
            self.wrong += 1
            self.wrong_loops.append(
                f'loop {pending.loop.query_id} to {pending.loop.match_id} (stamps '
                f'{pending.query_ns}, {match_ns}): {error_m:.1f} m off'
            )


def loop_error_m(
    loop: LoopClosure,
    T_world_match: NDArray[np.float64] | None,
    T_world_query: NDArray[np.float64] | None,
) -> float:
    """Return the position error; infinite if a scan shows no place."""
    if T_world_match is None or T_world_query is None:
        return float('inf')
    T_true = invert(T_world_match) @ T_world_query
    return float(np.linalg.norm((loop.T_match_query - T_true)[:3, 3]))
