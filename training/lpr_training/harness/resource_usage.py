"""Memory, threads and file descriptors of a process, to detect leaks."""

from collections.abc import Sequence
from dataclasses import dataclass
import os
from pathlib import Path

from lpr_ros.core.errors import LprError


@dataclass(frozen=True)
class ResourceUsage:
    """What a process holds."""

    private_mb: float  # resident, neither file-backed nor shared
    threads: int
    descriptors: int


def resource_usage(pid: int) -> ResourceUsage:
    """Return what a process holds now; LprError if it has exited."""
    process = Path('/proc') / str(pid)
    try:
        resident, shared = map(int, (process / 'statm').read_text().split()[1:3])
        threads = len(os.listdir(process / 'task'))
        descriptors = len(os.listdir(process / 'fd'))
    except OSError as error:
        raise LprError(f'process {pid} has exited: {error}') from error
    page_mb = os.sysconf('SC_PAGE_SIZE') / 1e6
    return ResourceUsage((resident - shared) * page_mb, threads, descriptors)


def lowest(usage: Sequence[ResourceUsage]) -> ResourceUsage:
    """Return the minima: buffers, saves and restarted child processes come and go."""
    return ResourceUsage(
        min(u.private_mb for u in usage),
        min(u.threads for u in usage),
        min(u.descriptors for u in usage),
    )


def growth(usage: Sequence[ResourceUsage]) -> ResourceUsage:
    """Return the increase of the minima from the first to the second half of the samples."""
    half = len(usage) // 2
    before, after = lowest(usage[:half]), lowest(usage[half:])
    return ResourceUsage(
        after.private_mb - before.private_mb,
        after.threads - before.threads,
        after.descriptors - before.descriptors,
    )
