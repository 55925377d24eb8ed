"""Return freed memory to the operating system.

The node allocates megabytes per scan and keeps a little of each for the map. glibc then holds on
to the free blocks in between, and the process would grow by 4 to 9 MB per minute.
"""

import ctypes
import time

INTERVAL_S = 10.0


class HeapTrim:
    """Calls malloc_trim periodically; does nothing if the C library is not glibc."""

    def __init__(self, interval_s: float = INTERVAL_S):
        self._interval_s = interval_s
        self._last_s = time.monotonic()
        self._trim = getattr(ctypes.CDLL(None), 'malloc_trim', None)

    def trim_if_due(self) -> None:
        """Trim the heap if the interval is over; ctypes releases the GIL meanwhile."""
        now_s = time.monotonic()
        if self._trim is not None and now_s - self._last_s >= self._interval_s:
            self._last_s = now_s
            self._trim(ctypes.c_size_t(0))
