"""When the map is saved, and what is never overwritten."""

import os
import threading
import time

from map_holder import holding_process, stop
import pytest
from ros_processes import wait_until
from toy_keyframes import circle, drive, empty

from lpr_ros.core.config import override
from lpr_ros.core.database.place_database import DatabaseConfig, PlaceDatabase
from lpr_ros.core.errors import MapError
from lpr_ros.lpr_node import map_autosave
from lpr_ros.lpr_node.config import NodeConfig
from lpr_ros.lpr_node.map_autosave import MapAutosave
from lpr_ros.lpr_node.map_lock import MapLock

SCAN_PERIOD_S = 0.1


class Autosave:
    """A MapAutosave and its warnings."""

    def __init__(self, path, *, on_warning=lambda: None, **settings):
        self.warnings = []
        self._on_warning = on_warning
        config = override(NodeConfig(), {'map_path': str(path), 'autosave_s': 0.001} | settings)
        self.autosave = MapAutosave(config, self._warn)

    def _warn(self, text):
        self.warnings.append(text)
        self._on_warning()

    def __getattr__(self, name):
        return getattr(self.autosave, name)

    def load_map(self):
        database, saved = self.load(read)
        self.adopt(saved)
        return database

    def tick(self, database):
        """Save as the timer of the node does, once the interval is over."""
        self.start_tick(database)
        self.wait()

    def start_tick(self, database):
        wait_until(lambda: time.monotonic() >= self.autosave._due_s, 'interval')
        self.save_if_due(database)


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
    with holding_process(path) as process:
        yield process


def test_the_map_is_saved_automatically_if_it_has_new_keyframes(path, database, rng):
    autosave = Autosave(path)
    autosave.tick(empty())
    assert not path.exists()
    autosave.tick(database)
    assert len(read(path)) == 20
    before = path.stat()
    autosave.tick(database)
    assert path.stat() == before
    drive(database, circle(5), rng, session='second')
    autosave.tick(database)
    assert len(read(path)) == 25
    assert autosave.status().keyframes == 25
    assert not autosave.warnings


def test_an_interval_of_zero_disables_automatic_saves(path, database):
    autosave = Autosave(path, autosave_s=0.0)
    autosave.tick(database)
    autosave.close(database)
    assert not path.exists()


def test_shutdown_saves_new_keyframes(path, database):
    Autosave(path, autosave_s=3600.0).close(database)
    assert len(read(path)) == 20


def test_a_loaded_map_is_extended(path, database, rng):
    database.save(path)
    autosave = Autosave(path)
    loaded = autosave.load_map()
    drive(loaded, circle(5), rng, session='second')
    autosave.tick(loaded)
    assert len(read(path)) == 25


def test_a_map_that_was_read_but_not_adopted_is_not_extended(path, database, rng):
    """The node kept its own keyframes: those of the file would be lost."""
    database.save(path)
    autosave = Autosave(path)
    loaded, _ = autosave.load(read)
    drive(loaded, circle(5), rng, session='second')
    autosave.tick(loaded)
    assert len(read(path)) == 20


def test_a_map_that_was_not_loaded_is_replaced_on_request_only(path, database, rng):
    """A restart without load_map must not lose the previous drive."""
    database.save(path)
    autosave, other = Autosave(path), empty()
    drive(other, circle(3), rng)
    autosave.tick(other)
    assert len(read(path)) == 20
    assert 'did not load' in autosave.status().error
    autosave.save(other)
    drive(other, circle(3), rng, session='more')
    autosave.tick(other)
    assert len(read(path)) == 6
    assert not autosave.error
    autosave.tick(empty())  # as after a reset
    assert len(read(path)) == 6
    assert 'deleted in a reset' in autosave.error


def test_a_locked_map_is_not_written_and_the_error_names_the_process(path, database, holder):
    autosave = Autosave(path)
    assert f'process {holder.pid}' in autosave.warnings[0]
    autosave.tick(database)
    with pytest.raises(MapError, match=f'locked by process {holder.pid}'):
        autosave.save(database)
    autosave.close(database)
    assert not path.exists()


def test_the_map_of_a_killed_process_can_be_locked_but_is_not_overwritten(
    path, database, holder, rng
):
    database.save(path)
    autosave, other = Autosave(path), empty()
    drive(other, circle(3), rng)
    stop(holder)
    autosave.tick(other)
    assert len(read(path)) == 20
    assert 'did not load' in autosave.error
    MapLock(path).release()  # free for a node that loads it
    autosave.save(other)
    assert len(read(path)) == 3


def test_a_loaded_map_is_extended_once_its_lock_is_free(path, database, holder, rng):
    database.save(path)
    autosave = Autosave(path)
    loaded = autosave.load_map()
    drive(loaded, circle(5), rng, session='second')
    autosave.tick(loaded)
    assert f'locked by process {holder.pid}' in autosave.error
    assert len(read(path)) == 20
    stop(holder)
    autosave.tick(loaded)
    assert len(read(path)) == 25
    assert not autosave.error
    with pytest.raises(MapError, match=f'locked by process {os.getpid()}'):
        MapLock(path)


def test_keyframes_that_another_node_saved_after_loading_are_kept(path, database, holder, rng):
    database.save(path)
    autosave = Autosave(path)
    loaded = autosave.load_map()
    drive(loaded, circle(5), rng, session='second')
    drive(database, circle(2), rng, session='of the holder')
    database.save(path)
    stop(holder)
    autosave.tick(loaded)
    assert len(read(path)) == 22
    assert 'did not load' in autosave.error
    MapLock(path).release()  # free for a node that loads it


def test_a_restarted_node_loads_what_its_predecessor_saves_on_shutdown(
    path, database, holder, rng
):
    database.save(path)
    drive(database, circle(5), rng, session='at the end')

    def save_and_stop():
        database.save(path)
        stop(holder)

    autosave = Autosave(path, load_map=True, on_warning=save_and_stop)
    assert not autosave.error
    loaded = autosave.load_map()
    assert len(loaded) == 25
    drive(loaded, circle(3), rng, session='second')
    autosave.tick(loaded)
    assert len(read(path)) == 28


def test_a_predecessor_may_leave_a_file_that_is_not_a_map(path, database, holder):
    database.save(path)

    def spoil_and_stop():
        if holder.poll() is None:  # the second warning is about the file
            path.write_text('notes')
            stop(holder)

    autosave = Autosave(path, load_map=True, on_warning=spoil_and_stop)
    assert 'is not a map' in autosave.error
    assert path.read_text() == 'notes'


def test_another_map_path_has_its_own_lock(path, database):
    autosave = Autosave(path)
    other = path.with_name('other.map')
    autosave.configure(override(autosave._config, {'map_path': str(other)}))
    autosave.save(database)
    MapLock(path).release()
    with pytest.raises(MapError, match=f'locked by process {os.getpid()}'):
        MapLock(other)
    autosave.release()
    MapLock(other).release()


def test_a_lock_lost_with_its_file_is_taken_again(path, database, rng):
    autosave = Autosave(path)
    autosave.tick(database)
    path.with_name('.places.map.lock').unlink()
    drive(database, circle(5), rng, session='second')
    autosave.tick(database)
    assert len(read(path)) == 25
    with pytest.raises(MapError, match=f'locked by process {os.getpid()}'):
        MapLock(path)
    path.with_name('.places.map.lock').unlink()
    other = MapLock(path)  # another node was faster
    drive(database, circle(5), rng, session='third')
    autosave.tick(database)
    assert 'locked by process' in autosave.error
    assert len(read(path)) == 25
    other.release()


def test_a_failed_save_is_reported_and_repeated(path, database, monkeypatch):
    autosave = Autosave(path)

    def disk_full(self, path):
        raise MapError(f'{path}: No space left on device')

    with monkeypatch.context() as patch:
        patch.setattr(PlaceDatabase, 'save', disk_full)
        autosave.tick(database)
    assert 'No space left' in autosave.status().error
    assert 'No space left' in autosave.warnings[-1]
    autosave.tick(database)
    assert len(read(path)) == 20
    assert autosave.status().error == ''


def test_a_disk_that_hangs_blocks_no_service_and_no_shutdown(path, database, monkeypatch):
    monkeypatch.setattr(map_autosave, 'SAVE_TIMEOUT_S', 0.1)
    autosave, resumed = Autosave(path), threading.Event()
    monkeypatch.setattr(PlaceDatabase, 'save', lambda self, path: resumed.wait(20.0) and 0)
    autosave.start_tick(database)
    with pytest.raises(MapError, match='still running'):
        autosave.save(database)
    with pytest.raises(MapError, match='still being saved'):
        autosave.load(read)
    autosave.close(database)
    assert 'still being saved' in autosave.warnings[-1]
    resumed.set()
    autosave._saver.join()
    autosave.release()


def test_saving_does_not_pause_other_threads_for_a_scan_period(path, rng):
    """The best of three attempts: other processes cause pauses too."""
    database = empty(dim=512, cloud_voxel_m=0.0)
    drive(database, circle(400), rng, points=20_000)

    def longest_pause_s():
        autosave, longest = Autosave(path), 0.0
        autosave.save(empty())
        saver = threading.Thread(target=autosave.save, args=(database,))
        saver.start()
        while saver.is_alive():
            before = time.perf_counter()
            time.sleep(0.001)
            longest = max(longest, time.perf_counter() - before)
        autosave.release()
        return longest

    pauses = [longest_pause_s() for _ in range(3)]
    assert path.stat().st_size > 40e6
    assert min(pauses) < SCAN_PERIOD_S, pauses


def test_a_file_that_replaced_the_map_is_kept(path, database, rng, tmp_path):
    autosave = Autosave(path)
    autosave.tick(database)
    backup = empty()
    drive(backup, circle(7), rng, session='backup')
    backup.save(tmp_path / 'backup.map')
    os.replace(tmp_path / 'backup.map', path)
    drive(database, circle(5), rng, session='second')
    autosave.tick(database)
    assert len(read(path)) == 7
    assert 'did not load' in autosave.warnings[-1]
    autosave.release()


def test_the_error_is_cleared_when_saving_is_disabled(path, holder):
    autosave = Autosave(path)
    assert 'locked by process' in autosave.error
    autosave.configure(override(NodeConfig(), {'map_path': str(path), 'autosave_s': 0.0}))
    assert autosave.error == ''


@pytest.mark.usefixtures('folders_cannot_be_synced')
def test_saving_continues_if_the_folder_cannot_be_synced(path, database, rng):
    """The map is in place by then, and must not be mistaken for that of another node."""
    autosave = Autosave(path)
    autosave.tick(database)
    drive(database, circle(4), rng, session='second')
    autosave.tick(database)
    assert not autosave.error
    assert len(read(path)) == 24
