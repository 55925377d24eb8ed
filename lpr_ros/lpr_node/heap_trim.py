"""What was freed goes back to the system.

The C library keeps the free room between what stays. A node takes buffers of megabytes for every
scan and keeps a little of each for its map, in between: the room grew by 4 to 9 MB per minute.
"""

import ctypes
import time

EVERY_S = 10.0


class FreeMemory:
    """Gives free memory back now and then; does nothing where the C library is not glibc."""

    def __init__(self, every_s: float = EVERY_S):
        self._every_s = every_s
        self._last_s = time.monotonic()
        self._trim = getattr(ctypes.CDLL(None), 'malloc_trim', None)

    def give_back_if_due(self) -> None:
        """Do so, without Python's lock, when it is time again."""
        now_s = time.monotonic()
        if self._trim is not None and now_s - self._last_s >= self._every_s:
            self._last_s = now_s
            self._trim(ctypes.c_size_t(0))
