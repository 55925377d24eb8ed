"""Files and folders that appear whole or not at all: written aside, then renamed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
import errno
import fcntl
import logging
import os
from pathlib import Path
import shutil

from lpr_ros.core.errors import ConfigError, DatasetError, LprError, reason

logger = logging.getLogger(__name__)

PARTIAL_SUFFIX = '.partial'


def refuse_existing(path: Path) -> None:
    """Raise rather than write over what a user has."""
    if path.exists():
        raise DatasetError(f'{path} exists already; remove it or choose another place')


@contextmanager
def reading(path: Path, expected: str) -> Iterator[None]:
    """Turn whatever a parser raises on a damaged file into a DatasetError that names the file."""
    try:
        yield
    except LprError:
        raise
    except Exception as error:
        raise DatasetError(f'{path}: expected {expected}: {reason(error)}') from error


def read_text(path: Path, expected: str) -> str:
    """Read a UTF-8 file; DatasetError where it cannot be read or is not text."""
    with reading(path, expected):
        return path.read_text(encoding='utf-8')


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield an empty file to write to; it takes the place of `path` when the block succeeds.

    One writer at a time: with two, the first to end would rename what the other has half written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = beside(path)
    claim = _claim(partial, path, lambda: partial.touch(exist_ok=False))
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
        os.close(claim)
    _sync_folder(path.parent)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder to fill; it becomes `path`, which must not exist, on success."""
    with folder_aside(path) as aside:
        partial = aside / path.name
        partial.mkdir()
        yield partial
        partial.replace(path)


@contextmanager
def folder_aside(path: Path) -> Iterator[Path]:
    """Yield an empty folder to make `path` in, which must not exist; it is removed at the end."""
    refuse_existing(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = beside(path)
    claim = _claim(aside, path, aside.mkdir)
    try:
        yield aside
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        os.close(claim)


def beside(path: Path) -> Path:
    """Return where a file or folder is made until it is whole."""
    return path.with_name(f'.{path.name}{PARTIAL_SUFFIX}')


def _claim(partial: Path, path: Path, make: Callable[[], object]) -> int:
    """Make a file or folder that nobody else has, and lock it.

    The system unlocks it when this process ends, however: what is there unlocked was left by a
    killed run, or is a link to somewhere else, and goes.
    """
    while True:
        try:
            make()
            is_made = True
        except FileExistsError:
            is_made = False
        try:
            claim = os.open(partial, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            continue
        except OSError:  # a link, or of another user
            partial.unlink(missing_ok=True)
            continue
        try:
            is_locked = _lock(claim)
            if is_locked and _is_still(partial, claim):
                if is_made:
                    return claim
                _remove(partial)
        except BaseException:  # a disk that is read-only now: kept, the lock would stay for good
            os.close(claim)
            raise
        os.close(claim)
        if not (is_locked or is_made):  # where it was made, somebody takes it for a rest
            raise FileExistsError(
                errno.EEXIST, 'is being written by somebody else at this moment', str(path)
            )


def _lock(claim: int) -> bool:
    """Lock an open file, or tell that somebody else has; without locks everybody may go on."""
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system that has none
        return True
    return True


def _is_still(partial: Path, claim: int) -> bool:
    """Tell whether an open file was neither renamed nor removed before it was locked."""
    try:
        return os.path.samestat(os.fstat(claim), partial.lstat())
    except FileNotFoundError:
        return False


def _remove(partial: Path) -> None:
    if partial.is_dir():
        shutil.rmtree(partial)
    else:
        partial.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make a rename last: after a power cut the folder names the new file.

    Where that cannot be had the file is there all the same, and whoever wrote it must know so.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        logger.warning('%s: a power cut now may undo what was written: %s', folder, error)


def user_path(text: str, name: str) -> Path:
    """Return the path of a setting, `~` and links followed; ConfigError where that fails."""
    try:
        return Path(text).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:  # no such user, links in a circle, NUL
        raise ConfigError(f'{name} {text!r}: expected a path: {reason(error)}') from error
