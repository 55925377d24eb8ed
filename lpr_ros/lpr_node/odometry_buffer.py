"""Recent odometry, interpolated at the stamps of scans."""

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
import threading

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import ScanError
from lpr_ros.core.geometry.odometry_jumps import MAX_STEP_M, JumpDetector, OdometrySegment
from lpr_ros.core.geometry.trajectory import interpolate
from lpr_ros.core.timing import CLOCK_JUMP_NS, NS_PER_S

BUFFER_NS = 10 * NS_PER_S


@dataclass(frozen=True, eq=False)
class OdometryPose:
    """Odometry at one stamp."""

    T_odom_base: NDArray[np.float64]  # (4, 4)
    segment: OdometrySegment


class OdometryBuffer:
    """Poses in order of time. One thread adds, another waits for the pose at a stamp."""

    def __init__(self, max_gap_s: float, max_step_m: float = MAX_STEP_M):
        self._max_gap_ns = round(max_gap_s * NS_PER_S)
        self._jumps = JumpDetector(max_step_m)
        self._stamps: deque[int] = deque()
        self._poses: deque[OdometryPose] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def configure(self, max_step_m: float) -> None:
        """Use a new limit from the next pose on."""
        self._jumps.max_step_m = max_step_m

    def add(self, stamp_ns: int, T_odom_base: NDArray[np.float64]) -> bool:
        """Add a pose; return False if it is out of order and ignored.

        A stamp far in the past is a clock that was set back or a bag that restarted: the buffer
        is cleared.
        """
        with self._changed:
            segment = self._jumps.add(stamp_ns, T_odom_base)
            if segment is None:
                return False
            if self._stamps and stamp_ns <= self._stamps[-1]:
                self._stamps.clear()
                self._poses.clear()
            self._stamps.append(stamp_ns)
            self._poses.append(OdometryPose(T_odom_base, segment))
            while self._stamps[-1] - self._stamps[0] > BUFFER_NS:
                self._stamps.popleft()
                self._poses.popleft()
            self._changed.notify_all()
            return True

    def break_off(self, reason: str) -> None:
        """Start a segment with the next pose."""
        with self._changed:
            self._jumps.break_off(reason)

    def wait_for(self, stamp_ns: int, timeout_s: float) -> OdometryPose:
        """Return the odometry at a stamp, waiting until it is reached; ScanError if it is not."""
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

    def _at(self, stamp_ns: int) -> OdometryPose:
        after = bisect_left(self._stamps, stamp_ns)
        if self._stamps[after] == stamp_ns:
            return self._poses[after]
        if after == 0:
            raise ScanError(
                'no_odometry',
                f'scan at {stamp_ns} ns is older than the oldest odometry, {self._stamps[0]} ns',
            )
        start, end = self._stamps[after - 1], self._stamps[after]
        first, last = self._poses[after - 1], self._poses[after]
        if end - start > self._max_gap_ns:
            raise ScanError(
                'no_odometry',
                f'scan at {stamp_ns} ns is in an odometry gap of {end - start} ns, expected at '
                f'most {self._max_gap_ns} ns',
            )
        if first.segment is not last.segment:
            raise ScanError('no_odometry', f'scan at {stamp_ns} ns: {last.segment.reason}')
        fraction = (stamp_ns - start) / (end - start)
        return OdometryPose(
            interpolate(first.T_odom_base, last.T_odom_base, fraction), last.segment
        )
