"""Time, pose and session of every keyframe, over all sessions."""

from array import array
from bisect import bisect_left, bisect_right

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.database.append_array import AppendArray
from lpr_ros.core.database.session_names import MAX_SESSIONS, check_session_name
from lpr_ros.core.errors import DatabaseError
from lpr_ros.core.geometry.se3 import checked_pose
from lpr_ros.core.types import Locations, Place

BYTES_PER_ENTRY = 24 * 9 // 8  # three columns; arrays over-allocate by one eighth
PLACE_ROW = np.dtype(
    [
        ('session', np.int64),  # index into the session names
        ('order', np.int64),  # position in the session
        ('stamp_ns', np.int64),
        ('traveled_m', np.float64),
        ('T_odom_sensor', np.float64, (4, 4)),  # NaN without odometry
    ]
)
BYTES_PER_PLACE = PLACE_ROW.itemsize + BYTES_PER_ENTRY


class Timeline:
    """Ids, stamps and traveled distances of one session, all ascending."""

    def __init__(self, session: str, number: int):
        self.session = session
        self.number = number
        self.ids = array('q')
        self._stamps_ns = array('q')
        self._traveled_m = array('d')
        self._last_position: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        """Bytes of the three columns."""
        return BYTES_PER_ENTRY * len(self)

    def check_stamps(self, stamps_ns: NDArray[np.int64]) -> None:
        """Raise DatabaseError unless the stamps ascend from the newest stored one."""
        newest = self._stamps_ns[-1:].tolist()
        stamps = np.concatenate([np.array(newest, dtype=np.int64), stamps_ns])
        # Compared, not subtracted: the difference of two int64 can overflow.
        wrong = np.flatnonzero(stamps[1:] <= stamps[:-1])
        if len(wrong):
            before, bad = stamps[wrong[0]], stamps[wrong[0] + 1]
            raise DatabaseError(
                f'session {self.session!r}: stamp {bad} ns, expected one after the newest '
                f'keyframe at {before} ns; a restarted bag needs a new session'
            )

    def traveled_to(self, T_odom_sensor: NDArray[np.float64] | None) -> float:
        """Return the traveled distance at the next keyframe; unchanged without a pose."""
        traveled_m = self._traveled_m[-1] if self.ids else 0.0
        if T_odom_sensor is None or self._last_position is None:
            return traveled_m
        return traveled_m + float(np.linalg.norm(T_odom_sensor[:3, 3] - self._last_position))

    def extend(
        self,
        ids: NDArray[np.int64],
        stamps_ns: NDArray[np.int64],
        traveled_m: NDArray[np.float64],
        positions: NDArray[np.float64],
    ) -> None:
        """Append keyframes; positions are (N, 3), NaN without odometry."""
        self.check_stamps(stamps_ns)
        self._check_traveled(traveled_m)
        self.ids.extend(ids.tolist())
        self._stamps_ns.extend(stamps_ns.tolist())
        self._traveled_m.extend(traveled_m.tolist())
        known = np.flatnonzero(np.isfinite(positions[:, 0]))
        if len(known):
            self._last_position = positions[known[-1]].copy()

    def _check_traveled(self, traveled_m: NDArray[np.float64]) -> None:
        newest = self._traveled_m[-1] if self.ids else 0.0
        if np.any(np.diff(traveled_m, prepend=newest) < 0.0):
            raise DatabaseError(
                f'session {self.session!r}: traveled distance falls below {newest} m, expected '
                'it to ascend'
            )

    def eligible(
        self, stamp_ns: int, traveled_m: float, *, age_ns: int, gap_m: float, gap_keyframes: int
    ) -> int:
        """Return how many of the oldest keyframes are past all exclusion limits.

        A keyframe exactly at a limit is eligible.
        """
        earlier = bisect_left(self._stamps_ns, stamp_ns)
        count = max(0, earlier - gap_keyframes)
        count = min(count, bisect_right(self._stamps_ns, stamp_ns - age_ns))
        if gap_m > 0.0:
            count = min(count, bisect_right(self._traveled_m, traveled_m - gap_m))
        return count


class KeyframeTable:
    """One row per keyframe, and one timeline per session."""

    def __init__(self) -> None:
        self.rows = AppendArray((), PLACE_ROW)
        self._timelines: dict[str, Timeline] = {}
        self._names: list[str] = []

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def sessions(self) -> tuple[str, ...]:
        """Names of the sessions, in order of their first keyframe."""
        return tuple(self._names)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows and the timelines."""
        timelines = list(self._timelines.values())  # a copy: another thread may add one
        return self.rows.nbytes + sum(timeline.nbytes for timeline in timelines)

    def timeline(self, session: str) -> Timeline:
        """Return the timeline of a session, or an empty one for a new session."""
        found = self._timelines.get(session)
        if found is not None:
            return found
        check_session_name(session)
        if len(self._names) >= MAX_SESSIONS:
            raise DatabaseError(
                f'session {session!r}: the map has {len(self._names)} sessions, the maximum; '
                'start a new map'
            )
        return Timeline(session, len(self._names))

    def __getitem__(self, keyframe_id: int) -> Place:
        if not 0 <= keyframe_id < len(self):
            raise DatabaseError(f'keyframe {keyframe_id}, expected 0 to {len(self) - 1}')
        row = self.rows[keyframe_id]
        T = np.array(row['T_odom_sensor'])
        return Place(
            keyframe_id,
            self._names[int(row['session'])],
            int(row['order']),
            int(row['stamp_ns']),
            T if np.isfinite(T[0, 0]) else None,
            float(row['traveled_m']),
        )

    def locations(self, ids: NDArray[np.int64]) -> Locations:
        """Return where these keyframes are."""
        rows = self.rows.take(ids)
        return Locations(rows['session'], rows['traveled_m'], rows['T_odom_sensor'][:, :3, 3])

    def extend(self, rows: NDArray[np.void], sessions: list[str]) -> None:
        """Append rows whose 'session' is an index into `sessions`; set their 'order'."""
        numbered = rows.copy()
        ids = np.arange(len(self), len(self) + len(rows))
        for number in np.unique(rows['session']).tolist():
            chosen = rows['session'] == number
            timeline = self.timeline(sessions[number])
            numbered['session'][chosen] = timeline.number
            first = len(timeline)
            numbered['order'][chosen] = np.arange(first, first + int(chosen.sum()))
            positions = rows['T_odom_sensor'][chosen][:, :3, 3]
            stamps_ns, traveled_m = rows['stamp_ns'][chosen], rows['traveled_m'][chosen]
            timeline.extend(ids[chosen], stamps_ns, traveled_m, positions)
            if not first:
                self._names.append(timeline.session)
                self._timelines[timeline.session] = timeline
        self.rows.extend(numbered)


def place_row(
    stamp_ns: int, traveled_m: float, T_odom_sensor: NDArray[np.float64] | None
) -> NDArray[np.void]:
    """Return a (1,) row of session 0."""
    row = np.zeros(1, dtype=PLACE_ROW)
    row['stamp_ns'] = stamp_ns
    row['traveled_m'] = traveled_m
    row['T_odom_sensor'] = np.nan if T_odom_sensor is None else checked_pose(T_odom_sensor)
    return row
