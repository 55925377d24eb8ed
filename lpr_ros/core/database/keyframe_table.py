"""When and where every keyframe was taken, over all sessions."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lpr_ros.core.errors import DatabaseError
from lpr_ros.core.records import Place
from lpr_ros.core.row_blocks import RowBlocks
from lpr_ros.core.timeline import BYTES_PER_ENTRY, Timeline

# Little-endian: this is also how a map file holds it. T is NaN without odometry.
PLACE_ROW = np.dtype([
    ('session', '<i8'),
    ('order', '<i8'),
    ('stamp_ns', '<i8'),
    ('travelled_m', '<f8'),
    ('T_odom_sensor', '<f8', (4, 4)),
])
BYTES_PER_PLACE = PLACE_ROW.itemsize + BYTES_PER_ENTRY
MOST_SKEW = 1e-3  # of a rotation written with few digits


class PlaceTable:
    """One row per keyframe, and a timeline per session."""

    def __init__(self) -> None:
        self.rows = RowBlocks((), PLACE_ROW)
        self._timelines: dict[str, Timeline] = {}

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def sessions(self) -> tuple[str, ...]:
        """Names of the sessions, in order of their first keyframe."""
        return tuple(self._timelines)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows and the timelines."""
        lines = list(self._timelines.values())  # at once: another thread may begin a session
        return self.rows.nbytes + sum(line.nbytes for line in lines)

    def timeline(self, session: str) -> Timeline:
        """Return a session's timeline; that of an unknown session is empty."""
        return self._timelines.get(session) or Timeline(session, len(self._timelines))

    def __getitem__(self, keyframe_id: int) -> Place:
        if not 0 <= keyframe_id < len(self):
            raise DatabaseError(f'keyframe {keyframe_id}, expected 0 to {len(self) - 1}')
        row = self.rows[keyframe_id]
        T = np.array(row['T_odom_sensor'])
        return Place(
            keyframe_id,
            self.sessions[int(row['session'])],
            int(row['order']),
            int(row['stamp_ns']),
            T if np.isfinite(T[0, 0]) else None,
            float(row['travelled_m']),
        )

    def extend(self, rows: NDArray[np.void], sessions: list[str]) -> None:
        """Add rows whose 'session' numbers the names of `sessions`; 'order' is set here."""
        numbered = rows.copy()
        ids = np.arange(len(self), len(self) + len(rows))
        for number in np.unique(rows['session']).tolist():
            chosen = rows['session'] == number
            line = self.timeline(sessions[number])
            numbered['session'][chosen] = line.number
            numbered['order'][chosen] = np.arange(len(line), len(line) + int(chosen.sum()))
            positions = rows['T_odom_sensor'][chosen][:, :3, 3]
            stamps_ns, travelled_m = rows['stamp_ns'][chosen], rows['travelled_m'][chosen]
            line.extend(ids[chosen], stamps_ns, travelled_m, positions)
            self._timelines[line.session] = line
        self.rows.extend(numbered)


def place_row(
    stamp_ns: int, travelled_m: float, T_odom_sensor: NDArray[np.float64] | None
) -> NDArray[np.void]:
    """Return a (1,) row; its session is number 0 of the names that go with it."""
    row = np.zeros(1, dtype=PLACE_ROW)
    row['stamp_ns'] = stamp_ns
    row['travelled_m'] = travelled_m
    row['T_odom_sensor'] = np.nan if T_odom_sensor is None else checked_pose(T_odom_sensor)
    return row


def checked_pose(T_odom_sensor: ArrayLike) -> NDArray[np.float64]:
    """Return a pose as (4, 4) float64, or say what is wrong with it."""
    T = np.array(T_odom_sensor, dtype=np.float64)
    if T.shape != (4, 4) or not np.isfinite(T).all():
        raise DatabaseError(f'pose {T.tolist()}, expected 4 x 4 finite numbers')
    R = T[:3, :3]
    skew = float(np.abs(R @ R.T - np.eye(3)).max())
    if skew > MOST_SKEW or np.linalg.det(R) < 0.0:
        raise DatabaseError(f'pose {T.tolist()}, expected a rotation, it is {skew:.3g} off one')
    return T
