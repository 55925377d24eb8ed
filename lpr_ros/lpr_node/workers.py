"""Two workers around the pipeline: one describes scans, the other has candidates verified."""

from collections.abc import Callable
from dataclasses import dataclass
import threading
import time
from typing import Any, Protocol, TypeVar

from lpr_ros.core.errors import LprError, ScanError
from lpr_ros.core.loop_closer import Verdict
from lpr_ros.core.pipeline import Pipeline, PipelineConfig
from lpr_ros.core.recogniser import Sighting
from lpr_ros.core.records import Scan
from lpr_ros.inbox import Inbox
from lpr_ros.statistics import Statistics

T = TypeVar('T')


class Listener(Protocol):
    """Hears what the workers find, in their threads."""

    def on_sighting(self, sighting: Sighting) -> None:
        """Take a new keyframe."""

    def on_verdict(self, sighting: Sighting, verdict: Verdict) -> None:
        """Take what verification said of its candidates."""

    def on_drop(self, kind: str, reason: str) -> None:
        """Take a scan or keyframe that was left out."""

    def on_fault(self, error: Exception) -> None:
        """Take an error that nobody foresaw; the work goes on."""


@dataclass(frozen=True, eq=False)
class _Arrival:
    message: Any
    received_s: float


@dataclass(frozen=True, eq=False)
class _Waiting:
    sighting: Sighting
    received_s: float


class Detector:
    """Takes messages from any thread and at once; of those that wait, the newest wins."""

    def __init__(
        self,
        pipeline: Pipeline,
        read: Callable[[Any], Scan],
        listener: Listener,
        statistics: Statistics,
        waiting_keyframes: int,
    ):
        self.pipeline = pipeline
        self._read = read
        self._listener = listener
        self._statistics = statistics
        self._settings = pipeline.config  # those of the next scan
        self._scans: Inbox[_Arrival] = Inbox(1)
        self._sightings: Inbox[_Waiting] = Inbox(waiting_keyframes)
        self._threads = [
            threading.Thread(target=self._run, args=work, daemon=True)
            for work in ((self._scans, self._describe), (self._sightings, self._verify))
        ]
        for thread in self._threads:
            thread.start()

    def put(self, message: Any) -> None:
        """Take a scan."""
        self._statistics.count('scans')
        if self._scans.put(_Arrival(message, time.monotonic())):
            kind = 'paused' if self._scans.is_closed else 'newer_scan'
            self._statistics.count(f'dropped.{kind}')

    def reconfigure(self, config: PipelineConfig) -> None:
        """Take these settings from the next scan on."""
        self._settings = config

    @property
    def waiting(self) -> int:
        """Keyframes that wait for verification."""
        return len(self._sightings)

    def pause(self) -> None:
        """Forget what waits; what is being worked on is finished."""
        self._statistics.count('dropped.paused', self._scans.clear())
        self._sightings.clear()

    def stop(self) -> None:
        """End both workers; the pipeline's closer must have been told to stop."""
        self._statistics.count('dropped.paused', self._scans.close())
        self._sightings.close()
        for thread in self._threads:
            thread.join()

    def _run(self, inbox: Inbox[T], work: Callable[[T], None]) -> None:
        while (item := inbox.get()) is not None:
            try:
                work(item)
            except LprError as error:
                self._listener.on_drop(kind_of(error), str(error))
            except Exception as error:  # a robot that nobody watches goes on with the next scan
                self._listener.on_fault(error)

    def _describe(self, arrival: _Arrival) -> None:
        settings = self._settings  # which another thread may replace at any time
        if settings is not self.pipeline.config:
            self.pipeline.reconfigure(settings)
        sighting = self.pipeline.recogniser.add(self._read(arrival.message))
        self._statistics.count('described' if sighting else 'passed')
        if sighting is None:
            return
        self._listener.on_sighting(sighting)
        self._note('keyframe', arrival.received_s, sighting.seconds)
        if sighting.candidates and self._sightings.put(_Waiting(sighting, arrival.received_s)):
            self._statistics.count('dropped.newer_keyframe')

    def _verify(self, waiting: _Waiting) -> None:
        verdict = self.pipeline.closer.close(waiting.sighting)
        self._listener.on_verdict(waiting.sighting, verdict)
        self._note('verdict', waiting.received_s, verdict.seconds)
        self._statistics.count('verified')
        self._statistics.count('rejected', len(verdict.rejected))
        # Accepted by geometry, but fewer loops: odometry drifts more than it is said to.
        self._statistics.count('accepted', int(verdict.verified is not None))
        self._statistics.count('loops', len(verdict.trusted))
        if verdict.trusted:
            self._statistics.time('loop', time.monotonic() - waiting.received_s)

    def _note(self, name: str, received_s: float, seconds: dict[str, float]) -> None:
        self._statistics.time(name, time.monotonic() - received_s)
        for stage, spent_s in seconds.items():
            self._statistics.time(f'stage.{stage}', spent_s)


def kind_of(error: LprError) -> str:
    """Return the short name that something dropped is counted under."""
    if isinstance(error, ScanError):
        return error.kind
    return type(error).__name__.removesuffix('Error').lower()
