"""Child processes that work for this one and talk to it over a pipe."""

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, Pipe
import os
import signal
import subprocess
import sys
from typing import Any


def start_child(module: str) -> 'tuple[subprocess.Popen[bytes], Connection[Any, Any]]':
    """Start `python -m module` with a pipe; return the process and our end of the pipe.

    The child gets the file descriptor of its end as its only argument (`parent_connection`).
    """
    ours, theirs = Pipe()
    # Ctrl-C reaches the whole process group, but only the parent may stop the child. It inherits
    # the signal mask, so these are blocked from its first instruction on.
    with theirs, _blocked(signal.SIGINT, signal.SIGTERM):
        process = subprocess.Popen(
            [sys.executable, '-m', module, str(theirs.fileno())],
            env=os.environ | {'PYTHONPATH': os.pathsep.join(filter(None, sys.path))},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
    return process, ours


def parent_connection() -> 'Connection[Any, Any]':
    """Return the pipe to the parent, in a child that `start_child` started."""
    return Connection(int(sys.argv[1]))


@contextmanager
def _blocked(*signals: signal.Signals) -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
