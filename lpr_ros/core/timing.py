"""Integer-nanosecond stamps, and a stopwatch for pipeline stages."""

import time
from typing import Any

NS_PER_S = 1_000_000_000
MAX_STAMP_NS = 2**31 * NS_PER_S - 1  # builtin_interfaces/Time holds int32 seconds
CLOCK_JUMP_NS = NS_PER_S  # a stamp this far back means a clock reset or a restarted bag


def stamp_ns(header: Any) -> int:
    """Return the stamp of a ROS 2 or ROS 1 std_msgs/Header in nanoseconds."""
    stamp = header.stamp
    seconds = stamp.sec if hasattr(stamp, 'sec') else stamp.secs
    part = stamp.nanosec if hasattr(stamp, 'nanosec') else stamp.nsecs
    return int(seconds) * NS_PER_S + int(part)


class Stopwatch:
    """Accumulates the seconds spent in consecutive named stages."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """Add the time since the last lap to this stage."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now
