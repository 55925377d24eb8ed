"""Files and folders that appear whole or not at all: written aside, then renamed."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
import errno
import fcntl
import os
from pathlib import Path
import shutil

from lpr_ros.core.errors import DatasetError, LprError, reason

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
    """Yield a path to write to; it takes the place of `path` only when the block succeeds.

    One writer at a time: with two, the first to end would rename what the other has half written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f'.{path.name}{PARTIAL_SUFFIX}')
    claim = _claim(partial, path)
    try:
        yield partial
        with partial.open('rb') as stream:
            os.fsync(stream.fileno())
        partial.replace(path)
        _sync_folder(path.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    finally:
        os.close(claim)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder to fill; it becomes `path`, which must not exist, on success."""
    refuse_existing(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f'.{path.name}{PARTIAL_SUFFIX}')
    shutil.rmtree(partial, ignore_errors=True)  # what a killed run left
    partial.mkdir()
    try:
        yield partial
        partial.replace(path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _claim(partial: Path, path: Path) -> int:
    """Make an empty file and lock it; the system unlocks it when this process ends, however."""
    while True:
        if partial.is_symlink():
            partial.unlink()
        claim = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):  # renamed or removed before it was locked
                if os.path.samestat(os.fstat(claim), partial.lstat()):
                    os.truncate(claim, 0)  # what a killed run left
                    return claim
        except OSError as error:
            os.close(claim)
            if not isinstance(error, BlockingIOError):
                raise
            raise FileExistsError(
                errno.EEXIST, 'is being written by somebody else at this moment', str(path)
            ) from error
        os.close(claim)


def _sync_folder(folder: Path) -> None:
    """Make a rename last: after a power cut the folder names the new file."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
