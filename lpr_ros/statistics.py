"""What the node counts and times, for its diagnostics. Safe from any thread."""

from collections import Counter, defaultdict, deque
from dataclasses import dataclass
import threading

import numpy as np

WINDOW = 500  # of the newest times: two minutes of keyframes


@dataclass(frozen=True)
class Timing:
    """Times of one stage."""

    mean_s: float
    p95_s: float


class Statistics:
    """Counts events by name and keeps the newest times of each stage."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._times: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=WINDOW))
        self._last_error = ''

    def count(self, name: str, number: int = 1) -> None:
        """Count an event."""
        with self._lock:
            self._counts[name] += number

    def time(self, stage: str, seconds: float) -> None:
        """Note how long a stage took."""
        with self._lock:
            self._times[stage].append(seconds)

    def fail(self, kind: str, message: str) -> None:
        """Count something that was dropped, and remember why."""
        with self._lock:
            self._counts[f'dropped.{kind}'] += 1
            self._last_error = message

    @property
    def last_error(self) -> str:
        """The newest reason for a drop."""
        return self._last_error

    def counts(self) -> dict[str, int]:
        """Return all counts so far, by name."""
        with self._lock:
            return dict(self._counts)

    def timings(self) -> dict[str, Timing]:
        """Return the times of each stage."""
        with self._lock:
            kept = {stage: np.array(times) for stage, times in self._times.items()}
        return {
            stage: Timing(float(times.mean()), float(np.percentile(times, 95.0)))
            for stage, times in kept.items()
        }
