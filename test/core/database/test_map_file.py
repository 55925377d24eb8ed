"""Map files: atomic writes, identical queries after loading, and rejection of bad files."""

import errno
import hashlib
import os
from pathlib import Path
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc

import numpy as np
import pytest
from toy_keyframes import DIM, circle, describe, drive, empty

from lpr_ros.core.database import map_file
from lpr_ros.core.database.place_database import DatabaseConfig, PlaceDatabase
from lpr_ros.core.errors import MapError

ROOT = Path(__file__).resolve().parents[3]
CONFIG = DatabaseConfig(exclude_s=5.0, exclude_m=10.0)


def load(path, **options):
    return PlaceDatabase.load(path, DatabaseConfig(**options), fingerprint='checkpoint')


def filled(rng, count=30, sessions=('robot/0', 'robot/1'), points=20, **options):
    database = empty(**options)
    for session in sessions:
        drive(database, circle(count), rng, session=session, points=points)
    return database


def assert_same(a, b):
    assert (len(a), a.sessions, a.dim) == (len(b), b.sessions, b.dim)
    for i in range(len(a)):
        x, y = a[i], b[i]
        assert (x.session, x.stamp_ns, x.traveled_m) == (y.session, y.stamp_ns, y.traveled_m)
        assert np.array_equal(x.descriptor, y.descriptor)
        assert np.array_equal(x.points, y.points)
        assert (x.T_odom_sensor is None) == (y.T_odom_sensor is None)
        assert x.T_odom_sensor is None or np.array_equal(x.T_odom_sensor, y.T_odom_sensor)
        assert a.place(i).order == b.place(i).order


@pytest.fixture
def saved(rng, tmp_path):
    path = tmp_path / 'a.map'
    filled(rng, count=5).save(path)
    return path


@pytest.mark.parametrize('spill', [0, 1])
def test_a_loaded_map_equals_the_saved_one_and_gives_the_same_matches(rng, tmp_path, spill):
    database = filled(rng, count=300, points=400, cloud_memory_mib=spill, exclude_s=5.0)
    assert (database._clouds.disk_bytes > 0) == bool(spill)
    drive(database, circle(3), rng, session='no odometry', with_odometry=False, points=0)
    database.save(tmp_path / 'a.map')
    loaded = load(tmp_path / 'a.map', exclude_s=5.0, cloud_memory_mib=1)
    assert_same(database, loaded)
    for i in range(0, len(database), 53):
        assert database.query(database[i]) == loaded.query(loaded[i])
    query = {'session': 'robot/1', 'stamp_ns': 10**15, 'T_odom_sensor': np.eye(4)}
    here, there = (
        d.make_keyframe(database[0].descriptor, np.zeros((0, 3), np.float32), **query)
        for d in (database, loaded)
    )
    assert here.traveled_m == there.traveled_m
    assert database.query(here) == loaded.query(there)
    loaded.save(tmp_path / 'b.map')
    assert (tmp_path / 'a.map').read_bytes() == (tmp_path / 'b.map').read_bytes()


def test_an_empty_map_round_trips(tmp_path):
    empty().save(tmp_path / 'a.map')
    assert len(load(tmp_path / 'a.map')) == 0


@pytest.mark.parametrize('far', [2e4, 1e30, 3e38])
def test_a_map_with_finite_points_at_any_distance_can_be_loaded(rng, tmp_path, far):
    """A few broken points must neither make the map unreadable nor blur the other points."""
    database = empty()
    near = rng.uniform(-50.0, 50.0, (100, 3)).astype(np.float32)
    broken = np.array([[far, 0.0, 0.0], [0.0, -far, 0.0], [far, far, far]], np.float32)
    options = {'session': 'robot', 'stamp_ns': 1, 'T_odom_sensor': np.eye(4)}
    descriptor = np.zeros(DIM, np.float32)
    cloud = np.concatenate([broken, near])
    database.add(database.make_keyframe(descriptor, cloud, **options))
    database.save(tmp_path / 'a.map')
    loaded = load(tmp_path / 'a.map')
    assert_same(database, loaded)
    assert len(loaded[0].points) > 90
    distance_m = np.linalg.norm(loaded[0].points[:, None] - near, axis=2).min(axis=1)
    assert distance_m.max() < 0.01


def test_loading_builds_the_index(rng, tmp_path):
    database = filled(rng, count=100)
    database.save(tmp_path / 'a.map')
    loaded = load(tmp_path / 'a.map', brute_force_limit_mib=0, nprobe_fraction=1.0)
    assert loaded.wait(60.0)
    assert not loaded._index.is_exact
    for i in range(0, 200, 17):
        assert loaded.query(loaded[i]) == database.query(database[i])


def test_a_new_session_relocalizes_in_an_existing_map(rng, tmp_path):
    xy = circle(60, laps=1.0)
    database = empty(DIM)
    drive(database, xy, rng, session='monday')
    database.save(tmp_path / 'a.map')
    loaded = load(tmp_path / 'a.map')
    for i, descriptor in enumerate(describe(xy, rng)):
        query = loaded.make_keyframe(
            descriptor, np.zeros((0, 3), np.float32), session='tuesday', stamp_ns=i
        )
        best = loaded.query(query)[0]
        assert min(abs(best.keyframe_id - i), 60 - abs(best.keyframe_id - i)) <= 1
        assert loaded.place(best.keyframe_id).session == 'monday'
        loaded.add(query)


def test_a_map_of_another_checkpoint_is_rejected(saved):
    with pytest.raises(MapError, match=r"a\.map: made with checkpoint 'checkpoint', expected 'x'"):
        PlaceDatabase.load(saved, CONFIG, fingerprint='x')


def test_another_format_version_is_rejected(saved):
    data = bytearray(saved.read_bytes())
    data[12:16] = struct.pack('<I', 7)
    saved.write_bytes(data)
    with pytest.raises(MapError, match=r'a\.map: version 7, expected 1'):
        load(saved)


def test_a_file_that_is_not_a_map_is_rejected(tmp_path):
    path = tmp_path / 'a.map'
    with pytest.raises(MapError, match=r'a\.map: cannot be read'):
        load(path)
    path.write_bytes(b'PK\x03\x04' * 100)
    with pytest.raises(MapError, match=r'a\.map: starts with .* expected a map file'):
        load(path)


def test_every_flipped_byte_is_detected(saved):
    original = saved.read_bytes()
    step = max(1, len(original) // 150)
    for position in sorted({*range(0, 280), *range(0, len(original), step), len(original) - 1}):
        data = bytearray(original)
        data[position] ^= 1 << (position % 8)
        saved.write_bytes(data)
        with pytest.raises(MapError, match=r'a\.map: .*expected'):
            load(saved)


def test_every_truncation_is_detected(saved):
    original = saved.read_bytes()
    for length in [*range(0, 300, 7), *range(300, len(original), 307), len(original) - 1]:
        saved.write_bytes(original[:length])
        with pytest.raises(MapError, match=r'a\.map: truncated.*expected'):
            load(saved)
    saved.write_bytes(original + b'\0')
    with pytest.raises(MapError, match='expected'):
        load(saved)


def test_a_header_with_missing_keys_is_rejected_despite_a_valid_checksum(tmp_path):
    text = b'{"dim": "many"}'
    start = map_file.PREFIX.pack(map_file.MAGIC, map_file.VERSION, len(text)) + text
    (tmp_path / 'a.map').write_bytes(start + hashlib.sha256(start).digest())
    with pytest.raises(MapError, match='invalid header'):
        load(tmp_path / 'a.map')


def test_a_full_disk_keeps_the_old_file_and_the_map_in_memory(rng, saved, monkeypatch):
    before = saved.read_bytes()
    database = filled(rng, count=300, points=50)
    chunks = map_file._chunks

    def full(header, batches):
        for i, chunk in enumerate(chunks(header, batches)):
            if i == 20:
                raise OSError(errno.ENOSPC, 'No space left on device')
            yield chunk

    monkeypatch.setattr(map_file, '_chunks', full)
    with pytest.raises(MapError, match=r'a\.map: .*No space left.*unchanged'):
        database.save(saved)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == ['a.map']
    monkeypatch.undo()
    database.save(saved)
    assert_same(load(saved), database)


def test_an_unwritable_path_is_reported(rng, saved):
    with pytest.raises(MapError, match=r'a\.map/b\.map: cannot write the map'):
        filled(rng, count=3).save(saved / 'b.map')


def test_a_file_size_limit_is_reported_as_map_error(rng, saved):
    """The kernel rejects the write at an arbitrary position, like a full disk."""
    before = saved.read_bytes()
    script = textwrap.dedent("""
        import resource, sys
        import numpy as np
        from toy_keyframes import circle, drive, empty
        from lpr_ros.core.errors import MapError
        database = empty()
        drive(database, circle(300), np.random.default_rng(0), points=100)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            database.save(sys.argv[1])
        except MapError as error:
            print(error)
            print(len(database.query(database[299])), 'matches in memory')
    """)
    paths = os.pathsep.join([str(ROOT), str(ROOT / 'test')])
    done = subprocess.run(
        [sys.executable, '-c', script, str(saved)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, 'PYTHONPATH': paths},
        timeout=120,
    )
    assert 'File too large' in done.stdout
    assert '10 matches in memory' in done.stdout
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == ['a.map']


def save_forever(path, databases, started):
    """Save one map after another until killed, in a child process."""
    try:
        os.write(started, b'.')
        while True:
            for database in databases:
                database.save(path)
    finally:
        os._exit(1)  # never return into pytest


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='needs fork')
def test_a_save_killed_at_any_time_leaves_the_old_or_the_new_map(rng, tmp_path):
    databases = [filled(rng, count=n, sessions=('a',), points=1500) for n in (40, 60)]
    path = tmp_path / 'a.map'
    databases[0].save(path)
    started = time.perf_counter()
    databases[1].save(path)
    save_s = time.perf_counter() - started
    digests = {}
    for database in databases:
        database.save(tmp_path / 'reference.map')
        digests[len(database)] = (tmp_path / 'reference.map').read_bytes()
    sizes, interrupted = set(), 0
    for _ in range(50):
        ready, child_ready = os.pipe()
        child = os.fork()
        if child == 0:
            save_forever(path, databases, child_ready)
        os.read(ready, 1)
        time.sleep(rng.uniform(0.0, 3.0 * save_s))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(child_ready)
        interrupted += (tmp_path / '.a.map.partial').exists()
        loaded = load(path)
        assert path.read_bytes() == digests[len(loaded)]
        sizes.add(len(loaded))
    assert sizes == {40, 60}
    assert interrupted >= 5
    databases[0].save(path)  # replaces the leftover of a killed process
    assert sorted(p.name for p in tmp_path.iterdir()) == ['a.map', 'reference.map']


def test_saving_while_adding_saves_a_consistent_prefix(rng, tmp_path):
    database = filled(rng, count=600, sessions=('a',), points=200)
    saver = threading.Thread(target=database.save, args=(tmp_path / 'a.map',))
    saver.start()
    drive(database, circle(300), rng, session='b')
    saver.join()
    loaded = load(tmp_path / 'a.map')
    assert 600 <= len(loaded) <= 900
    for i in range(0, len(loaded), 41):
        assert np.array_equal(loaded[i].points, database[i].points)
        assert loaded[i].session == database[i].session


def test_memory_of_saving_is_independent_of_the_map_size(rng, tmp_path, monkeypatch):
    """Saving holds one batch at a time, far less than the file."""
    monkeypatch.setattr(map_file, 'BATCH_KEYFRAMES', 64)
    monkeypatch.setattr('lpr_ros.core.database.place_database.BATCH_KEYFRAMES', 64)
    database = filled(rng, count=800, sessions=('a',), points=500, cloud_memory_mib=1)
    tracemalloc.start()
    database.save(tmp_path / 'a.map')
    saving = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert saving < (tmp_path / 'a.map').stat().st_size / 5
