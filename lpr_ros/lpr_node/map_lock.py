"""The right to write a map: one process has it, and the system takes it back when that ends."""

from contextlib import suppress
import errno
import fcntl
import os
from pathlib import Path

from lpr_ros.core.errors import MapError

LONGEST_PID = 20


class MapKeptError(MapError):
    """Another process has the map; it may end."""


class MapClaim:
    """An exclusive lock beside a map; kill -9 gives it up too, so that none is ever stale.

    What is locked is the open file, not its being there. It is never removed: then two processes
    could hold two files of one name.
    """

    def __init__(self, path: Path):
        self.path = path
        lock = path.with_name(f'.{path.name}.lock')
        try:
            # Not open for writing: what is could not be remounted read-only while a node runs.
            # O_NONBLOCK: a pipe of that name would be waited for without end.
            flags = os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
            self._descriptor = os.open(lock, flags, 0o644)
        except OSError as error:
            raise MapError(f'{path}: the map cannot be written: {error}') from error
        try:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno != errno.EBADF:
                    raise
                # NFS locks only what is open for writing.
                writable = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
                os.close(self._descriptor)
                self._descriptor = writable
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            kind, reason = MapError, f'cannot be locked: {error}'
            if isinstance(error, BlockingIOError):
                holder = os.read(self._descriptor, LONGEST_PID).decode(errors='replace').strip()
                kind = MapKeptError
                reason = f'is kept by process {holder or "(unknown)"}, which alone writes it'
            self.release()
            raise kind(f'{path}: {reason}; expected a map of this node alone') from error
        with suppress(OSError):  # on a full disk the others cannot tell by whom it is held
            writable = os.open(lock, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
            try:
                os.write(writable, str(os.getpid()).encode())
            finally:
                os.close(writable)

    def release(self) -> None:
        """Let another process have it."""
        os.close(self._descriptor)
