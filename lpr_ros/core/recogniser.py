"""The first half of the pipeline: scan to keyframe, descriptor, matches and candidates.

It is quick and steady; what is slow and depends on what was found is the loop closer's.
"""

from dataclasses import dataclass, field
import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.calibration import Calibration
from lpr_ros.core.clock import CLOCK_JUMP_NS
from lpr_ros.core.database import PlaceDatabase, free_name
from lpr_ros.core.errors import CloudError, DatabaseError, ScanError
from lpr_ros.core.keyframes import KeyframeConfig, Keyframer
from lpr_ros.core.place_table import checked_pose
from lpr_ros.core.records import Keyframe, Match, Scan
from lpr_ros.core.stopwatch import Stopwatch
from lpr_ros.core.support import Candidate, SequenceSupport, SupportConfig


class Describes(Protocol):
    """What the recogniser needs of a describer."""

    dim: int
    fingerprint: str
    calibration: Calibration | None

    def describe(self, points: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the (D,) descriptor of (N, 3) points."""


@dataclass(frozen=True, eq=False)
class Sighting:
    """A keyframe, what it looks like among those before it, and what of that to verify."""

    keyframe: Keyframe
    matches: tuple[Match, ...]
    candidates: tuple[Candidate, ...]
    places: tuple[Keyframe, ...]  # of the candidates, so that verifying needs no database
    seconds: dict[str, float] = field(default_factory=dict)  # by stage


class PlaceRecogniser:
    """Takes the scans of one robot in order of time; query before add. For one thread."""

    def __init__(
        self,
        keyframes: KeyframeConfig,
        support: SupportConfig,
        describer: Describes,
        database: PlaceDatabase,
        session: str,
        jump_m: float = math.inf,
    ):
        self.database = database
        self.jump_m = jump_m  # a longer step between two scans begins a new session
        self.keyframer = Keyframer(keyframes)
        self.support = SequenceSupport(support)
        self._describer = describer
        self._name = session
        self.start_session()

    def start_session(self) -> None:
        """Begin a new session: from here on poses have nothing to do with those before."""
        self.session = free_name(self._name, set(self.database.sessions))
        self.keyframer = Keyframer(self.keyframer.config)
        self._newest_ns: int | None = None
        self._newest_T: NDArray[np.float64] | None = None

    def add(self, scan: Scan) -> Sighting | None:
        """Return what the scan shows if it completes a keyframe; ScanError leaves it out."""
        watch = Stopwatch()
        check_scan(scan)
        self._check_stamp(scan.stamp_ns)
        self._check_step(scan)
        keyscan = self.keyframer.add(scan)
        if keyscan is None:
            return None
        watch.lap('keyframe')
        try:
            descriptor = self._describer.describe(keyscan.points)
        except CloudError as error:
            raise ScanError('cloud', str(error)) from error
        watch.lap('describe')
        keyframe = self.database.make_keyframe(
            descriptor,
            keyscan.points,
            session=self.session,
            stamp_ns=keyscan.stamp_ns,
            T_odom_sensor=keyscan.T_odom_sensor,
        )
        watch.lap('store')
        matches = self.database.query(keyframe)
        candidates = self.support.candidates(keyframe, matches, self.database.place)
        places = tuple(self.database[c.match.keyframe_id] for c in candidates)
        watch.lap('search')
        self.database.add(keyframe)
        watch.lap('store')
        return Sighting(keyframe, tuple(matches), tuple(candidates), places, watch.seconds)

    def _check_stamp(self, stamp_ns: int) -> None:
        """Refuse a stamp that is not new; a clock that was set back begins a new session."""
        newest_ns = self._newest_ns
        if newest_ns is not None and stamp_ns <= newest_ns:
            if newest_ns - stamp_ns < CLOCK_JUMP_NS:
                raise ScanError(
                    'stamp', f'scan at {stamp_ns} ns, expected one after the last, {newest_ns} ns'
                )
            self.start_session()
        self._newest_ns = stamp_ns

    def _check_step(self, scan: Scan) -> None:
        """Begin a new session where odometry jumps: it no longer tells where the past was."""
        T, T_before = scan.T_odom_sensor, self._newest_T
        if T is None:
            return
        if T_before is not None and np.linalg.norm(T[:3, 3] - T_before[:3, 3]) > self.jump_m:
            self.start_session()
            self._newest_ns = scan.stamp_ns
        self._newest_T = T


def check_scan(scan: Scan) -> None:
    """Refuse a scan without points, with points that are none, or with a pose that is none."""
    points, T = scan.points, scan.T_odom_sensor
    if points.ndim != 2 or points.shape[1] != 3 or len(points) == 0:
        raise ScanError('cloud', f'cloud of shape {points.shape}, expected (N, 3), N above 0')
    if not np.isfinite(points).all():
        bad = int((~np.isfinite(points)).any(axis=1).sum())
        raise ScanError('cloud', f'{bad} of {len(points)} points are not finite, expected none')
    try:
        if T is not None:
            checked_pose(T)
    except DatabaseError as error:
        raise ScanError('odometry', str(error)) from error
