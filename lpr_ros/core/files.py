"""Atomic files and folders: written under a temporary name, then renamed into place."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
import errno
import fcntl
import hashlib
import io
import logging
import os
from pathlib import Path
import shutil
import stat

from lpr_ros.core.errors import ConfigError, DatasetError, LprError, error_text

logger = logging.getLogger(__name__)

PARTIAL_SUFFIX = '.partial'
MAX_NAME_BYTES = 255  # of one path component, on every common Linux file system
SPECIAL_FILES = (
    (stat.S_ISDIR, 'a directory'),
    (stat.S_ISFIFO, 'a FIFO'),
    (stat.S_ISSOCK, 'a socket'),
    (stat.S_ISCHR, 'a character device'),
    (stat.S_ISBLK, 'a block device'),
)


def open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file for reading, without blocking; raise OSError for anything else."""
    # Before opening: opening a FIFO or device can block or have side effects.
    _check_regular(path, os.stat(path).st_mode)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        # Again: the path may have been replaced in between.
        _check_regular(path, os.fstat(descriptor).st_mode)
        return os.fdopen(descriptor, 'rb')
    except BaseException:
        os.close(descriptor)
        raise


def check_regular(path: Path) -> None:
    """Raise OSError unless the path is a regular file, for libraries that open it themselves."""
    _check_regular(path, os.stat(path).st_mode)


def _check_regular(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = next((text for check, text in SPECIAL_FILES if check(mode)), 'a special file')
        raise OSError(errno.EINVAL, f'is {kind}, expected a regular file', str(path))


def refuse_existing(path: Path) -> None:
    """Raise DatasetError if the output path exists."""
    if path.exists():
        raise DatasetError(f'{path} already exists; remove it or choose another path')


@contextmanager
def wrap_read_errors(path: Path, expected: str) -> Iterator[None]:
    """Convert any exception of a parser to a DatasetError that names the file.

    The block is not entered unless the path is a regular file: a FIFO or a device could block it.
    """
    try:
        check_regular(path)
        yield
    except LprError:
        raise
    except Exception as error:
        raise DatasetError(f'{path}: expected {expected}: {error_text(error)}') from error


def read_text(path: Path, expected: str) -> str:
    """Read a UTF-8 file; DatasetError if it cannot be read or decoded."""
    with wrap_read_errors(path, expected):
        return path.read_text(encoding='utf-8')


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield an empty temporary file; rename it to `path` if the block succeeds.

    FileExistsError if another writer is active: it would rename a half-written file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = sidecar_path(path, PARTIAL_SUFFIX)
    lock = _create_locked(partial, path, lambda: partial.touch(exist_ok=False))
    try:
        try:
            yield partial
            with partial.open('rb') as stream:
                os.fsync(stream.fileno())
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    finally:
        os.close(lock)
    _sync_folder(path.parent)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield an empty temporary folder; rename it to `path`, which must not exist, on success."""
    with scratch_folder(path) as scratch:
        partial = scratch / path.name
        partial.mkdir()
        yield partial
        partial.replace(path)


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder on the file system of `path`, which must not exist; then remove it."""
    refuse_existing(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = sidecar_path(path, PARTIAL_SUFFIX)
    lock = _create_locked(scratch, path, scratch.mkdir)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        os.close(lock)


def sidecar_path(path: Path, suffix: str) -> Path:
    """Return the hidden file `.name<suffix>` next to a file.

    A name too long for that is replaced by its hash, so that every valid name has a sidecar.
    """
    name = f'.{path.name}{suffix}'
    if len(os.fsencode(name)) > MAX_NAME_BYTES:
        name = f'.{hashlib.sha256(os.fsencode(path.name)).hexdigest()}{suffix}'
    return path.with_name(name)


def _create_locked(partial: Path, path: Path, create: Callable[[], object]) -> int:
    """Create a file or folder, lock it, and return the descriptor that holds the lock.

    The kernel releases the lock when the process dies. Anything unlocked under this name is a
    leftover of a killed process, or a link to another place, and is removed.
    """
    while True:
        try:
            create()
            is_created = True
        except FileExistsError:
            is_created = False
        try:
            descriptor = os.open(partial, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            continue
        except OSError:  # a link, or not readable
            partial.unlink(missing_ok=True)
            continue
        try:
            is_locked = _lock(descriptor)
            if is_locked and _is_same_file(partial, descriptor):
                if is_created:
                    return descriptor
                _remove(partial)
        except BaseException:  # e.g. a read-only disk: an open descriptor would keep the lock
            os.close(descriptor)
            raise
        os.close(descriptor)
        if not (is_locked or is_created):  # if created, a writer briefly took it for a leftover
            raise FileExistsError(
                errno.EEXIST, 'is being written by another process or thread', str(path)
            )


def _lock(descriptor: int) -> bool:
    """Lock an open file; return False if another holder has it.

    Without lock support in the file system, return True: writing must still work.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _is_same_file(partial: Path, descriptor: int) -> bool:
    """Return whether the path still names the open file: it may be renamed before the lock."""
    try:
        return os.path.samestat(os.fstat(descriptor), partial.lstat())
    except FileNotFoundError:
        return False


def _remove(partial: Path) -> None:
    if partial.is_dir():
        shutil.rmtree(partial)
    else:
        partial.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Flush a rename to disk; failing that, warn: the file exists but is not yet durable."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        logger.warning('%s: a power failure may undo the last write: %s', folder, error)


def private_cache_folder(name: str) -> Path | None:
    """Return ~/.cache/lpr_ros/<name>, created if missing; None unless only this user can write."""
    try:
        base = Path(os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache')
        folder = base / 'lpr_ros' / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (folder.parent, folder):
            status = path.lstat()
            is_private = status.st_uid == os.geteuid() and not status.st_mode & 0o022
            if not (stat.S_ISDIR(status.st_mode) and is_private):
                logger.warning('%s: expected a folder that only this user can write', path)
                return None
    except (OSError, RuntimeError) as error:  # read-only disk, no home
        logger.warning('no cache folder for %s: %s', name, error)
        return None
    return folder if os.access(folder, os.W_OK) else None


def user_path(text: str, name: str) -> Path:
    """Resolve the path given in setting `name`, with `~` and links; ConfigError if invalid."""
    try:
        return Path(text).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:  # unknown user, link loop, NUL
        raise ConfigError(f'{name} {text!r}: expected a path: {error_text(error)}') from error
