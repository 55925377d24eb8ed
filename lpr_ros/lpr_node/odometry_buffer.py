"""Odometry of the last seconds, asked for by stamp; who asks too early waits."""

from bisect import bisect_left
from collections import deque
import threading

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.clock import CLOCK_JUMP_NS, NS_PER_S
from lpr_ros.core.errors import ScanError
from lpr_ros.core.geometry import interpolate

KEPT_NS = 10 * NS_PER_S


class OdometryBuffer:
    """Poses in order of time: one thread adds, another asks."""

    def __init__(self, max_gap_s: float):
        self._max_gap_ns = round(max_gap_s * NS_PER_S)
        self._stamps: deque[int] = deque()
        self._poses: deque[NDArray[np.float64]] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def add(self, stamp_ns: int, T_odom_base: NDArray[np.float64]) -> bool:
        """Take a pose; return False where it is not newer than the last and is left out.

        A stamp far back is a clock set back or a bag begun again: what was before is forgotten.
        """
        with self._changed:
            if self._stamps and stamp_ns <= self._stamps[-1]:
                if self._stamps[-1] - stamp_ns < CLOCK_JUMP_NS:
                    return False
                self._stamps.clear()
                self._poses.clear()
            self._stamps.append(stamp_ns)
            self._poses.append(T_odom_base)
            while self._stamps[-1] - self._stamps[0] > KEPT_NS:
                self._stamps.popleft()
                self._poses.popleft()
            self._changed.notify_all()
            return True

    def wait_for(self, stamp_ns: int, timeout_s: float) -> NDArray[np.float64]:
        """Return T_odom_base at a time, as soon as it is known; ScanError if it never is."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._is_settled(stamp_ns), timeout_s)
            if not self._is_settled(stamp_ns):
                newest = f'reaches {self._stamps[-1]} ns' if self._stamps else 'is not there'
                raise ScanError(
                    'no_odometry',
                    f'scan at {stamp_ns} ns: after {timeout_s} s odometry {newest}, expected it '
                    'to reach the scan',
                )
            return self._at(stamp_ns)

    def close(self) -> None:
        """End every wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _is_settled(self, stamp_ns: int) -> bool:
        """Tell whether odometry still to come can change the answer.

        A scan far before all odometry may be the first after a jump back, its odometry behind it.
        """
        if not self._stamps or stamp_ns > self._stamps[-1]:
            return False
        return self._stamps[0] - stamp_ns < CLOCK_JUMP_NS

    def _at(self, stamp_ns: int) -> NDArray[np.float64]:
        after = bisect_left(self._stamps, stamp_ns)
        if self._stamps[after] == stamp_ns:
            return self._poses[after]
        if after == 0:
            raise ScanError(
                'no_odometry',
                f'scan at {stamp_ns} ns is older than the oldest odometry, {self._stamps[0]} ns',
            )
        start, end = self._stamps[after - 1], self._stamps[after]
        if end - start > self._max_gap_ns:
            raise ScanError(
                'no_odometry',
                f'scan at {stamp_ns} ns lies in a gap of odometry of {end - start} ns, expected '
                f'at most {self._max_gap_ns} ns',
            )
        share = (stamp_ns - start) / (end - start)
        return interpolate(self._poses[after - 1], self._poses[after], share)
