"""Freed heap memory returns to the operating system."""

import ctypes
import os
from pathlib import Path

from lpr_ros.lpr_node.heap_trim import HeapTrim

LIBC = ctypes.CDLL(None)
LIBC.malloc.restype, LIBC.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
LIBC.free.argtypes = [ctypes.c_void_p]
BUFFER, COUNT = 100_000, 400  # below the mmap threshold
BLOCK = 30_000  # too large for existing gaps


def resident_bytes() -> int:
    return int(Path('/proc/self/statm').read_text().split()[1]) * os.sysconf('SC_PAGE_SIZE')


def fragment_heap() -> list[int]:
    """Allocate buffers with smaller blocks in between, free the buffers, return the blocks."""
    buffers, blocks = [], []
    for _ in range(COUNT):
        buffers.append(LIBC.malloc(BUFFER))
        ctypes.memset(buffers[-1], 1, BUFFER)
        blocks.append(LIBC.malloc(BLOCK))
    for buffer in buffers:
        LIBC.free(buffer)
    return blocks


def test_a_fragmented_heap_is_trimmed_when_due():
    blocks = fragment_heap()
    try:
        before = resident_bytes()
        HeapTrim(interval_s=3600.0).trim_if_due()
        assert resident_bytes() > before - BUFFER * COUNT / 4
        HeapTrim(interval_s=0.0).trim_if_due()
        assert resident_bytes() < before - BUFFER * COUNT / 2
    finally:
        for block in blocks:
            LIBC.free(block)


def test_other_c_libraries_are_left_alone(monkeypatch):
    monkeypatch.setattr(ctypes, 'CDLL', lambda name: object())
    HeapTrim(interval_s=0.0).trim_if_due()
    assert HeapTrim()._trim is None
