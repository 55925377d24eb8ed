"""One session's keyframes in order of time, and which of them are too recent to match."""

from array import array
from bisect import bisect_left, bisect_right

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatabaseError

BYTES_PER_ENTRY = 24 * 9 // 8  # three columns; arrays grow by an eighth


class Timeline:
    """Ids, stamps and distances travelled of one session, all ascending."""

    def __init__(self, session: str, number: int):
        self.session = session
        self.number = number
        self.ids = array('q')
        self._stamps_ns = array('q')
        self._travelled_m = array('d')
        self._last_position: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        """Bytes of the three columns."""
        return BYTES_PER_ENTRY * len(self)

    def check_stamps(self, stamps_ns: NDArray[np.int64]) -> None:
        """Refuse stamps that are not each after the one before and after the newest held."""
        newest = self._stamps_ns[-1:].tolist()
        stamps = np.concatenate([np.array(newest, dtype=np.int64), stamps_ns])
        wrong = np.flatnonzero(np.diff(stamps) <= 0)
        if len(wrong):
            before, bad = stamps[wrong[0]], stamps[wrong[0] + 1]
            raise DatabaseError(
                f'session {self.session!r}: stamp {bad} ns, expected one after the newest '
                f'keyframe at {before} ns; a bag that starts again is a new session'
            )

    def travelled_to(self, T_odom_sensor: NDArray[np.float64] | None) -> float:
        """Return the distance travelled if the next keyframe is here; it stays without a pose."""
        travelled_m = self._travelled_m[-1] if self.ids else 0.0
        if T_odom_sensor is None or self._last_position is None:
            return travelled_m
        return travelled_m + float(np.linalg.norm(T_odom_sensor[:3, 3] - self._last_position))

    def extend(
        self,
        ids: NDArray[np.int64],
        stamps_ns: NDArray[np.int64],
        travelled_m: NDArray[np.float64],
        positions: NDArray[np.float64],
    ) -> None:
        """Add the next keyframes; positions are (N, 3), NaN without odometry."""
        self.check_stamps(stamps_ns)
        self.ids.extend(ids.tolist())
        self._stamps_ns.extend(stamps_ns.tolist())
        self._travelled_m.extend(travelled_m.tolist())
        known = np.flatnonzero(np.isfinite(positions[:, 0]))
        if len(known):
            self._last_position = positions[known[-1]].copy()

    def eligible(
        self, stamp_ns: int, travelled_m: float, *, age_ns: int, gap_m: float, gap_keyframes: int
    ) -> int:
        """Return how many of the first keyframes are earlier and not recent by any rule.

        A keyframe exactly as old or as far back as the rule says is not recent.
        """
        earlier = bisect_left(self._stamps_ns, stamp_ns)
        count = max(0, earlier - gap_keyframes)
        count = min(count, bisect_right(self._stamps_ns, stamp_ns - age_ns))
        if gap_m > 0.0:
            count = min(count, bisect_right(self._travelled_m, travelled_m - gap_m))
        return count
