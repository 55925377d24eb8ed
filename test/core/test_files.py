"""Atomic files and folders, with concurrent writers, leftovers, links and full disks."""

import errno
import fcntl
import os
from pathlib import Path
import socket
import threading

import pytest

from lpr_ros.core.errors import ConfigError, DatasetError
from lpr_ros.core.files import (
    atomic_file,
    atomic_folder,
    open_regular,
    private_cache_folder,
    sidecar_path,
    user_path,
)


def test_atomic_file_rejects_a_second_writer_and_completes_the_first(tmp_path):
    path = tmp_path / 'places.map'
    with atomic_file(path) as partial:
        partial.write_text('half')
        with (
            pytest.raises(FileExistsError, match=r'written by another.*places\.map'),
            atomic_file(path),
        ):
            pytest.fail('two writers of one file')
        partial.write_text('complete')
    assert path.read_text() == 'complete'
    assert os.listdir(tmp_path) == ['places.map']


def test_concurrent_writers_leave_one_complete_file_and_no_leftovers(tmp_path):
    path, start, written, refused, seen = tmp_path / 'a.json', threading.Barrier(8), [], [], []
    path.write_text('before')

    def write(number):
        start.wait()
        for turn in range(50):
            text = f'{number} {turn} ' * 2000
            try:
                with atomic_file(path) as partial:
                    partial.write_text(text)
                written.append(text)
            except FileExistsError:
                refused.append(text)
            seen.append(path.read_text())

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert written
    assert len(written) + len(refused) == 400
    assert path.read_text() in written
    assert set(seen) <= {'before', *written}
    assert os.listdir(tmp_path) == ['a.json']


def test_atomic_file_discards_the_leftover_of_a_killed_process(tmp_path):
    (tmp_path / '.a.json.partial').write_text('a long leftover')
    with atomic_file(tmp_path / 'a.json') as partial:
        assert partial.stat().st_size == 0
        with partial.open('r+') as stream:
            stream.write('short')
    assert (tmp_path / 'a.json').read_text() == 'short'


@pytest.mark.parametrize('link', [os.symlink, os.link, lambda _, name: os.mkfifo(name)])
def test_atomic_file_never_writes_through_a_link_or_fifo(tmp_path, link):
    other = tmp_path / 'other'
    other.write_text('not ours')
    link(other, tmp_path / '.a.json.partial')
    with atomic_file(tmp_path / 'a.json') as partial:
        partial.write_text('mine')
    assert other.read_text() == 'not ours'
    assert (tmp_path / 'a.json').read_text() == 'mine'
    assert not (tmp_path / 'a.json').is_symlink()


def test_atomic_file_works_without_lock_support(tmp_path, monkeypatch):
    def no_locks(descriptor, operation):
        raise OSError(errno.ENOLCK, 'No locks available')

    monkeypatch.setattr(fcntl, 'flock', no_locks)
    (tmp_path / '.a.json.partial').write_text('a leftover')
    with atomic_file(tmp_path / 'a.json') as partial:
        partial.write_text('mine')
    assert (tmp_path / 'a.json').read_text() == 'mine'
    assert os.listdir(tmp_path) == ['a.json']


def test_atomic_folder_rejects_a_second_writer_and_removes_a_leftover(tmp_path):
    leftover = tmp_path / '.drive.partial' / 'drive'
    leftover.mkdir(parents=True)
    (leftover / '0').write_text('of a killed process')
    with atomic_folder(tmp_path / 'drive') as partial:
        (partial / '1').write_text('the first')
        with (
            pytest.raises(FileExistsError, match=r'written by another.*drive'),
            atomic_folder(tmp_path / 'drive'),
        ):
            pytest.fail('two writers of one folder')
    assert os.listdir(tmp_path) == ['drive']
    assert os.listdir(tmp_path / 'drive') == ['1']
    with pytest.raises(DatasetError, match='already exists'), atomic_folder(tmp_path / 'drive'):
        pytest.fail('overwrote a folder')


def test_atomic_file_keeps_the_old_file_if_the_block_fails(tmp_path):
    path = tmp_path / 'a.json'
    path.write_text('before')

    def fail():
        with atomic_file(path) as partial:
            partial.write_text('after')
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == 'before'
    assert os.listdir(tmp_path) == ['a.json']


def test_atomic_file_recovers_after_a_read_only_disk(tmp_path, monkeypatch):
    """With a leftover to remove, so that the lock is taken when removal fails."""

    def read_only(path, missing_ok=False):
        raise OSError(errno.EROFS, 'Read-only file system', str(path))

    (tmp_path / '.a.json.partial').write_text('a leftover')
    with monkeypatch.context() as patch:
        patch.setattr(Path, 'unlink', read_only)
        for _ in range(2):
            with pytest.raises(OSError, match='Read-only'), atomic_file(tmp_path / 'a.json'):
                pytest.fail('a read-only disk')
    with atomic_file(tmp_path / 'a.json') as partial:
        partial.write_text('mine')
    assert (tmp_path / 'a.json').read_text() == 'mine'


@pytest.mark.usefixtures('folders_cannot_be_synced')
def test_atomic_file_warns_if_the_folder_cannot_be_synced(tmp_path, caplog):
    with atomic_file(tmp_path / 'a.json') as partial:
        partial.write_text('mine')
    assert (tmp_path / 'a.json').read_text() == 'mine'
    assert 'power failure' in caplog.text


def test_user_path_rejects_invalid_paths_and_names_the_setting(tmp_path):
    (tmp_path / 'a').symlink_to(tmp_path / 'b')
    (tmp_path / 'b').symlink_to(tmp_path / 'a')
    for text in ('~nosuchuser/x.map', 'x\0y', str(tmp_path / 'a' / 'x.map')):
        with pytest.raises(ConfigError, match=r"map_path '.*expected a path"):
            user_path(text, 'map_path')
    assert user_path('~/x.map', 'map_path') == (Path.home() / 'x.map').resolve()


@pytest.mark.parametrize('length', [246, 247, 249, 250, 255])
def test_any_valid_name_can_be_written_atomically(tmp_path, length):
    path = tmp_path / ('x' * (length - 4) + '.map')
    with atomic_file(path) as partial:
        partial.write_text('saved')
    assert path.read_text() == 'saved'
    with atomic_folder(tmp_path / ('f' * length)):
        pass
    assert len(os.listdir(tmp_path)) == 2


def test_sidecar_paths_of_two_long_names_differ(tmp_path):
    a, b = (sidecar_path(tmp_path / ('x' * 250 + end), '.lock') for end in 'ab')
    assert a != b
    assert a.suffix == b.suffix == '.lock'
    assert sidecar_path(tmp_path / 'a.map', '.lock').name == '.a.map.lock'


def make_special(kind, path):
    if kind == 'FIFO':
        os.mkfifo(path)
    elif kind == 'socket':
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    elif kind == 'directory':
        path.mkdir()
    else:
        path.symlink_to('/dev/zero')


@pytest.mark.parametrize('kind', ['FIFO', 'socket', 'directory', 'character device'])
@pytest.mark.timeout(5)
def test_open_regular_rejects_special_files_at_once(tmp_path, kind, monkeypatch):
    monkeypatch.chdir(tmp_path)  # names of sockets are limited to 108 bytes
    make_special(kind, Path('special'))
    with pytest.raises(OSError, match=f'is a {kind}, expected a regular file.*special'):
        open_regular(Path('special'))


@pytest.mark.timeout(5)
def test_open_regular_rejects_a_file_replaced_by_a_fifo_while_opening(tmp_path, monkeypatch):
    path = tmp_path / 'a.map'
    path.write_text('x')
    stat = os.stat(path)
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr(os, 'stat', lambda _: stat)
    open_before = len(os.listdir('/proc/self/fd'))
    with pytest.raises(OSError, match='is a FIFO'):
        open_regular(path)
    assert len(os.listdir('/proc/self/fd')) == open_before


def test_open_regular_reads_files_and_follows_links(tmp_path):
    (tmp_path / 'a').write_bytes(b'content')
    (tmp_path / 'b').symlink_to(tmp_path / 'a')
    with open_regular(tmp_path / 'b') as stream:
        assert stream.read() == b'content'
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / 'c')


def test_private_cache_folder_is_writable_by_this_user_only(tmp_path, monkeypatch):
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    folder = private_cache_folder('numba')
    assert folder == tmp_path / 'lpr_ros' / 'numba'
    assert folder.stat().st_mode & 0o777 == 0o700
    assert private_cache_folder('numba') == folder


@pytest.mark.parametrize('mode', [0o777, 0o770, 0o702])
@pytest.mark.parametrize('level', ['lpr_ros', 'lpr_ros/numba'])
def test_private_cache_folder_rejects_a_folder_that_others_can_write(
    tmp_path, monkeypatch, mode, level
):
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    (tmp_path / 'lpr_ros/numba').mkdir(parents=True, mode=0o700)
    (tmp_path / level).chmod(mode)
    assert private_cache_folder('numba') is None


def test_private_cache_folder_rejects_links_other_owners_and_missing_homes(tmp_path, monkeypatch):
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    assert private_cache_folder('numba') is not None
    with monkeypatch.context() as patch:
        patch.setattr(os, 'geteuid', lambda: 12345)
        assert private_cache_folder('numba') is None
    (tmp_path / 'elsewhere').mkdir(mode=0o700)
    (tmp_path / 'lpr_ros/link').symlink_to(tmp_path / 'elsewhere')
    assert private_cache_folder('link') is None
    (tmp_path / 'file').touch()
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'file'))
    assert private_cache_folder('numba') is None
