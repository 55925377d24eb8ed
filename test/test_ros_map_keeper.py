"""Who writes the map, when, and over what."""

import errno
import fcntl
import os
import subprocess
import sys
import threading
import time

import pytest
from ros_processes import ROOT, wait_until
from toy_keyframes import circle, drive, empty

from lpr_ros.core.config import override
from lpr_ros.core.database import PlaceDatabase
from lpr_ros.core.database_config import DatabaseConfig
from lpr_ros.core.errors import MapError
from lpr_ros.map_claim import MapClaim
from lpr_ros.map_keeper import MapKeeper
from lpr_ros.node_config import NodeConfig

SCAN_PERIOD_S = 0.1
HOLDER = 'import pathlib, sys, time; from lpr_ros.map_claim import MapClaim; ' \
    'claim = MapClaim(pathlib.Path(sys.argv[1])); print("held", flush=True); time.sleep(600)'


class Keeper:
    """A keeper and what it warned of."""

    def __init__(self, path, *, on_warning=lambda: None, **given):
        self.warnings = []
        self._on_warning = on_warning
        config = override(NodeConfig(), {'map_path': str(path), 'autosave_s': 0.001} | given)
        self.keeper = MapKeeper(config, self._warn)

    def _warn(self, text):
        self.warnings.append(text)
        self._on_warning()

    def __getattr__(self, name):
        return getattr(self.keeper, name)

    def autosave(self, database):
        """Do what a tick does, once it is due."""
        wait_until(lambda: time.monotonic() >= self.keeper._due_s, 'time to save')
        self.save_if_due(database)
        self.wait()


def read(path):
    return PlaceDatabase.load(path, DatabaseConfig(), fingerprint='checkpoint')


@pytest.fixture
def path(tmp_path):
    return tmp_path / 'places.map'


@pytest.fixture
def database(rng):
    made = empty()
    drive(made, circle(20), rng, session='first')
    return made


@pytest.fixture
def holder(path):
    """Another process that keeps the map."""
    process = subprocess.Popen(
        [sys.executable, '-c', HOLDER, str(path)], stdout=subprocess.PIPE, text=True,
        env=os.environ | {'PYTHONPATH': str(ROOT)},
    )  # fmt: skip
    assert process.stdout.readline() == 'held\n'
    yield process
    end(process)


def test_a_pipe_in_the_place_of_the_lock_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / '.map.lpr.lock')
    held = MapClaim(tmp_path / 'map.lpr')
    with pytest.raises(MapError, match='kept by'):
        MapClaim(tmp_path / 'map.lpr')
    held.release()


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path):
    (tmp_path / 'other').write_text('mine')
    (tmp_path / '.map.lpr.lock').symlink_to(tmp_path / 'other')
    with pytest.raises(MapError, match='cannot be written'):
        MapClaim(tmp_path / 'map.lpr')
    assert (tmp_path / 'other').read_text() == 'mine'


def test_a_map_is_saved_by_itself_and_only_when_something_is_new(path, database, rng):
    keeper = Keeper(path)
    keeper.autosave(empty())
    assert not path.exists()
    keeper.autosave(database)
    assert len(read(path)) == 20
    before = path.stat()
    keeper.autosave(database)
    assert path.stat() == before
    drive(database, circle(5), rng, session='second')
    keeper.autosave(database)
    assert len(read(path)) == 25
    assert keeper.facts()['map_keyframes'] == '25'
    assert not keeper.warnings


def test_off_it_saves_nothing(path, database):
    keeper = Keeper(path, autosave_s=0.0)
    keeper.autosave(database)
    keeper.close(database)
    assert not path.exists()


def test_the_end_saves_what_is_new(path, database):
    Keeper(path, autosave_s=3600.0).close(database)
    assert len(read(path)) == 20


def test_a_loaded_map_is_extended(path, database, rng):
    database.save(path)
    keeper = Keeper(path)
    loaded = keeper.load(read)
    drive(loaded, circle(5), rng, session='second')
    keeper.autosave(loaded)
    assert len(read(path)) == 25


def test_a_map_that_was_not_loaded_is_replaced_by_save_only(path, database, rng):
    """A restart without load_map must not lose the drive before it."""
    database.save(path)
    keeper, other = Keeper(path), empty()
    drive(other, circle(3), rng)
    keeper.autosave(other)
    keeper.wait()
    assert len(read(path)) == 20
    assert 'has not loaded' in keeper.facts()['map_error']
    keeper.save(other)
    drive(other, circle(3), rng, session='more')
    keeper.autosave(other)
    assert len(read(path)) == 6
    assert not keeper.error
    keeper.autosave(empty())  # as after a reset
    assert len(read(path)) == 6
    assert 'forgotten' in keeper.error


def test_the_second_refuses_to_write_and_names_the_first(path, database, holder):
    keeper = Keeper(path)
    assert f'process {holder.pid}' in keeper.warnings[0]
    keeper.autosave(database)
    with pytest.raises(MapError, match=f'kept by process {holder.pid}, which alone writes'):
        keeper.save(database)
    keeper.close(database)
    assert not path.exists()


def test_kill_frees_the_map_but_not_its_places(path, database, holder, rng):
    database.save(path)
    keeper, other = Keeper(path), empty()
    drive(other, circle(3), rng)
    end(holder)
    keeper.autosave(other)
    assert len(read(path)) == 20
    assert 'has not loaded' in keeper.error
    MapClaim(path).release()  # whoever loads it may have it
    keeper.save(other)
    assert len(read(path)) == 3


def end(process):
    process.kill()
    process.wait()


def test_a_loaded_map_is_extended_once_its_keeper_has_ended(path, database, holder, rng):
    database.save(path)
    keeper = Keeper(path)
    loaded = keeper.load(read)
    drive(loaded, circle(5), rng, session='second')
    keeper.autosave(loaded)
    assert f'kept by process {holder.pid}' in keeper.error
    assert len(read(path)) == 20
    end(holder)
    keeper.autosave(loaded)
    assert len(read(path)) == 25
    assert not keeper.error
    with pytest.raises(MapError, match=f'kept by process {os.getpid()}'):
        MapClaim(path)


def test_what_its_keeper_saved_after_the_loading_is_left_alone(path, database, holder, rng):
    """This node has not those places: it would lose them."""
    database.save(path)
    keeper = Keeper(path)
    loaded = keeper.load(read)
    drive(loaded, circle(5), rng, session='second')
    drive(database, circle(2), rng, session='of the keeper')
    database.save(path)
    end(holder)
    keeper.autosave(loaded)
    assert len(read(path)) == 22
    assert 'has not loaded' in keeper.error
    MapClaim(path).release()  # whoever loads it may have it


def test_a_node_started_again_loads_what_the_one_before_saves_at_its_end(
    path, database, holder, rng
):
    database.save(path)
    drive(database, circle(5), rng, session='at the end')

    def save_and_end():
        database.save(path)
        end(holder)

    keeper = Keeper(path, load_map=True, on_warning=save_and_end)
    assert not keeper.error
    loaded = keeper.load(read)
    assert len(loaded) == 25
    drive(loaded, circle(3), rng, session='second')
    keeper.autosave(loaded)
    assert len(read(path)) == 28


def test_what_the_one_before_leaves_may_be_no_map(path, database, holder):
    database.save(path)

    def spoil_and_end():
        if holder.poll() is None:  # the second warning is about what is there then
            path.write_text('notes')
            end(holder)

    keeper = Keeper(path, load_map=True, on_warning=spoil_and_end)
    assert 'is not a map' in keeper.error
    assert path.read_text() == 'notes'


def test_another_path_is_another_claim(path, database):
    keeper = Keeper(path)
    there = path.with_name('other.map')
    keeper.configure(override(keeper._config, {'map_path': str(there)}))
    keeper.save(database)
    MapClaim(path).release()
    with pytest.raises(MapError, match=f'kept by process {os.getpid()}'):
        MapClaim(there)
    keeper.release()
    MapClaim(there).release()


def test_a_save_that_fails_is_told_and_tried_again(path, database, monkeypatch):
    keeper = Keeper(path)

    def full(self, path):
        raise MapError(f'{path}: No space left on device')

    with monkeypatch.context() as patch:
        patch.setattr(PlaceDatabase, 'save', full)
        keeper.autosave(database)
    assert 'No space left' in keeper.facts()['map_error']
    assert 'No space left' in keeper.warnings[-1]
    keeper.autosave(database)
    assert len(read(path)) == 20
    assert keeper.facts()['map_error'] == ''


def test_saving_holds_nobody_up_for_a_scan_period(path, rng):
    """Of three tries the best: what else runs on the machine is not ours."""
    database = empty(dim=512, cloud_voxel_m=0.0)
    drive(database, circle(400), rng, points=20_000)

    def longest_pause_s():
        keeper, longest = Keeper(path), 0.0
        keeper.save(empty())
        saver = threading.Thread(target=keeper.save, args=(database,))
        saver.start()
        while saver.is_alive():
            before = time.perf_counter()
            time.sleep(0.001)
            longest = max(longest, time.perf_counter() - before)
        keeper.release()
        return longest

    pauses = [longest_pause_s() for _ in range(3)]
    assert path.stat().st_size > 40e6
    assert min(pauses) < SCAN_PERIOD_S, pauses


def test_a_file_put_in_place_meanwhile_is_left_alone(path, database, rng, tmp_path):
    keeper = Keeper(path)
    keeper.autosave(database)
    backup = empty()
    drive(backup, circle(7), rng, session='backup')
    backup.save(tmp_path / 'backup.map')
    os.replace(tmp_path / 'backup.map', path)
    drive(database, circle(5), rng, session='second')
    keeper.autosave(database)
    assert len(read(path)) == 7
    assert 'has not loaded' in keeper.warnings[-1]
    keeper.release()


def test_a_lock_on_nfs_is_held_too(path, monkeypatch):
    """There only files open for writing can be locked."""
    lock = fcntl.flock

    def lock_on_nfs(descriptor, operation):
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, 'Bad file descriptor')
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, 'flock', lock_on_nfs)
    claim = MapClaim(path)
    with pytest.raises(MapError, match=f'kept by process {os.getpid()}'):
        MapClaim(path)
    claim.release()
    MapClaim(path).release()


def test_a_file_system_without_locks_is_told(path, monkeypatch):
    def no_locks(descriptor, operation):
        raise OSError(errno.ENOLCK, 'No locks available')

    monkeypatch.setattr(fcntl, 'flock', no_locks)
    with pytest.raises(MapError, match=r'cannot be locked: .*No locks available'):
        MapClaim(path)


def test_an_error_does_not_outlive_the_wish_to_save(path, database, holder):
    keeper = Keeper(path)
    assert 'is kept by process' in keeper.error
    keeper.configure(override(NodeConfig(), {'map_path': str(path), 'autosave_s': 0.0}))
    assert keeper.error == ''


@pytest.mark.usefixtures('folders_cannot_be_synced')
def test_a_failed_sync_of_the_folder_does_not_end_saving(path, database, rng):
    """The map is in place by then: it must not be taken for somebody else's."""
    keeper = Keeper(path)
    keeper.autosave(database)
    drive(database, circle(4), rng, session='second')
    keeper.autosave(database)
    assert not keeper.error
    assert len(read(path)) == 24
