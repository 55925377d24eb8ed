"""Crafted maps with valid checksums: bad values are rejected at once, in a sentence."""

from dataclasses import replace
import json
import os
import time
import tracemalloc

import numpy as np
import pytest
from toy_keyframes import DIM, circle, drive, empty

from lpr_ros.core.database import session_names
from lpr_ros.core.database.map_file import Batch, Header, write_map
from lpr_ros.core.database.place_database import DatabaseConfig, PlaceDatabase
from lpr_ros.core.database.session_names import (
    MAX_SESSION_NAME_BYTES,
    MAX_SESSIONS,
    clean_session_name,
)
from lpr_ros.core.errors import ConfigError, DatabaseError, MapError
from lpr_ros.core.retrieval.place_recognizer import SessionConfig
from lpr_ros.core.timing import MAX_STAMP_NS

COUNT = 4


def load(path, **options):
    return PlaceDatabase.load(path, DatabaseConfig(), fingerprint='checkpoint', **options)


@pytest.fixture
def content(rng):
    """A valid header and batch of four keyframes, to be modified."""
    database = empty()
    drive(database, circle(COUNT), rng)
    (batch,) = database._batches(COUNT)
    header = Header('checkpoint', DIM, COUNT, ('robot/0',), database._clouds.point_count(COUNT))
    return header, batch


def craft(path, header, batch):
    write_map(path, header, iter([batch]))
    return path


def modified(batch, **fields):
    """Return the batch with fields of keyframe 2 replaced."""
    keyframes = batch.keyframes.copy()
    for name, value in fields.items():
        keyframes[name][2] = value
    return Batch(batch.descriptors, keyframes, batch.clouds)


def test_the_unmodified_map_is_valid(tmp_path, content):
    assert len(load(craft(tmp_path / 'a.map', *content), dim=DIM)) == COUNT


MIRRORED, SKEWED, NAN_ROW = np.diag([1.0, 1.0, -1.0, 1.0]), np.eye(4), np.eye(4)
SKEWED[0, 1] = 0.1
NAN_ROW[0] = np.nan
FAR = np.eye(4)
FAR[1, 3] = -1e30


@pytest.mark.parametrize(
    ('fields', 'message'),
    [
        ({'T_odom_sensor': MIRRORED}, 'a valid pose'),
        ({'T_odom_sensor': SKEWED}, 'a valid pose'),
        ({'T_odom_sensor': 2.0 * np.eye(4)}, 'a valid pose'),
        ({'T_odom_sensor': np.full((4, 4), 1e200)}, 'a valid pose'),
        ({'T_odom_sensor': np.zeros((4, 4))}, 'a valid pose'),
        ({'T_odom_sensor': NAN_ROW}, 'a valid pose'),
        ({'T_odom_sensor': FAR}, 'a valid pose'),
        ({'session': -1}, 'a session of the header'),
        ({'session': 1}, 'a session of the header'),
        ({'stamp_ns': MAX_STAMP_NS + 1}, 'a stamp that ROS can represent'),
        ({'stamp_ns': -MAX_STAMP_NS - 1}, 'a stamp that ROS can represent'),
        ({'traveled_m': np.inf}, 'a finite traveled distance'),
        ({'traveled_m': -1.0}, 'a finite traveled distance'),
    ],
)
def test_a_keyframe_with_an_invalid_value_is_rejected(tmp_path, content, fields, message):
    header, batch = content
    path = craft(tmp_path / 'a.map', header, modified(batch, **fields))
    with pytest.raises(MapError, match=rf'a\.map: keyframe 2: expected {message}'):
        load(path)


@pytest.mark.parametrize(
    ('fields', 'message'),
    [
        ({'stamp_ns': 0}, r'stamp 0 ns, expected one after'),
        ({'traveled_m': 1e6}, 'traveled distance falls'),
        ({'traveled_m': 0.0}, 'traveled distance falls'),
    ],
)
def test_keyframes_out_of_order_are_rejected(tmp_path, content, fields, message):
    header, batch = content
    path = craft(tmp_path / 'a.map', header, modified(batch, **fields))
    with pytest.raises(MapError, match=rf'a\.map: .*{message}'):
        load(path)


def test_a_map_of_another_dimension_is_rejected(tmp_path, content):
    path = craft(tmp_path / 'a.map', *content)
    with pytest.raises(MapError, match=r'a\.map: descriptors of 16 dimensions, expected 256'):
        load(path, dim=256)


def test_cloud_sizes_that_disagree_with_the_header_are_rejected(tmp_path, content):
    header, batch = content
    clouds = [replace(cloud, cells=cloud.cells[:1]) for cloud in batch.clouds]
    fewer = Batch(batch.descriptors, batch.keyframes, clouds)
    # Zeros make up for the size of the file.
    missing_bytes = 6 * (header.points - COUNT)
    padding = Batch(np.zeros(missing_bytes // 4, '<f4'), batch.keyframes[:0], [])
    path = tmp_path / 'a.map'
    write_map(path, header, iter([fewer, padding]))
    with pytest.raises(MapError, match=r'bytes of keyframes, expected'):
        load(path)


@pytest.mark.parametrize(
    ('name', 'message'),
    [
        ('', 'expected 1 to'),
        (7, 'expected 1 to'),
        (None, 'expected 1 to'),
        ('x' * (MAX_SESSION_NAME_BYTES + 1), 'expected 1 to'),
        ('ä' * (MAX_SESSION_NAME_BYTES - 1), 'expected at most'),
        ('\ud800', 'printable'),
        ('a\nb', 'printable'),
        ('a\0b', 'printable'),
        ('\x1b[31m', 'printable'),
    ],
)
def test_an_invalid_session_name_is_rejected(tmp_path, content, name, message):
    header, batch = content
    path = craft(tmp_path / 'a.map', replace(header, sessions=(name,)), batch)
    with pytest.raises(MapError, match=rf'a\.map: .*session name .*{message}'):
        load(path)


def test_an_invalid_session_name_that_no_keyframe_has_is_rejected(tmp_path, content):
    header, batch = content
    path = craft(tmp_path / 'a.map', replace(header, sessions=('robot/0', 'a\nb')), batch)
    with pytest.raises(MapError, match=r'a\.map: .*session name'):
        load(path)


def test_duplicate_session_names_are_rejected(tmp_path, content):
    header, batch = content
    path = craft(tmp_path / 'a.map', replace(header, sessions=('robot/0', 'robot/0')), batch)
    with pytest.raises(MapError, match='expected unique names'):
        load(path)


@pytest.mark.parametrize('field', ['dim', 'keyframes', 'points'])
@pytest.mark.parametrize('value', [-1, 1.5, True, '4', None, 10**30])
def test_an_invalid_size_is_rejected(tmp_path, content, field, value):
    path = craft(tmp_path / 'a.map', replace(content[0], **{field: value}), content[1])
    with pytest.raises(MapError, match='expected'):
        load(path)


@pytest.mark.parametrize(
    'sessions',
    [[f's{i}' for i in range(20_000)], ['x' * 30_000_000], ['x'] * MAX_SESSIONS * 100],
    ids=['20,000 sessions', '30 MB name', 'many short names'],
)
def test_excessive_sessions_are_rejected_quickly_and_without_memory(tmp_path, content, sessions):
    header, batch = content
    path = craft(tmp_path / 'a.map', replace(header, sessions=tuple(sessions)), batch)
    tracemalloc.start()
    started = time.process_time()
    with pytest.raises(MapError, match='expected at most'):
        load(path)
    elapsed_s, (_, peak) = time.process_time() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert elapsed_s < 1.0
    assert peak < 50e6


@pytest.mark.parametrize('nested', ['[' * 100_000, '{"a":' * 100_000, '[{},' * 10_000])
def test_a_malformed_json_header_is_rejected(tmp_path, content, monkeypatch, nested):
    with monkeypatch.context() as patch:
        patch.setattr(json, 'dumps', lambda *_, **__: nested)
        path = craft(tmp_path / 'a.map', *content)
    with pytest.raises(MapError, match='invalid header'):
        load(path)


def test_the_largest_header_that_can_be_saved_can_be_loaded(tmp_path, content):
    header, batch = content
    longest = 'ä' * ((MAX_SESSION_NAME_BYTES - 6) // 2)
    names = ('robot/0', *(f'{longest} {i}' for i in range(MAX_SESSIONS - 1)))
    assert len(load(craft(tmp_path / 'a.map', replace(header, sessions=names), batch))) == COUNT


def test_a_database_never_holds_sessions_that_a_map_cannot(rng, monkeypatch):
    monkeypatch.setattr('lpr_ros.core.database.keyframe_table.MAX_SESSIONS', 3)
    database = empty()
    for session in 'abc':
        drive(database, circle(2), rng, session=session)
    with pytest.raises(DatabaseError, match='3 sessions, the maximum; start a new map'):
        drive(database, circle(1), rng, session='d')
    drive(database, circle(2), rng, session='c', start_s=10.0)
    assert len(database) == 8
    with pytest.raises(DatabaseError, match='printable'):
        drive(database, circle(1), rng, session='\ud800')


@pytest.mark.parametrize('kind', ['fifo', 'directory', 'device'])
@pytest.mark.timeout(5)
def test_a_path_that_is_not_a_regular_file_is_rejected_at_once(tmp_path, kind):
    path = tmp_path / 'a.map'
    if kind == 'fifo':
        os.mkfifo(path)
    elif kind == 'directory':
        path.mkdir()
    else:
        path.symlink_to('/dev/zero')
    with pytest.raises(MapError, match=r'a\.map: cannot be read.*expected a regular file'):
        load(path)


@pytest.mark.parametrize('name', ['', 'x' * 256, 'ä' * 128, '\ud800', 'a\nb'])
def test_session_config_rejects_invalid_names(name):
    with pytest.raises(ConfigError, match=r'SessionConfig\.name: session name'):
        SessionConfig(name=name)


@pytest.mark.parametrize(
    ('text', 'name'),
    [
        ('drive 7', 'drive 7'),
        ('a\nb', 'a_b'),
        ('\udcff', '_'),
        ('', '_'),
        ('x' * 300, 'x' * 255),
        ('ä' * 200, 'ä' * 127),
    ],
)
def test_clean_session_name_is_always_valid(text, name):
    assert clean_session_name(text) == name
    assert SessionConfig(name=name).name == name


def test_unique_session_names_count_up():
    taken = {'a', 'a (2)', 'b'}
    assert session_names.unique_session_name('a', taken) == 'a (3)'
    assert session_names.unique_session_name('c', taken) == 'c'
