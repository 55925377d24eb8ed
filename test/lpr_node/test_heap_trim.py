"""What the C library keeps of freed buffers goes back to the system, when it is time."""

import ctypes
import os
from pathlib import Path

from lpr_ros.free_memory import FreeMemory

LIBC = ctypes.CDLL(None)
LIBC.malloc.restype, LIBC.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
LIBC.free.argtypes = [ctypes.c_void_p]
BUFFER, COUNT = 100_000, 400  # smaller than what the system is asked for one by one
BLOCK = 30_000  # too large for the gaps that there are already


def resident_bytes() -> int:
    return int(Path('/proc/self/statm').read_text().split()[1]) * os.sysconf('SC_PAGE_SIZE')


def holes_between_what_stays() -> list[int]:
    """Fill buffers with smaller blocks in between, free the buffers, return the blocks."""
    buffers, blocks = [], []
    for _ in range(COUNT):
        buffers.append(LIBC.malloc(BUFFER))
        ctypes.memset(buffers[-1], 1, BUFFER)
        blocks.append(LIBC.malloc(BLOCK))
    for buffer in buffers:
        LIBC.free(buffer)
    return blocks


def test_room_between_what_stays_is_given_back_when_due():
    blocks = holes_between_what_stays()
    try:
        before = resident_bytes()
        FreeMemory(every_s=3600.0).give_back_if_due()
        assert resident_bytes() > before - BUFFER * COUNT / 4
        FreeMemory(every_s=0.0).give_back_if_due()
        assert resident_bytes() < before - BUFFER * COUNT / 2
    finally:
        for block in blocks:
            LIBC.free(block)


def test_nothing_is_done_where_the_c_library_cannot(monkeypatch):
    monkeypatch.setattr(ctypes, 'CDLL', lambda name: object())
    FreeMemory(every_s=0.0).give_back_if_due()
    assert FreeMemory()._trim is None
