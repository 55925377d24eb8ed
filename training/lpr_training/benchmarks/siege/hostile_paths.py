"""Values of map_path that are no place for a map."""

from collections.abc import Callable
from contextlib import suppress
import os
from pathlib import Path
import stat

NOBODY = 65534


def give_away(path: Path) -> None:
    """Make a file that of another user, who lets nobody read it."""
    with suppress(OSError):  # only root can give files away
        path.chmod(0o000)
        os.chown(path, NOBODY, NOBODY)


def _fifo(folder: Path) -> Path:
    path = folder / 'fifo.map'
    with suppress(FileExistsError):
        os.mkfifo(path)
    return path


def _folder(folder: Path) -> Path:
    path = folder / 'folder.map'
    path.mkdir(exist_ok=True)
    return path


def _socket(folder: Path) -> Path:
    path = folder / 'socket.map'
    with suppress(FileExistsError):
        os.mknod(path, stat.S_IFSOCK | 0o600)
    return path


def _endless(folder: Path) -> Path:
    path = folder / 'zero.map'
    with suppress(FileExistsError):
        path.symlink_to('/dev/zero')
    return path


def _not_a_map(folder: Path) -> Path:
    path = folder / 'text.map'
    with suppress(OSError):
        path.write_text('not a map')
    return path


def _of_another_user(folder: Path) -> Path:
    path = folder / 'theirs.map'
    with suppress(OSError):  # another attack filled the disk
        path.write_bytes(b'theirs')
    give_away(path)
    return path


HOSTILE_PATHS: tuple[Callable[[Path], Path | str], ...] = (
    _fifo,
    _folder,
    _socket,
    _endless,
    _not_a_map,
    _of_another_user,
    lambda folder: folder / 'größe 地図.map',
    lambda folder: folder / 'new\nline.map',
    lambda folder: folder / f'{"x" * 248}.map',
    lambda folder: folder / f'{"x" * 240}.map',
    lambda folder: folder / 'missing' / 'places.map',
    lambda folder: '/proc/self/mem',
    lambda folder: '',
    lambda folder: '\x00.map',
)


def remove(path: Path | str) -> None:
    """Remove what one of HOSTILE_PATHS made."""
    with suppress(OSError, ValueError):
        if isinstance(path, Path) and path.is_dir():
            path.rmdir()
        elif isinstance(path, Path):
            path.unlink()
