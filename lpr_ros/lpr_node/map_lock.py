"""Which file may be written as the map, and by which process."""

from contextlib import suppress
import errno
import fcntl
import os
from pathlib import Path

from lpr_ros.core.database.map_file import MAGIC
from lpr_ros.core.errors import ConfigError, MapError, error_text
from lpr_ros.core.files import open_regular, sidecar_path, user_path

MAX_PID_BYTES = 20
LOCK_ATTEMPTS = 10


class MapFolder:
    """The folder that maps stay in: that of map_path at startup, or ROS_HOME if it was empty."""

    def __init__(self, map_path: str):
        if map_path:
            self._folder = _map_file(map_path).parent
            if not os.path.isdir(self._folder):  # better reported now than after the drive
                raise MapError(f'map_path {map_path!r}: expected an existing folder')
        else:
            self._folder = user_path(os.environ.get('ROS_HOME', '~/.ros'), 'ROS_HOME')

    def file(self, map_path: str) -> Path:
        """Return the map file; ConfigError if it is outside the folder."""
        if not map_path:
            raise MapError('the parameter map_path is empty, expected the path of the map file')
        path = _map_file(map_path)
        if not path.is_relative_to(self._folder):
            raise ConfigError(
                f'map_path: {path} is outside {self._folder}, the folder of map_path at startup'
            )
        return path

    def file_to_write(self, map_path: str) -> Path:
        """Return the map file if it may be written; MapError for a file that is not a map."""
        path = self.file(map_path)
        if not os.path.isdir(path.parent):
            raise MapError(f'{path}: expected an existing folder')
        if os.path.lexists(path):
            check_is_map(path)
        return path


def _map_file(map_path: str) -> Path:
    path = user_path(map_path, 'map_path')
    # Line breaks would forge log lines, and ROS cannot send a name that is not UTF-8.
    if not str(path).isprintable():
        raise ConfigError(f'map_path {str(path)!r}: expected printable UTF-8 characters only')
    return path


def check_is_map(path: Path) -> None:
    """Raise MapError unless an existing file starts like a map. Never blocks."""
    try:
        with open_regular(path) as stream:
            is_map = stream.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise MapError(f'{path}: expected a map or no file: {error_text(error)}') from error
    if not is_map:
        raise MapError(f'{path}: exists and is not a map, expected a map or no file')


class MapLockedError(MapError):
    """Another process holds the lock of the map."""


class MapLock:
    """An exclusive lock on a file next to the map; the kernel releases it with the process.

    The lock file is never removed: two processes could then lock two files of the same name. If
    someone else removes it, `is_held` is False.
    """

    def __init__(self, path: Path):
        self.path = path
        self._lock_path = sidecar_path(path, '.lock')
        for _ in range(LOCK_ATTEMPTS):
            self._descriptor = self._open()
            try:
                self._acquire()
            except BaseException:
                self.release()
                raise
            if self.is_held:
                self._write_pid()
                return
            self.release()  # removed between opening and locking
        raise MapError(f'{self._lock_path}: keeps being replaced while it is being locked')

    @property
    def is_held(self) -> bool:
        """Whether the locked file is still the one that other processes would lock."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.lstat(self._lock_path))
        except OSError:
            return False

    def release(self) -> None:
        """Let another process lock the map."""
        os.close(self._descriptor)

    def _open(self) -> int:
        # Read-only: a file open for writing would prevent remounting the disk read-only.
        # O_NONBLOCK: a FIFO of this name would block.
        flags = os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            return os.open(self._lock_path, flags, 0o644)
        except OSError as error:
            raise MapError(f'{self.path}: the map cannot be written: {error}') from error

    def _acquire(self) -> None:
        try:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno != errno.EBADF:
                    raise
                # NFS locks only files open for writing.
                writable = os.open(self._lock_path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
                os.close(self._descriptor)
                self._descriptor = writable
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = b''
            with suppress(OSError):
                holder = os.read(self._descriptor, MAX_PID_BYTES)
            name = holder.decode(errors='replace').strip()
            raise MapLockedError(
                f'{self.path}: locked by process {name or "(unknown)"}; stop that process or '
                'choose another map_path'
            ) from error
        except OSError as error:
            raise MapError(f'{self.path}: the map cannot be locked: {error}') from error

    def _write_pid(self) -> None:
        # Only for the error message of others: on a full disk it is missing there.
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
            writable = os.open(self._lock_path, flags)
            try:
                os.write(writable, str(os.getpid()).encode())
            finally:
                os.close(writable)
