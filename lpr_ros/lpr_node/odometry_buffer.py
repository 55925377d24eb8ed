"""Recent odometry, interpolated at the stamps of scans."""

from bisect import bisect_left
from collections import deque
import threading

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import ScanError
from lpr_ros.core.geometry.trajectory import interpolate
from lpr_ros.core.timing import CLOCK_JUMP_NS, NS_PER_S

BUFFER_NS = 10 * NS_PER_S


class OdometryBuffer:
    """Poses in order of time. One thread adds, another waits for the pose at a stamp."""

    def __init__(self, max_gap_s: float):
        self._max_gap_ns = round(max_gap_s * NS_PER_S)
        self._stamps: deque[int] = deque()
        self._poses: deque[NDArray[np.float64]] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def add(self, stamp_ns: int, T_odom_base: NDArray[np.float64]) -> bool:
        """Add a pose; return False if it is out of order and ignored.

        A stamp far in the past is a clock that was set back or a bag that restarted: the buffer
        is cleared.
        """
        with self._changed:
            if self._stamps and stamp_ns <= self._stamps[-1]:
                if self._stamps[-1] - stamp_ns < CLOCK_JUMP_NS:
                    return False
                self._stamps.clear()
                self._poses.clear()
            self._stamps.append(stamp_ns)
            self._poses.append(T_odom_base)
            while self._stamps[-1] - self._stamps[0] > BUFFER_NS:
                self._stamps.popleft()
                self._poses.popleft()
            self._changed.notify_all()
            return True

    def wait_for(self, stamp_ns: int, timeout_s: float) -> NDArray[np.float64]:
        """Return T_odom_base at a stamp, waiting for odometry to reach it; ScanError if not."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._is_decided(stamp_ns), timeout_s)
            if not self._is_decided(stamp_ns):
                newest = f'has reached {self._stamps[-1]} ns' if self._stamps else 'is missing'
                raise ScanError(
                    'no_odometry',
                    f'scan at {stamp_ns} ns: odometry {newest} after waiting {timeout_s} s',
                )
            return self._at(stamp_ns)

    def close(self) -> None:
        """Wake up a `wait_for` in progress."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _is_decided(self, stamp_ns: int) -> bool:
        """Return whether further odometry cannot change the answer.

        A scan far before all odometry may be the first one after the clock was set back.
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
                f'scan at {stamp_ns} ns is in an odometry gap of {end - start} ns, expected at '
                f'most {self._max_gap_ns} ns',
            )
        fraction = (stamp_ns - start) / (end - start)
        return interpolate(self._poses[after - 1], self._poses[after], fraction)
