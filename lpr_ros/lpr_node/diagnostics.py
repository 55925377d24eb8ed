"""What lpr_node counts, times and logs, and its status on /diagnostics.

Every scan received ends in exactly one counter:
scans = described + passed + the sum of dropped.* (+ those in progress).
"""

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import threading
import time
import traceback

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
import numpy as np
from rclpy.node import Node

from lpr_ros.conversions.poses import time_message
from lpr_ros.core.errors import error_with_type, utf8_text

TIMING_WINDOW = 500  # newest samples per stage, about two minutes of keyframes
RATES = ('scans', 'odometry', 'described', 'verified', 'accepted', 'loops', 'retracted')
LOG_INTERVAL_S = 5.0
MAX_SESSION_LINES = 10  # per interval; two odometry sources on one topic start many more
# Loops accepted by geometry without a single one consistent with odometry: more than bad luck.
MIN_CONTRADICTING_LOOPS = 10

SCANS_DROPPED = 'dropped.'  # received, but neither described nor passed over
ODOMETRY_DROPPED = 'odometry_dropped.'
KEYFRAMES_DROPPED = 'keyframes_dropped.'  # described, but not verified
LOOPS_DROPPED = 'loops_dropped.'  # published, but not taken by a SLAM back-end
RETRACTIONS_DROPPED = 'retractions_dropped.'  # taken back, but kept by a SLAM back-end
ODOMETRY_LOST = 'odometry_lost'  # LiDAR odometry starts again: a new session
ODOMETRY_DEGENERATE = 'odometry_degenerate'  # poses that the surroundings do not constrain
SCANS_LOST = 'scans_lost'  # never received: lost in transport or replaced in the DDS queue
DROPS = (
    SCANS_DROPPED,
    ODOMETRY_DROPPED,
    KEYFRAMES_DROPPED,
    LOOPS_DROPPED,
    RETRACTIONS_DROPPED,
    ODOMETRY_LOST,
    ODOMETRY_DEGENERATE,
    SCANS_LOST,
)


@dataclass(frozen=True)
class Timing:
    """Duration of one stage."""

    mean_s: float
    p95_s: float


class Statistics:
    """Counts events by name and keeps the newest durations of each stage. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._times: defaultdict[str, deque[float]] = defaultdict(
            lambda: deque(maxlen=TIMING_WINDOW)
        )
        self.last_error = ''

    def count(self, name: str, number: int = 1) -> None:
        """Count an event."""
        with self._lock:
            self._counts[name] += number

    def time(self, stage: str, seconds: float) -> None:
        """Record the duration of a stage."""
        with self._lock:
            self._times[stage].append(seconds)

    def counts(self) -> dict[str, int]:
        """Return all counts so far, by name."""
        with self._lock:
            return dict(self._counts)

    def timings(self) -> dict[str, Timing]:
        """Return the durations by stage."""
        with self._lock:
            kept = {stage: np.array(times) for stage, times in self._times.items()}
        return {
            stage: Timing(float(times.mean()), float(np.percentile(times, 95.0)))
            for stage, times in kept.items()
        }


class EventLog:
    """Counts what was dropped or failed, and logs each kind at most every few seconds."""

    def __init__(self, node: Node, statistics: Statistics):
        self.statistics = statistics
        self.is_muted = False  # while workers are stopped: what they use is going away
        self._context, self._log = node.context, node.get_logger()
        self._logged_s: dict[str, float] = {}
        self._happened: set[str] = set()
        self._session_lines_s: deque[float] = deque(maxlen=MAX_SESSION_LINES)

    def drop_scan(self, kind: str, reason: str) -> None:
        """Count a scan that was received and cannot be used."""
        self._drop(SCANS_DROPPED + kind, reason)

    def drop_odometry(self, kind: str, reason: str) -> None:
        """Count an odometry message that cannot be used."""
        self._drop(ODOMETRY_DROPPED + kind, reason)

    def lose_odometry(self, reason: str) -> None:
        """Count that LiDAR odometry was lost and started again."""
        self._drop(ODOMETRY_LOST, reason)

    def doubt_odometry(self, reason: str) -> None:
        """Count a pose of LiDAR odometry that is uncertain."""
        self._drop(ODOMETRY_DEGENERATE, reason)

    def drop_keyframe(self, kind: str, reason: str) -> None:
        """Count a keyframe whose candidates were not verified."""
        self._drop(KEYFRAMES_DROPPED + kind, reason)

    def drop_loop(self, backend: str, reason: str) -> None:
        """Count a loop closure that a SLAM back-end did not take."""
        self._drop(LOOPS_DROPPED + backend, reason)

    def drop_retraction(self, backend: str, reason: str) -> None:
        """Count a loop closure that was retracted and that a SLAM back-end keeps."""
        self._drop(RETRACTIONS_DROPPED + backend, reason)

    def retract(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Count loop closures (query, match) that were taken back, and name them in the log."""
        self.statistics.count('retracted', len(pairs))
        if pairs:
            names = ', '.join(f'{query} to {match}' for query, match in pairs)
            self.warn('retracted', f'loop closures retracted, outvoted by later ones: {names}')

    def start_session(self, session: str, reason: str) -> None:
        """Log a session with the reason why it starts; of very many in a row, the first few.

        Their names are numbered, which shows how many were left out.
        """
        now_s, recent = time.monotonic(), self._session_lines_s
        if len(recent) < MAX_SESSION_LINES or now_s - recent[0] >= LOG_INTERVAL_S:
            recent.append(now_s)
            self._log.info(utf8_text(f'session {session!r} starts: {reason}'))

    def first(self, what: str, text: str) -> None:
        """Log the first event of its kind in the life of the node."""
        if what not in self._happened:
            self._happened.add(what)
            self._log.info(utf8_text(f'first {what}: {text}'))

    def tell(self, kind: str, text: str) -> None:
        """Log something that goes as it should, throttled by kind."""
        if self._is_due(kind):
            self._log.info(utf8_text(text))

    def fault(self, error: Exception) -> None:
        """Log an unexpected exception with its traceback; the node continues."""
        if self._is_quiet():
            return
        self.statistics.count('faults')
        self.statistics.last_error = error_with_type(error)
        if self._is_due('fault'):
            self._log.error(utf8_text(''.join(traceback.format_exception(error))))

    def warn(self, kind: str, text: str) -> None:
        """Log a warning, throttled by kind."""
        if self._is_due(kind):
            self._log.warning(utf8_text(text))

    def _drop(self, counter: str, reason: str) -> None:
        self.statistics.count(counter)
        self.statistics.last_error = reason
        if not self._is_quiet():
            self.warn(counter, f'{counter}: {reason}')

    def _is_quiet(self) -> bool:
        return self.is_muted or not self._context.ok()

    def _is_due(self, kind: str) -> bool:
        now_s = time.monotonic()
        is_due = now_s - self._logged_s.get(kind, -LOG_INTERVAL_S) >= LOG_INTERVAL_S
        if is_due:
            self._logged_s[kind] = now_s
        return is_due


@dataclass(frozen=True)
class MapStatus:
    """The map on disk compared with the one in memory."""

    error: str = ''  # why the map is not saved
    keyframes: int | None = None  # in the file; None without a file
    age_s: float = 0.0  # since it was saved or loaded


@dataclass(frozen=True)
class RuntimeStatus:
    """State of a configured node."""

    device: str
    session: str
    keyframes: int
    sessions: int
    known_wrong_matches: int  # from which match probabilities are learned; enough at 100
    database_bytes: int
    verification_queue: int
    backends: tuple[str, ...]
    map: MapStatus
    silence: str = ''  # why topics that should have messages have none
    odometry_source: str = ''  # topic, tf or lidar, once chosen

    def values(self) -> dict[str, object]:
        """Return the key-value pairs of the status message."""
        values: dict[str, object] = {
            'device': self.device,
            'session': self.session,
            'keyframes': self.keyframes,
            'sessions': self.sessions,
            'known_wrong_matches': self.known_wrong_matches,
            'database_mib': f'{self.database_bytes / 2**20:.1f}',
            'verification_queue': self.verification_queue,
            'backends': ', '.join(self.backends),
            'odometry_source': self.odometry_source,
            'map_error': self.map.error,
            'silence': self.silence,
        }
        if self.map.keyframes is not None:
            values['map_keyframes'] = self.map.keyframes
            values['map_age_s'] = f'{self.map.age_s:.0f}'
        return values


def progress(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts that tell how a drive goes."""
    return {
        'scans': counts.get('scans', 0),
        'keyframes': counts.get('described', 0),
        'loop closures': counts.get('loops', 0),
        'dropped scans': sum(n for name, n in counts.items() if name.startswith(SCANS_DROPPED)),
        'lost scans': counts.get(SCANS_LOST, 0),
    }


class Diagnostics:
    """Turns the counts since the previous message into a DiagnosticArray."""

    def __init__(self, name: str, statistics: Statistics):
        self._name = name
        self._statistics = statistics
        self._previous: dict[str, int] = {}
        self._previous_s = time.monotonic()

    def message(self, stamp_ns: int, state: str, runtime: RuntimeStatus | None) -> DiagnosticArray:
        """Return the message; `runtime` is None while the node is not configured."""
        now_s, counts = time.monotonic(), self._statistics.counts()
        elapsed_s = max(now_s - self._previous_s, 1e-3)
        new = {name: number - self._previous.get(name, 0) for name, number in counts.items()}
        self._previous, self._previous_s = counts, now_s
        values: dict[str, object] = {'state': state}
        if runtime is not None:
            values |= runtime.values()
        values |= {f'{name}_per_s': f'{new.get(name, 0) / elapsed_s:.2f}' for name in RATES}
        values |= dict.fromkeys(RATES, 0) | dict(sorted(counts.items()))
        for stage, timing in self._statistics.timings().items():
            values[f'{stage}_mean_ms'] = f'{timing.mean_s * 1e3:.1f}'
            values[f'{stage}_p95_ms'] = f'{timing.p95_s * 1e3:.1f}'
        values['last_error'] = self._statistics.last_error
        map_error, silence = ('', '') if runtime is None else (runtime.map.error, runtime.silence)
        level, summary = status_level(state, new, counts, map_error, silence)
        status = DiagnosticStatus(
            level=level,
            name=self._name,
            message=utf8_text(summary),
            hardware_id='',
            values=[KeyValue(key=key, value=utf8_text(value)) for key, value in values.items()],
        )
        array = DiagnosticArray(status=[status])
        array.header.stamp = time_message(stamp_ns)
        return array


def status_level(
    state: str,
    new: Mapping[str, int],
    total: Mapping[str, int],
    map_error: str = '',
    silence: str = '',
) -> tuple[bytes, str]:
    """Return level and summary, by the counts since the previous message and in total."""
    if new.get('faults'):
        return DiagnosticStatus.ERROR, 'Unexpected exception, see the log'
    if map_error:
        return DiagnosticStatus.WARN, f'Map not saved: {map_error}'
    if state != 'active':
        return DiagnosticStatus.OK, state.capitalize()
    if silence:
        return DiagnosticStatus.WARN, silence
    dropped = {name: number for name, number in new.items() if number and _is_drop(name)}
    # A sensor faster than the keyframes need always loses some scans; losing half means that
    # the node is too slow.
    replaced = f'{SCANS_DROPPED}newer_scan'
    if 2 * dropped.get(replaced, 0) <= new.get('scans', 0):
        dropped.pop(replaced, None)
    if dropped:
        return DiagnosticStatus.WARN, ', '.join(
            f'{name}: {number}' for name, number in sorted(dropped.items())
        )
    if total.get('accepted', 0) >= MIN_CONTRADICTING_LOOPS and not total.get('loops'):
        return DiagnosticStatus.WARN, (
            'All loop closures contradict the odometry: increase odometry_noise'
        )
    return DiagnosticStatus.OK, 'Receiving scans' if new.get('scans') else 'Waiting for scans'


def _is_drop(name: str) -> bool:
    return name.startswith(DROPS)
