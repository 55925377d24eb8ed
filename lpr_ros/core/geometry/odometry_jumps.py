"""Jumps of odometry, detected between its own messages, however few scans are processed."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.timing import CLOCK_JUMP_NS, NS_PER_S

MAX_STEP_M = 20.0
MAX_ACCELERATION_M_S2 = 3.0
MAX_SPEED_M_S = 100.0  # assumed until two messages tell the speed


@dataclass(frozen=True)
class OdometrySegment:
    """Odometry without a jump: its poses share one frame."""

    number: int = 0
    reason: str = ''  # what ended the segment before; '' for the first


class JumpDetector:
    """Assigns the poses of an odometry source, in order of arrival, to segments.

    A step is a jump if it is more than `max_step_m` longer than a vehicle could have driven since
    the last message, from its speed then: 100 m without messages at 10 m/s are no jump, 100 m
    between two messages are one. A step back in time by CLOCK_JUMP_NS is one, too.
    """

    def __init__(self, max_step_m: float = MAX_STEP_M):
        self.max_step_m = max_step_m  # may be replaced at any time
        self._segment = OdometrySegment()
        self._stamp_ns: int | None = None
        self._T: NDArray[np.float64] = np.eye(4)
        self._speed_m_s = MAX_SPEED_M_S

    def add(self, stamp_ns: int, T: NDArray[np.float64]) -> OdometrySegment | None:
        """Return the segment of the next pose; None if it is out of order and ignored."""
        speed_m_s = MAX_SPEED_M_S
        if self._stamp_ns is not None:
            elapsed_s = (stamp_ns - self._stamp_ns) / NS_PER_S
            step_m = float(np.linalg.norm(T[:3, 3] - self._T[:3, 3]))
            if stamp_ns <= self._stamp_ns:
                if self._stamp_ns - stamp_ns < CLOCK_JUMP_NS:
                    return None
                self._start_segment(f'clock set back from {self._stamp_ns} ns to {stamp_ns} ns')
            elif step_m > self.max_step_m + self._drivable_m(elapsed_s):
                self._start_segment(
                    f'odometry jump of {step_m:.1f} m between {self._stamp_ns} ns and '
                    f'{stamp_ns} ns'
                )
            else:
                # Two messages within a microsecond tell no speed.
                speed_m_s = min(step_m / elapsed_s, MAX_SPEED_M_S)
        self._stamp_ns, self._T, self._speed_m_s = stamp_ns, T, speed_m_s
        return self._segment

    def break_off(self, reason: str) -> None:
        """Start a segment with the next pose, however near it is."""
        self._start_segment(reason)
        self._stamp_ns = None

    def _drivable_m(self, elapsed_s: float) -> float:
        return self._speed_m_s * elapsed_s + 0.5 * MAX_ACCELERATION_M_S2 * elapsed_s**2

    def _start_segment(self, reason: str) -> None:
        self._segment = OdometrySegment(self._segment.number + 1, reason)
