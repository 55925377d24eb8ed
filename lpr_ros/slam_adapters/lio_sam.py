"""LIO-SAM: pairs of times on a topic; it registers the scans itself.

It keeps the newest five pairs and works on one in a second, so more than one in a second would be
lost. Its branch for ROS 2 must run with loopClosureEnableFlag: true.
"""

from collections import deque
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from std_msgs.msg import Float64MultiArray

from lpr_ros.backends.base import refuse_other_session
from lpr_ros.core.clock import NS_PER_S
from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import BackendError
from lpr_ros.core.records import LoopClosure, Place

WAITING = 100  # loops; a robot that finds more in a row has many of the same place
# LIO-SAM takes its first keyframe not before the query and its last not after the match: half
# a microsecond keeps the rounding of a double from picking their neighbours.
ROUNDING_NS = 500


@dataclass(frozen=True)
class LioSamConfig(Config):
    """How loops reach LIO-SAM."""

    topic: str = option('lio_loop/loop_closure_detection', 'topic it listens on', fixed=True)
    interval_s: float = option(
        1.0, 'least time between two loops: 1 / loopClosureFrequency of LIO-SAM', unit='s',
        low=0.01, high=60.0, fixed=True,
    )  # fmt: skip


class LioSam:
    """Sends the loops one by one, the oldest first; when too many wait, the oldest fall out."""

    def __init__(self, node: Node, config: LioSamConfig):
        self._node, self._interval_s = node, config.interval_s
        self._publisher = node.create_publisher(Float64MultiArray, config.topic, 5)
        self._waiting: deque[tuple[float, float]] = deque(maxlen=WAITING)
        self._lock = Lock()  # loops come from the worker, the timer from the executor
        self._timer = node.create_timer(
            config.interval_s, self._tick, clock=Clock(clock_type=ClockType.STEADY_TIME)
        )
        self._timer.cancel()

    def publish(
        self, loop: LoopClosure, query: Place, match: Place, T_base_sensor: NDArray[np.float64]
    ) -> None:
        """Send the loop now, or as soon as the interval allows; BackendError when one fell out.

        Of a time before its own LIO-SAM would take its first keyframe, wherever that is.
        """
        refuse_other_session(query, match)
        times = (
            (query.stamp_ns - ROUNDING_NS) / NS_PER_S,
            (match.stamp_ns + ROUNDING_NS) / NS_PER_S,
        )
        with self._lock:
            is_full = len(self._waiting) == WAITING
            self._waiting.append(times)
            if self._timer.is_canceled():
                self._send()
        if is_full:
            raise BackendError(
                f'{WAITING} others wait, of which one in {self._interval_s} s is sent: '
                'the oldest fell out'
            )

    def close(self) -> None:
        """Take the topic off the node."""
        self._node.destroy_timer(self._timer)
        self._node.destroy_publisher(self._publisher)

    def _tick(self) -> None:
        with self._lock:
            if self._waiting:
                self._send()
            else:
                self._timer.cancel()

    def _send(self) -> None:
        self._publisher.publish(Float64MultiArray(data=list(self._waiting.popleft())))
        self._timer.reset()
