"""The first half of the pipeline: scan to keyframe, descriptor, matches and candidates.

Its run time is short and predictable; everything slow is in the loop closer.
"""

from dataclasses import dataclass

from lpr_ros.core.config import Config, option
from lpr_ros.core.database.place_database import PlaceDatabase
from lpr_ros.core.database.session_names import (
    MAX_BASE_NAME_BYTES,
    check_session_name,
    unique_session_name,
)
from lpr_ros.core.errors import CloudError, ConfigError, DatabaseError, ScanError
from lpr_ros.core.geometry.odometry_jumps import MAX_STEP_M
from lpr_ros.core.geometry.odometry_noise import OdometryNoiseConfig
from lpr_ros.core.geometry.points import check_points
from lpr_ros.core.geometry.se3 import checked_pose
from lpr_ros.core.retrieval.keyframing import KeyframeConfig, Keyframer
from lpr_ros.core.retrieval.match_probability import RANKED, MatchProbability
from lpr_ros.core.retrieval.sequence_filter import SequenceFilter, SequenceFilterConfig
from lpr_ros.core.timing import CLOCK_JUMP_NS, MAX_STAMP_NS, Stopwatch
from lpr_ros.core.types import DescriptorExtractor, Keyframe, KeyframeQuery, Match, Scan

FIRST_SESSION = 'first scan'  # why the first session starts


@dataclass(frozen=True)
class SessionConfig(Config):
    """Sessions: the poses of a session share one odometry frame."""

    name: str = option(
        'robot', 'Name of this robot and run in the map, up to 255 bytes', fixed=True
    )
    max_step_m: float = option(
        MAX_STEP_M,
        'A new session starts when odometry moves between two messages by more than this beyond '
        'what its speed explains',
        unit='m',
        low=0.0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            check_session_name(self.name, MAX_BASE_NAME_BYTES)
        except DatabaseError as error:
            raise ConfigError(f'SessionConfig.name: {error}') from error


class PlaceRecognizer:
    """Processes the scans of one robot in order of time, in one thread."""

    def __init__(
        self,
        session: SessionConfig,
        keyframes: KeyframeConfig,
        sequence: SequenceFilterConfig,
        odometry_noise: OdometryNoiseConfig,
        extractor: DescriptorExtractor,
        database: PlaceDatabase,
        session_reason: str = FIRST_SESSION,
    ):
        self.database = database
        self._extractor = extractor
        self._session_config = session
        self._keyframer = Keyframer(keyframes)
        self._sequence_filter = SequenceFilter(sequence)
        self._match_probability = MatchProbability(database, odometry_noise)
        self._newest_ns: int | None = None
        self._segment: int | None = None  # of the odometry; None before the first scan
        self._start_session(session_reason)

    def configure(
        self,
        session: SessionConfig,
        keyframes: KeyframeConfig,
        sequence: SequenceFilterConfig,
        odometry_noise: OdometryNoiseConfig,
    ) -> None:
        """Use new settings from the next scan on."""
        self._session_config = session
        self._keyframer.config = keyframes
        self._sequence_filter.config = sequence
        self._match_probability.odometry_noise = odometry_noise

    def _start_session(self, reason: str) -> None:
        """Start a new session: poses from here on are unrelated to those before."""
        self.session = unique_session_name(self._session_config.name, set(self.database.sessions))
        self._session_reason = reason  # until its first keyframe tells it
        self._keyframer = Keyframer(self._keyframer.config)

    @property
    def known_wrong_matches(self) -> int:
        """Number of matches from which probabilities were learned; enough at 100."""
        return self._match_probability.statistics.known_wrong

    def add(self, scan: Scan) -> KeyframeQuery | None:
        """Process one scan; return the query of the keyframe it completes, if it does.

        The database is queried before the keyframe is added: no scan matches itself. ScanError:
        the scan was skipped.
        """
        watch = Stopwatch()
        check_scan(scan)
        if reason := self._break_before(scan):
            self._start_session(reason)
        self._newest_ns, self._segment = scan.stamp_ns, scan.odometry_segment
        keyscan = self._keyframer.add(scan)
        if keyscan is None:
            return None
        watch.lap('keyframe')
        try:
            descriptor = self._extractor.describe(keyscan.points)
        except CloudError as error:
            raise ScanError('cloud', str(error)) from error
        watch.lap('describe')
        try:
            keyframe = self.database.make_keyframe(
                descriptor,
                keyscan.points,
                session=self.session,
                stamp_ns=keyscan.stamp_ns,
                T_odom_sensor=keyscan.T_odom_sensor,
            )
        except DatabaseError as error:  # e.g. the maximum number of sessions
            raise ScanError('database', str(error)) from error
        watch.lap('store')
        matches = self._match(keyframe)
        places = [self.database.place(match.keyframe_id) for match in matches]
        candidates = self._sequence_filter.candidates(keyframe, matches, places)
        clouds = tuple(self.database[c.match.keyframe_id] for c in candidates)
        watch.lap('search')
        self.database.add(keyframe)
        watch.lap('store')
        session_reason, self._session_reason = self._session_reason, ''
        return KeyframeQuery(
            keyframe,
            tuple(matches),
            tuple(candidates),
            clouds,
            watch.seconds,
            session_reason,
        )

    def _match(self, keyframe: Keyframe) -> list[Match]:
        """Return the nearest eligible keyframes with their probabilities."""
        top_k = self.database.config.top_k
        ranked = self.database.query(keyframe, max(top_k, RANKED))
        return self._match_probability.judge(keyframe, ranked, top_k)

    def _break_before(self, scan: Scan) -> str:
        """Return why the poses before this scan are unrelated to its own; '' if they are related.

        Only the clock and the odometry break a session: scans may be dropped for any time.
        ScanError: the stamp is not new.
        """
        newest_ns = self._newest_ns
        if newest_ns is not None and scan.stamp_ns <= newest_ns:
            if newest_ns - scan.stamp_ns < CLOCK_JUMP_NS:
                raise ScanError(
                    'stamp', f'scan at {scan.stamp_ns} ns, expected a stamp after {newest_ns} ns'
                )
            return f'clock set back from {newest_ns} ns to {scan.stamp_ns} ns'
        if self._segment is not None and scan.odometry_segment != self._segment:
            return scan.segment_reason or 'odometry jump'
        return ''


def check_scan(scan: Scan) -> None:
    """Raise ScanError for an empty or invalid cloud, an invalid stamp or an invalid pose."""
    points, T = scan.points, scan.T_odom_sensor
    if abs(scan.stamp_ns) > MAX_STAMP_NS:
        raise ScanError(
            'stamp', f'scan at {scan.stamp_ns} ns, expected a stamp that ROS can represent'
        )
    try:
        check_points(points)
    except CloudError as error:
        raise ScanError('cloud', str(error)) from error
    if len(points) == 0:
        raise ScanError('cloud', 'expected at least one point, got none')
    try:
        if T is not None:
            checked_pose(T)
    except DatabaseError as error:
        raise ScanError('odometry', str(error)) from error
