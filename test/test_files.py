"""Files that appear whole or not at all, whoever else writes them."""

import errno
import fcntl
import os
from pathlib import Path
import threading

import pytest

from lpr_ros.core.errors import ConfigError, DatasetError
from lpr_ros.core.files import user_path, whole_file, whole_folder


def test_a_second_writer_is_refused_and_the_first_one_ends_whole(tmp_path):
    path = tmp_path / 'places.map'
    with whole_file(path) as partial:
        partial.write_text('the half of it')
        with (
            pytest.raises(FileExistsError, match=r'written by somebody else.*places\.map'),
            whole_file(path),
        ):
            pytest.fail('two writers of one file')
        partial.write_text('all of it')
    assert path.read_text() == 'all of it'
    assert os.listdir(tmp_path) == ['places.map']


def test_many_writers_at_once_leave_one_whole_file_and_nothing_beside_it(tmp_path):
    path, start, written, refused, seen = tmp_path / 'a.json', threading.Barrier(8), [], [], []
    path.write_text('before')

    def write(number):
        start.wait()
        for turn in range(50):
            text = f'{number} {turn} ' * 2000
            try:
                with whole_file(path) as partial:
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


def test_what_a_killed_run_left_does_not_stay_in_the_file(tmp_path):
    (tmp_path / '.a.json.partial').write_text('a long rest of before')
    with whole_file(tmp_path / 'a.json') as partial:
        assert partial.stat().st_size == 0
        with partial.open('r+') as stream:
            stream.write('short')
    assert (tmp_path / 'a.json').read_text() == 'short'


@pytest.mark.parametrize('link', [os.symlink, os.link, lambda _, way: os.mkfifo(way)])
def test_what_is_in_the_way_is_not_written_through(tmp_path, link):
    other = tmp_path / 'other'
    other.write_text('of somebody else')
    link(other, tmp_path / '.a.json.partial')
    with whole_file(tmp_path / 'a.json') as partial:
        partial.write_text('mine')
    assert other.read_text() == 'of somebody else'
    assert (tmp_path / 'a.json').read_text() == 'mine'
    assert not (tmp_path / 'a.json').is_symlink()


def test_without_locks_files_are_written_all_the_same(tmp_path, monkeypatch):
    def no_locks(descriptor, operation):
        raise OSError(errno.ENOLCK, 'No locks available')

    monkeypatch.setattr(fcntl, 'flock', no_locks)
    (tmp_path / '.a.json.partial').write_text('a rest')
    with whole_file(tmp_path / 'a.json') as partial:
        partial.write_text('mine')
    assert (tmp_path / 'a.json').read_text() == 'mine'
    assert os.listdir(tmp_path) == ['a.json']


def test_a_second_maker_of_a_folder_is_refused_and_a_rest_is_removed(tmp_path):
    rest = tmp_path / '.drive.partial' / 'drive'
    rest.mkdir(parents=True)
    (rest / '0').write_text('of a killed run')
    with whole_folder(tmp_path / 'drive') as partial:
        (partial / '1').write_text('the first')
        with (
            pytest.raises(FileExistsError, match=r'written by somebody else.*drive'),
            whole_folder(tmp_path / 'drive'),
        ):
            pytest.fail('two makers of one folder')
    assert os.listdir(tmp_path) == ['drive']
    assert os.listdir(tmp_path / 'drive') == ['1']
    with pytest.raises(DatasetError, match='exists already'), whole_folder(tmp_path / 'drive'):
        pytest.fail('over what was there')


def test_a_block_that_fails_leaves_the_file_that_was_there(tmp_path):
    path = tmp_path / 'a.json'
    path.write_text('before')

    def fail():
        with whole_file(path) as partial:
            partial.write_text('after')
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == 'before'
    assert os.listdir(tmp_path) == ['a.json']


def test_a_disk_that_was_read_only_for_a_while_is_written_again(tmp_path, monkeypatch):
    """After a kill in the middle of a save, which leaves something to remove."""
    def read_only(path, missing_ok=False):
        raise OSError(errno.EROFS, 'Read-only file system', str(path))

    (tmp_path / '.a.json.partial').write_text('a rest')
    with monkeypatch.context() as patch:
        patch.setattr(Path, 'unlink', read_only)
        for _ in range(2):
            with pytest.raises(OSError, match='Read-only'), whole_file(tmp_path / 'a.json'):
                pytest.fail('a read-only disk')
    with whole_file(tmp_path / 'a.json') as partial:
        partial.write_text('mine')
    assert (tmp_path / 'a.json').read_text() == 'mine'


@pytest.mark.usefixtures('folders_cannot_be_synced')
def test_a_folder_that_cannot_be_synced_is_a_warning_as_the_file_is_there(tmp_path, caplog):
    with whole_file(tmp_path / 'a.json') as partial:
        partial.write_text('mine')
    assert (tmp_path / 'a.json').read_text() == 'mine'
    assert 'power cut' in caplog.text


def test_a_path_that_cannot_be_is_refused_with_its_setting(tmp_path):
    (tmp_path / 'a').symlink_to(tmp_path / 'b')
    (tmp_path / 'b').symlink_to(tmp_path / 'a')
    for text in ('~nosuchuser/x.map', 'x\0y', str(tmp_path / 'a' / 'x.map')):
        with pytest.raises(ConfigError, match=r"map_path '.*expected a path"):
            user_path(text, 'map_path')
    assert user_path('~/x.map', 'map_path') == (Path.home() / 'x.map').resolve()
