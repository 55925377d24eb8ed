"""Which files may be the map, and who may write them."""

import errno
import fcntl
import os
from pathlib import Path
import socket
import subprocess
import sys

import pytest
from toy_keyframes import circle, drive, empty

from lpr_ros.core.errors import ConfigError, MapError
from lpr_ros.lpr_node.map_lock import MapFolder, MapLock

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534


@pytest.fixture
def path(tmp_path):
    return tmp_path / 'places.map'


def test_a_map_path_outside_the_folder_is_refused(tmp_path, path):
    folder = MapFolder(str(path))
    assert folder.file(str(tmp_path / 'other.map')) == tmp_path / 'other.map'
    (tmp_path / 'link.map').symlink_to('/etc/places.map')
    for outside in ('/etc/places.map', tmp_path / '..' / 'places.map', tmp_path / 'link.map'):
        with pytest.raises(ConfigError, match='outside'):
            folder.file(str(outside))


@pytest.mark.parametrize('name', ['a\nb.map', 'a\rb.map', '\x1b[2Jb.map', '\u2028'])
def test_control_characters_in_map_path_are_refused(tmp_path, path, name):
    with pytest.raises(ConfigError, match='printable') as caught:
        MapFolder(str(path)).file(str(tmp_path / name))
    assert str(caught.value).isprintable()


def test_a_folder_whose_name_is_not_utf8_is_refused(tmp_path, monkeypatch):
    folder = os.fsencode(tmp_path) + b'/\xff'
    os.mkdir(folder)
    monkeypatch.chdir(folder)
    with pytest.raises(ConfigError, match='printable UTF-8') as caught:
        MapFolder('places.map')
    assert str(caught.value).isprintable()


@pytest.mark.parametrize('name', ['Plätze.map', '地図.map', 'x' * 251 + '.map'])
def test_names_of_any_language_and_length_can_be_saved(tmp_path, rng, name):
    database = empty()
    drive(database, circle(3), rng)
    path = MapFolder(str(tmp_path / name)).file_to_write(str(tmp_path / name))
    lock = MapLock(path)
    database.save(path)
    assert MapFolder(str(path)).file_to_write(str(path)) == path
    with pytest.raises(MapError, match='locked by process'):
        MapLock(path)
    lock.release()


def special_files(folder):
    os.mkfifo(folder / 'fifo')
    (folder / 'folder').mkdir()
    (folder / 'notes').write_text('notes')
    (folder / 'empty').touch()
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(folder / 'socket'))
    server.close()
    return ['fifo', 'folder', 'notes', 'empty', 'socket']


def test_only_maps_are_replaced_and_special_files_do_not_block(tmp_path, path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the path of a socket is limited to 108 characters
    folder = MapFolder(str(path))
    for name in special_files(Path('.')):
        with pytest.raises(MapError, match='expected a map or no file'):
            folder.file_to_write(str(tmp_path / name))


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(MapError, match='existing folder'):
        MapFolder(str(tmp_path / 'absent' / 'places.map'))


def test_the_second_lock_fails_and_names_the_process(path):
    lock = MapLock(path)
    with pytest.raises(MapError, match=f'locked by process {os.getpid()}'):
        MapLock(path)
    lock.release()
    MapLock(path).release()


def test_a_fifo_in_place_of_the_lock_does_not_block(tmp_path):
    os.mkfifo(tmp_path / '.map.lpr.lock')
    lock = MapLock(tmp_path / 'map.lpr')
    with pytest.raises(MapError, match='locked by'):
        MapLock(tmp_path / 'map.lpr')
    lock.release()


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path):
    (tmp_path / 'other').write_text('mine')
    (tmp_path / '.map.lpr.lock').symlink_to(tmp_path / 'other')
    with pytest.raises(MapError, match='cannot be written'):
        MapLock(tmp_path / 'map.lpr')
    assert (tmp_path / 'other').read_text() == 'mine'


@pytest.mark.parametrize('is_replaced', [True, False])
def test_a_lock_is_lost_with_its_file(path, is_replaced):
    lock, file = MapLock(path), path.with_name('.places.map.lock')
    assert lock.is_held
    file.unlink()
    if is_replaced:
        file.touch()
    assert not lock.is_held
    lock.release()


def test_a_lock_file_that_is_removed_while_it_is_locked_is_locked_again(path, monkeypatch):
    """Otherwise two nodes would hold two locks of one map."""
    file, real = path.with_name('.places.map.lock'), fcntl.flock
    removals = iter([True, True, False])

    def remove_and_lock(descriptor, operation):
        if next(removals):
            file.unlink()
        real(descriptor, operation)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, 'flock', remove_and_lock)
        lock = MapLock(path)
    assert lock.is_held
    lock.release()
    monkeypatch.setattr(fcntl, 'flock', lambda descriptor, operation: file.unlink())
    with pytest.raises(MapError, match='keeps being replaced'):
        MapLock(path)


def test_a_lock_on_nfs_excludes_others(path, monkeypatch):
    """NFS locks only files open for writing."""
    lock = fcntl.flock

    def lock_on_nfs(descriptor, operation):
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, 'Bad file descriptor')
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, 'flock', lock_on_nfs)
    held = MapLock(path)
    with pytest.raises(MapError, match=f'locked by process {os.getpid()}'):
        MapLock(path)
    held.release()
    MapLock(path).release()


def test_a_file_system_without_locks_is_reported(path, monkeypatch):
    def no_locks(descriptor, operation):
        raise OSError(errno.ENOLCK, 'No locks available')

    monkeypatch.setattr(fcntl, 'flock', no_locks)
    with pytest.raises(MapError, match=r'cannot be locked: .*No locks available'):
        MapLock(path)


@pytest.mark.skipif(os.getuid() != 0, reason='only root can act as another user')
@pytest.mark.parametrize(('mode', 'expected'), [(0o644, 'locked'), (0o600, 'Permission denied')])
def test_the_lock_of_another_user_is_respected(tmp_path, path, mode, expected):
    """A readable lock file can be locked; one that is not readable is an error, not a crash."""
    MapLock(path).release()
    path.with_name('.places.map.lock').chmod(mode)
    folder = tmp_path
    while folder != folder.parent:
        folder.chmod(folder.stat().st_mode | 0o011)
        folder = folder.parent
    program = (
        'import os, pathlib, sys\n'
        'from lpr_ros.lpr_node.map_lock import MapLock\n'
        f'os.setuid({NOBODY})\n'
        'try:\n'
        '    MapLock(pathlib.Path(sys.argv[1]))\n'
        '    print("locked")\n'
        'except Exception as error:\n'
        '    print(type(error).__name__, error)\n'
    )
    answer = subprocess.run(
        [sys.executable, '-c', program, str(path)], capture_output=True, text=True, check=True,
        env=os.environ | {'PYTHONPATH': str(ROOT)},
    ).stdout  # fmt: skip
    assert expected in answer
    assert answer.startswith(('locked', 'MapError'))
