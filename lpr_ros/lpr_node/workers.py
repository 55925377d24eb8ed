"""Two worker threads around the pipeline: one describes scans, one verifies their candidates."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
import threading
import time
from typing import Any, Generic, Protocol, TypeVar

from lpr_ros.core.errors import LprError, ScanError
from lpr_ros.core.pipeline import Pipeline, PipelineConfig
from lpr_ros.core.types import KeyframeQuery, Scan, VerificationResult
from lpr_ros.lpr_node.diagnostics import KEYFRAMES_DROPPED, SCANS_DROPPED, EventLog

T = TypeVar('T')

IDLE_THREAD_S = 0.1  # a thread that takes longer to stop is in the middle of a verification


class Inbox(Generic[T]):
    """A bounded queue that never blocks the producer: when full, it drops the oldest item."""

    def __init__(self, capacity: int):
        self._items: deque[T] = deque(maxlen=capacity)
        self._changed = threading.Condition()
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_closed(self) -> bool:
        """Whether every further item is dropped."""
        return self._closed

    def put(self, item: T) -> bool:
        """Add an item; return whether one was dropped: the oldest, or this one if closed."""
        with self._changed:
            if self._closed:
                return True
            dropped = len(self._items) == self._items.maxlen
            self._items.append(item)
            self._changed.notify()
            return dropped

    def get(self) -> T | None:
        """Wait for the oldest item; None once the inbox is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._closed)
            return None if self._closed else self._items.popleft()

    def clear(self) -> int:
        """Drop all queued items; return their number."""
        with self._changed:
            count = len(self._items)
            self._items.clear()
            return count

    def close(self) -> int:
        """Drop all queued items, wake up every `get`, and return the number dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        return self.clear()


class Listener(Protocol):
    """Receives the results of the workers, in their threads."""

    def on_keyframe_query(self, keyframe_query: KeyframeQuery) -> None:
        """Handle a new keyframe."""

    def on_verification_result(self, result: VerificationResult) -> None:
        """Handle the verification result of a keyframe."""


@dataclass(frozen=True, eq=False)
class _Arrival:
    message: Any
    received_s: float


@dataclass(frozen=True, eq=False)
class _Queued:
    keyframe_query: KeyframeQuery
    received_s: float


class ScanWorkers:
    """Processes scans in the background; a scan that waits is replaced by a newer one."""

    def __init__(
        self,
        pipeline: Pipeline,
        read: Callable[[Any], Scan],
        listener: Listener,
        events: EventLog,
        queue_size: int,
    ):
        self.pipeline = pipeline
        self._read = read
        self._listener = listener
        self._events, self._statistics = events, events.statistics
        self._settings = pipeline.config  # for the next scan
        self._scans: Inbox[_Arrival] = Inbox(1)
        self._keyframe_queries: Inbox[_Queued] = Inbox(queue_size)
        self._threads = [
            threading.Thread(target=self._describe_scans, daemon=True),
            threading.Thread(target=self._verify_keyframes, daemon=True),
        ]

    def start(self) -> None:
        """Start both threads, or none."""
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:  # the system allows no more threads
            self.stop()
            raise

    def put(self, message: Any) -> None:
        """Queue a scan. Any thread."""
        self._statistics.count('scans')
        if self._scans.put(_Arrival(message, time.monotonic())):
            kind = 'paused' if self._scans.is_closed else 'newer_scan'
            self._statistics.count(SCANS_DROPPED + kind)

    def reconfigure(self, config: PipelineConfig) -> None:
        """Use new settings from the next scan on. Any thread."""
        self._settings = config

    @property
    def queue_length(self) -> int:
        """Number of keyframes queued for verification."""
        return len(self._keyframe_queries)

    def pause(self) -> None:
        """Drop everything queued; work in progress is completed."""
        self._drop_queued(self._scans.clear(), self._keyframe_queries.clear())

    def stop(self, interrupt_verification: Callable[[], object] = lambda: None) -> None:
        """Stop both threads; a verification in progress is interrupted by the given function."""
        self._drop_queued(self._scans.close(), self._keyframe_queries.close())
        describing, verifying = self._threads
        _join(verifying, IDLE_THREAD_S)
        if verifying.is_alive():
            interrupt_verification()
        _join(verifying)
        _join(describing)

    def _drop_queued(self, scans: int, keyframes: int) -> None:
        self._statistics.count(f'{SCANS_DROPPED}paused', scans)
        self._statistics.count(f'{KEYFRAMES_DROPPED}paused', keyframes)

    def _describe_scans(self) -> None:
        while (arrival := self._scans.get()) is not None:
            try:
                keyframe_query = self._describe(arrival.message)
            except LprError as error:
                self._events.drop_scan(drop_kind(error), str(error))
            except Exception as error:  # the next scan may succeed
                self._statistics.count(f'{SCANS_DROPPED}fault')
                self._events.fault(error)
            else:
                self._statistics.count('described' if keyframe_query else 'passed')
                if keyframe_query is not None:
                    self._hand_over(keyframe_query, arrival.received_s)

    def _describe(self, message: Any) -> KeyframeQuery | None:
        settings = self._settings  # another thread may replace them at any time
        if settings is not self.pipeline.config:
            self.pipeline.reconfigure(settings)
        return self.pipeline.recognize(self._read(message))

    def _hand_over(self, keyframe_query: KeyframeQuery, received_s: float) -> None:
        """Report a keyframe and queue it; a failure to report must not cost its loop closure."""
        try:
            if reason := keyframe_query.session_reason:
                self._events.start_session(keyframe_query.keyframe.session, reason)
            self._events.first('keyframe', f'stamp {keyframe_query.keyframe.stamp_ns} ns')
            self._listener.on_keyframe_query(keyframe_query)
        except Exception as error:
            self._events.fault(error)
        self._record('keyframe', received_s, keyframe_query.seconds)
        queued = _Queued(keyframe_query, received_s)
        if keyframe_query.candidates and self._keyframe_queries.put(queued):
            self._statistics.count(f'{KEYFRAMES_DROPPED}newer_keyframe')

    def _verify_keyframes(self) -> None:
        while (queued := self._keyframe_queries.get()) is not None:
            try:
                self._verify(queued)
            except LprError as error:
                self._events.drop_keyframe(drop_kind(error), str(error))
            except Exception as error:  # the next keyframe may succeed
                self._statistics.count(f'{KEYFRAMES_DROPPED}fault')
                self._events.fault(error)

    def _verify(self, queued: _Queued) -> None:
        result = self.pipeline.verify(queued.keyframe_query)
        try:
            self._listener.on_verification_result(result)
        except Exception as error:  # verified all the same
            self._events.fault(error)
        self._statistics.count('verified')
        self._statistics.count('rejected', len(result.rejected))
        self._statistics.count('excluded_by_odometry', len(result.excluded))
        # More accepted than published: odometry drifts more than odometry_noise says.
        self._statistics.count('accepted', int(result.verified is not None))
        self._statistics.count('loops', len(result.trusted))
        self._events.retract([(x.query_id, x.match_id) for x in result.retracted])
        self._record('verification', queued.received_s, result.seconds)
        if result.trusted:
            newest = result.trusted[-1]
            self._events.first('loop closure', f'{newest.query_id} to {newest.match_id}')
            self._statistics.time('loop', time.monotonic() - queued.received_s)

    def _record(self, name: str, received_s: float, seconds: dict[str, float]) -> None:
        self._statistics.time(name, time.monotonic() - received_s)
        for stage, duration_s in seconds.items():
            self._statistics.time(f'stage.{stage}', duration_s)


def _join(thread: threading.Thread, timeout_s: float | None = None) -> None:
    if thread.ident is not None:  # was started
        thread.join(timeout_s)


def drop_kind(error: LprError) -> str:
    """Return the short name under which a drop is counted."""
    if isinstance(error, ScanError):
        return error.kind
    return type(error).__name__.removesuffix('Error').lower()
