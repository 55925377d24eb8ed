"""LIO-SAM: pairs of stamps on a topic; LIO-SAM registers the two scans itself.

LIO-SAM queues five pairs and processes one per second, so a faster rate would lose some. Its ROS 2
branch must run with loopClosureEnableFlag: true. It cannot take back a loop closure: one that is
retracted is dropped if it still waits here, and stays in the graph of LIO-SAM otherwise.
"""

from collections import deque
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from std_msgs.msg import Float64MultiArray

from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import AdapterError
from lpr_ros.core.timing import NS_PER_S
from lpr_ros.core.types import LoopClosure, Place
from lpr_ros.slam_adapters.base import require_same_session

QUEUE_SIZE = 100  # a longer backlog holds many loops of the same place
# LIO-SAM picks its first keyframe at or after the query stamp and its last at or before the match
# stamp. Half a microsecond of margin keeps double rounding from selecting a neighbor.
ROUNDING_NS = 500


@dataclass(frozen=True)
class LioSamConfig(Config):
    """Adapter for LIO-SAM."""

    topic: str = option(
        'lio_loop/loop_closure_detection',
        'Topic on which LIO-SAM receives loop closures',
        fixed=True,
    )
    interval_s: float = option(
        1.0,
        'Minimum interval between loop closures sent to LIO-SAM; set it to 1 / its '
        'loopClosureFrequency',
        unit='s',
        low=0.01,
        high=60.0,
        fixed=True,
    )


@dataclass(frozen=True)
class _Queued:
    key: tuple[int, int, bytes]  # of the loop closure
    times: tuple[float, float]  # of query and match, seconds


class LioSam:
    """Sends queued loop closures at a limited rate, oldest first."""

    def __init__(self, node: Node, config: LioSamConfig):
        self._node, self._interval_s = node, config.interval_s
        self._publisher = node.create_publisher(Float64MultiArray, config.topic, 5)
        self._queue: deque[_Queued] = deque(maxlen=QUEUE_SIZE)
        self._lock = Lock()  # loop closures come from the worker, the timer from the executor
        self._timer = node.create_timer(
            config.interval_s, self._on_timer, clock=Clock(clock_type=ClockType.STEADY_TIME)
        )
        self._timer.cancel()

    def publish(
        self, loop: LoopClosure, query: Place, match: Place, T_base_sensor: NDArray[np.float64]
    ) -> None:
        """Send the loop closure now, or as soon as the interval allows.

        A stamp before LIO-SAM's own start would select its first keyframe, a wrong loop closure.
        AdapterError if the queue is full and the oldest loop closure was dropped.
        """
        require_same_session(query, match)
        times = (
            (query.stamp_ns - ROUNDING_NS) / NS_PER_S,
            (match.stamp_ns + ROUNDING_NS) / NS_PER_S,
        )
        with self._lock:
            is_full = len(self._queue) == QUEUE_SIZE
            self._queue.append(_Queued(loop.key, times))
            if self._timer.is_canceled():
                self._send()
        if is_full:
            raise AdapterError(
                f'queue full: {QUEUE_SIZE} loop closures waiting, one sent every '
                f'{self._interval_s} s; the oldest was dropped'
            )

    def retract(
        self, loop: LoopClosure, query: Place, match: Place, T_base_sensor: NDArray[np.float64]
    ) -> None:
        """Drop a loop closure that has not been sent yet; AdapterError if it has."""
        with self._lock:
            waiting = [queued for queued in self._queue if queued.key == loop.key]
            for queued in waiting:
                self._queue.remove(queued)
        if not waiting:
            raise AdapterError(
                'LIO-SAM keeps it if it accepted it: it cannot remove a loop closure'
            )

    def close(self) -> None:
        """Destroy the timer and the publisher."""
        self._node.destroy_timer(self._timer)
        self._node.destroy_publisher(self._publisher)

    def _on_timer(self) -> None:
        with self._lock:
            if self._queue:
                self._send()
            else:
                self._timer.cancel()

    def _send(self) -> None:
        self._publisher.publish(Float64MultiArray(data=list(self._queue.popleft().times)))
        self._timer.reset()
