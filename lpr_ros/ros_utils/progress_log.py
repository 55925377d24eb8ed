"""A line in the log every half minute: what a node has done so far, and since the last line."""

from collections.abc import Mapping
import time
from typing import Any

INTERVAL_S = 30.0


class ProgressLog:
    """Logs totals and their growth; says nothing while nothing changes. One thread."""

    def __init__(self, log: Any):
        self._log = log
        self._previous: dict[str, int] = {}
        self._due_s = time.monotonic() + INTERVAL_S

    def tick(self, totals: Mapping[str, int]) -> None:
        """Log the totals if they changed and the interval is over."""
        growth = {name: total - self._previous.get(name, 0) for name, total in totals.items()}
        if time.monotonic() < self._due_s or not any(growth.values()):
            return
        parts = [f'{name} {total} ({growth[name]:+d})' for name, total in totals.items()]
        self._log.info(', '.join(parts))
        self._previous, self._due_s = dict(totals), time.monotonic() + INTERVAL_S
