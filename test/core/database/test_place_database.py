"""The place database against brute force, for every index, exclusion rule and session."""

import errno
import math
from pathlib import Path
import threading
import time
import weakref

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from toy_keyframes import DIM, S, circle, describe, drive, empty

from lpr_ros.core.database import cloud_store, descriptor_index, faiss_index
from lpr_ros.core.database.append_array import AppendArray
from lpr_ros.core.database.cloud_store import (
    BYTES_PER_POINT,
    OVERHEAD_BYTES,
    CloudStore,
    QuantizedCloud,
    pack,
)
from lpr_ros.core.database.descriptor_index import DescriptorIndex
from lpr_ros.core.database.faiss_index import CoarseIndex
from lpr_ros.core.database.keyframe_table import BYTES_PER_PLACE
from lpr_ros.core.database.place_database import DatabaseConfig, PlaceDatabase
from lpr_ros.core.errors import CloudError, ConfigError, DatabaseError

NO_EXCLUSION = {'exclude_s': 0.0, 'exclude_m': 0.0, 'exclude_keyframes': 0}
NO_POINTS = np.zeros((0, 3), np.float32)


@pytest.fixture(autouse=True)
def _use_the_coarse_index_for_small_databases(monkeypatch):
    """Tests enable the coarse index with brute_force_limit_mib=0."""
    monkeypatch.setattr(descriptor_index, 'EXHAUSTIVE_ROWS', 0)


def is_recent(query, other, c):
    """The exclusion rule for two keyframes; `order` is the position in the session."""
    if other.session != query.session:
        return False
    return (
        other.stamp_ns >= query.stamp_ns
        or query.stamp_ns - other.stamp_ns < c.exclude_s * S
        or (
            c.exclude_m > 0
            and query.T_odom_sensor is not None
            and query.traveled_m - other.traveled_m < c.exclude_m
        )
        or query.order - other.order <= c.exclude_keyframes
    )


def brute_force(database, query, query_order):
    """Return (distance, id) of the expected matches, nearest first."""

    class Ordered:
        session, stamp_ns = query.session, query.stamp_ns
        T_odom_sensor, traveled_m, order = query.T_odom_sensor, query.traveled_m, query_order

    found = []
    for i in range(len(database)):
        if not is_recent(Ordered, database.place(i), database.config):
            other = database[i].descriptor.astype(np.float64)
            found.append((float(np.linalg.norm(other - query.descriptor)), i))
    return sorted(found)[: database.config.top_k]


@st.composite
def histories(draw):
    """Interleaved keyframes of several sessions: (session, seconds since its last, meters)."""
    step = st.tuples(
        st.sampled_from(['a/0', 'a/1', 'b/0']),
        st.integers(1, 20),
        st.sampled_from([0.0, 0.5, 3.0, None]),
    )
    return draw(st.lists(step, min_size=1, max_size=40))


@settings(max_examples=60, deadline=None)
@given(
    histories(),
    st.sampled_from([0.0, 5.0, 30.0]),
    st.sampled_from([0.0, 2.0, 6.0]),
    st.sampled_from([0, 1, 5]),
    st.booleans(),
    st.integers(0, 2**31),
)
def test_query_equals_brute_force_over_eligible_keyframes(
    history, exclude_s, exclude_m, exclude_keyframes, coarse, seed
):
    """Ids, distances and exclusion, for every keyframe just before it is added."""
    rng = np.random.default_rng(seed)
    database = empty(
        top_k=5,
        exclude_s=exclude_s,
        exclude_m=exclude_m,
        exclude_keyframes=exclude_keyframes,
        brute_force_limit_mib=0 if coarse else 32,
    )
    clocks, places, counts = {}, {}, {}
    for session, seconds, meters in history:
        clocks[session] = clocks.get(session, 0) + seconds
        places[session] = places.get(session, 0.0) + (meters or 0.0)
        T = np.eye(4)
        T[0, 3] = places[session]
        # Few distinct descriptors: ties are common, and the lowest id must win.
        descriptor = np.full(DIM, rng.integers(0, 4), np.float32)
        query = database.make_keyframe(
            descriptor,
            NO_POINTS,
            session=session,
            stamp_ns=clocks[session] * S,
            T_odom_sensor=None if meters is None else T,
        )
        matches = database.query(query)
        expected = brute_force(database, query, counts.get(session, 0))
        assert [m.keyframe_id for m in matches] == [i for _, i in expected]
        assert [m.distance for m in matches] == pytest.approx([d for d, _ in expected])
        database.add(query)
        counts[session] = counts.get(session, 0) + 1
        database.wait()


@pytest.mark.parametrize(
    ('stamp_ns', 'newest'), [(30 * S, 20), (31 * S - 1, 20), (31 * S, 21), (100 * S, 29)]
)
def test_exclusion_by_time_ends_exactly_at_the_limit(rng, stamp_ns, newest):
    database = empty(exclude_s=10.0, exclude_m=0.0, top_k=100)
    drive(database, circle(30), rng)
    query = database.make_keyframe(
        np.zeros(DIM, np.float32), NO_POINTS, session='robot/0', stamp_ns=stamp_ns
    )
    assert {m.keyframe_id for m in database.query(query)} == set(range(newest + 1))


def test_querying_a_stored_keyframe_repeats_its_online_result(rng):
    """It matches neither itself nor later keyframes of its session."""
    database = empty(exclude_s=5.0, exclude_m=10.0)
    online = []
    for i, descriptor in enumerate(describe(circle(60), rng)):
        query = database.make_keyframe(descriptor, NO_POINTS, session='a', stamp_ns=i * S)
        online.append(database.query(query))
        database.add(query)
    assert [database.query(database[i]) for i in range(60)] == online
    assert any(online)


def test_other_sessions_are_never_excluded(rng):
    database = empty(exclude_s=1e6, exclude_m=1e6, exclude_keyframes=10**6, top_k=100)
    added = drive(database, circle(20), rng, session='robot/0')
    assert database.query(added[-1]) == []
    query = database.make_keyframe(
        added[3].descriptor, NO_POINTS, session='robot/1', stamp_ns=added[3].stamp_ns
    )
    assert database.query(query)[0].keyframe_id == 3
    assert len(database.query(query)) == 20


def test_a_stationary_robot_is_excluded_by_distance_with_odometry_only(rng):
    for with_odometry, expected in ((True, 0), (False, 90)):
        database = empty(exclude_s=10.0, exclude_m=20.0, top_k=1000)
        drive(database, np.zeros((100, 2)), rng, with_odometry=with_odometry)
        assert len(database.query(database[99])) == expected


@pytest.mark.parametrize(
    ('codes', 'exhaustive'), [('8bit', 10**5), ('16bit', 10**5), ('8bit', 3000)]
)
def test_coarse_index_agrees_with_exact_search(rng, monkeypatch, codes, exhaustive):
    """Recall@1 of at least 0.99 with a third of all rows excluded; distances are exact."""
    monkeypatch.setattr(faiss_index, 'EXHAUSTIVE_CODES', exhaustive)
    count, dim = 6000, 160
    xy = rng.uniform(-400.0, 400.0, (count, 2))
    rows = describe(xy, rng, dim, noise=0.6 / math.sqrt(dim))
    queries = describe(xy[:200] + rng.normal(size=(200, 2)), rng, dim, noise=0.6 / math.sqrt(dim))
    exact = DescriptorIndex(dim, brute_force_bytes=2**40)
    coarse = DescriptorIndex(dim, brute_force_bytes=0, codes=codes)
    exact.extend(rows)
    coarse.extend(rows)
    coarse.build_if_due()
    assert coarse.wait(60.0)
    assert exact.is_exact
    assert not coarse.is_exact
    eligible = rng.random(count) < 0.67
    agreed = 0
    for query in queries:
        ids, distances = coarse.search(query, 5, eligible)
        assert eligible[ids].all()
        assert distances == pytest.approx(np.linalg.norm(rows[ids] - query, axis=1), rel=1e-5)
        agreed += ids[0] == exact.search(query, 5, eligible)[0][0]
    assert agreed >= 198


def test_few_eligible_rows_are_found_in_any_cell(rng, monkeypatch):
    """The index visits a single cell, which may hold none of the eligible rows."""
    monkeypatch.setattr(descriptor_index, 'EXHAUSTIVE_ROWS', 50)
    monkeypatch.setattr(faiss_index, 'EXHAUSTIVE_CODES', 0)
    index = DescriptorIndex(DIM, brute_force_bytes=0, nprobe_fraction=0.001)
    rows = rng.normal(size=(2000, DIM)).astype(np.float32)
    index.extend(rows)
    index.build_if_due()
    assert index.wait(60.0)
    eligible = np.zeros(2000, bool)
    eligible[rng.choice(2000, 50, replace=False)] = True
    for query in rows[:20]:
        distances = np.where(eligible, np.linalg.norm(rows - query, axis=1), np.inf)
        assert index.search(query, 5, eligible)[0].tolist() == np.argsort(distances)[:5].tolist()


def test_rows_added_during_a_build_are_found_before_during_and_after(rng, monkeypatch):
    """Neither adding nor searching waits for a stalled build."""
    index = DescriptorIndex(DIM, brute_force_bytes=0, nprobe_fraction=1.0)
    rows = rng.normal(size=(3000, DIM)).astype(np.float32)
    held, resume = threading.Event(), threading.Event()
    train = DescriptorIndex._train

    def slow_train(self, count):
        held.set()
        assert resume.wait(30.0)
        return train(self, count)

    monkeypatch.setattr(DescriptorIndex, '_train', slow_train)

    def all_found(upto):
        eligible = np.ones(len(index), bool)
        for i in range(0, upto, 97):
            ids, distances = index.search(rows[i], 1, eligible)
            assert (ids[0], distances[0]) == (i, 0.0)

    index.extend(rows[:1000])
    index.build_if_due()
    assert held.wait(30.0)
    slowest_s = 0.0
    for i in range(1000, 2000):
        started = time.thread_time()
        index.extend(rows[i : i + 1])
        index.build_if_due()
        slowest_s = max(slowest_s, time.thread_time() - started)
    assert index.is_exact
    assert slowest_s < 0.1
    all_found(2000)
    resume.set()
    for i in range(2000, 3000):
        index.extend(rows[i : i + 1])
    all_found(3000)
    assert index.wait(60.0)
    assert not index.is_exact
    all_found(3000)


def test_growth_triggers_a_rebuild_with_exact_results(rng):
    """Sixteen times the initial size: at least one rebuild, and results stay exact."""
    index = DescriptorIndex(DIM, brute_force_bytes=200 * DIM * 4, nprobe_fraction=1.0, rerank_k=64)
    exact = DescriptorIndex(DIM, brute_force_bytes=2**40)
    rows = rng.normal(size=(3300, DIM)).astype(np.float32)
    for i, row in enumerate(rows):
        index.extend(row[None])
        index.build_if_due()
        exact.extend(row[None])
        if i % 200 == 0:
            index.wait()
            eligible = np.ones(i + 1, bool)
            eligible[i // 2 : i // 2 + 5] = False
            mine, true = (
                index.search(rows[i // 2], 3, eligible),
                exact.search(rows[i // 2], 3, eligible),
            )
            assert mine[0].tolist() == true[0].tolist()
            assert mine[1].tolist() == true[1].tolist()
    assert index._built_for > 800


def test_a_failed_build_leaves_exact_search(rng, monkeypatch, caplog):
    def fail(*args):
        raise MemoryError('no memory')

    monkeypatch.setattr(CoarseIndex, '__init__', fail)
    index = DescriptorIndex(DIM, brute_force_bytes=0)
    rows = rng.normal(size=(100, DIM)).astype(np.float32)
    index.extend(rows)
    index.build_if_due()
    index.wait()
    assert index.search(rows[42], 1, np.ones(100, bool))[0].tolist() == [42]
    assert 'cannot build an index' in caplog.text


def test_a_query_can_ask_for_more_than_top_k_and_knows_no_probability(rng):
    database = empty(**NO_EXCLUSION, top_k=3)
    drive(database, circle(30), rng)
    more = database.query(database[29], 20)
    assert [len(database.query(database[29])), len(more)] == [3, 20]
    assert all(math.isnan(m.probability) for m in more)
    ids = np.array([m.keyframe_id for m in more])
    np.testing.assert_allclose(
        database.distances(database[29].descriptor, ids), [m.distance for m in more], rtol=1e-6
    )


def test_locations_and_newest_ids_follow_the_session(rng):
    database = empty(**NO_EXCLUSION)
    drive(database, circle(5), rng, session='a')
    drive(database, circle(4), rng, session='b', with_odometry=False)
    drive(database, circle(3), rng, session='a', start_s=100.0)
    assert database.newest_ids('a', 4).tolist() == [4, 9, 10, 11]
    assert database.newest_ids('new', 4).tolist() == []
    places = database.locations(np.array([11, 5, 0]))
    assert places.session.tolist() == [0, 1, 0]
    assert np.isnan(places.xyz[1]).all()
    np.testing.assert_allclose(places.xyz[0], database.place(11).T_odom_sensor[:3, 3])
    assert places.traveled_m[0] == database.place(11).traveled_m
    here = database.location_of(database[11])
    np.testing.assert_allclose(here.xyz[0], places.xyz[0])
    assert here.session[0] == 0


def test_memory_stays_within_memory_bytes_per_keyframe(rng):
    database = empty(max_cloud_points=50, cloud_voxel_m=0.0)
    drive(database, circle(200), rng, points=80)
    assert len(database[0].points) == 50
    assert 200 * 50 * 6 < database.memory_bytes() <= 200 * database.memory_bytes_per_keyframe()
    parts = (database._index.nbytes, database._places.nbytes, database._clouds.memory_bytes)
    assert database.memory_bytes() == sum(parts)
    assert database.memory_bytes_per_keyframe() == (
        database._index.max_bytes_per_row + BYTES_PER_PLACE + OVERHEAD_BYTES + 50 * BYTES_PER_POINT
    )


def test_brute_force_limit_is_in_mebibytes(rng):
    """256 descriptors of 1024 floats are one MiB; the next one makes search use an index."""
    database = empty(dim=1024, brute_force_limit_mib=1)
    drive(database, circle(256), rng, points=1)
    assert database.wait(60.0)
    assert database._index.is_exact
    drive(database, circle(1), rng, points=1, session='b')
    assert database.wait(60.0)
    assert not database._index.is_exact


def test_cloud_memory_limit_is_in_mebibytes(rng):
    """Nine clouds of 18,000 points are less than one MiB, ten are more."""
    database = empty(cloud_memory_mib=1, cloud_voxel_m=0.0)
    drive(database, circle(9), rng, points=18_000)
    assert database._clouds.disk_bytes == 0
    drive(database, circle(1), rng, points=18_000, session='b')
    assert database._clouds.disk_bytes > 0
    database.close()


def test_a_stored_keyframe_equals_the_one_that_was_added(rng):
    database = empty(cloud_voxel_m=0.5)
    for added in drive(database, circle(3), rng, points=500):
        stored = database[added.id]
        for name in ('session', 'stamp_ns', 'traveled_m'):
            assert getattr(stored, name) == getattr(added, name)
        for name in ('descriptor', 'points', 'T_odom_sensor'):
            np.testing.assert_array_equal(getattr(stored, name), getattr(added, name))


def test_clouds_above_the_limit_move_to_disk_unchanged(rng, tmp_path):
    store = CloudStore(memory_limit_bytes=1000, folder=tmp_path)
    clouds = [pack(rng.uniform(-90, 90, (n, 3)).astype(np.float32), 0.0, 99) for n in range(60)]
    for cloud in clouds:
        store.append(store.take(cloud))
    assert sum(c.cells.nbytes for c in clouds) == store.disk_bytes + store._cells_bytes
    assert store._cells_bytes <= 1000
    assert list(tmp_path.iterdir()) == []  # an unnamed file
    for i, cloud in enumerate(clouds):
        assert np.array_equal(store[i].points, cloud.points)
    assert store.point_count(60) == sum(range(60))
    store.close()
    with pytest.raises(CloudError, match='closed'):
        store[1]


def test_cloud_blocks_are_freed_with_their_last_cloud(rng, monkeypatch):
    monkeypatch.setattr(cloud_store, 'BLOCK_POINTS', 100)
    store = CloudStore(memory_limit_bytes=150 * 6)
    clouds = [pack(rng.uniform(-90, 90, (n, 3)).astype(np.float32), 0.0, 999)
              for n in (40, 40, 40, 250, 0, 30)]  # fmt: skip
    blocks = []
    for cloud in clouds[:3]:
        store.append(store.take(cloud))
        blocks.append(weakref.ref(store._clouds[-1].cells.base))
    assert blocks[0]() is blocks[1]() is not blocks[2]()
    for cloud in clouds[3:]:
        store.append(store.take(cloud))
    assert blocks[0]() is None
    for i, cloud in enumerate(clouds):
        assert np.array_equal(store[i].cells, cloud.cells)


def test_memory_bytes_matches_the_memory_of_the_process():
    def own_bytes():
        (line,) = [x for x in Path('/proc/self/status').read_text().splitlines()
                   if x.startswith('RssAnon')]  # fmt: skip
        return 1024 * int(line.split()[1])

    store, before = CloudStore(memory_limit_bytes=0), own_bytes()
    for _ in range(600):
        store.append(store.take(QuantizedCloud(0.01, np.ones((17_500, 3), dtype=np.int16))))
    assert own_bytes() - before == pytest.approx(store.memory_bytes, rel=0.15)


def test_clouds_stay_in_memory_if_the_disk_is_full(rng, monkeypatch, caplog):
    def full(*args):
        raise OSError(errno.ENOSPC, 'No space left on device')

    monkeypatch.setattr(cloud_store.os, 'pwrite', full)
    store = CloudStore(memory_limit_bytes=100)
    cloud = pack(rng.uniform(-90, 90, (30, 3)).astype(np.float32), 0.0, 99)
    for _ in range(50):
        store.append(store.take(cloud))
    assert all(np.array_equal(store[i].cells, cloud.cells) for i in range(50))
    assert 0 < caplog.text.count('cannot move clouds to disk') < 40


def test_a_keyframe_without_memory_for_its_cloud_is_not_added(rng, monkeypatch):
    def no_memory(*args):
        raise OSError(errno.ENOMEM, 'Cannot allocate memory')

    database = empty()
    drive(database, circle(5), rng, session='a')
    with monkeypatch.context() as patch:
        patch.setattr(cloud_store, 'BLOCK_POINTS', 1)
        patch.setattr(database._clouds, '_block', np.empty((0, 3), np.int16))
        patch.setattr(cloud_store, 'mmap', no_memory)
        with pytest.raises(OSError, match='memory'):
            drive(database, circle(1), rng, session='b')
    assert len(database) == 5
    drive(database, circle(3), rng, session='c')
    assert [database.place(i).session for i in range(8)] == [*'aaaaaccc']


def test_an_inconsistent_database_rejects_keyframes_and_saves_consistently(
    rng, monkeypatch, tmp_path
):
    """Otherwise later keyframes would have the pose of their predecessor."""

    def no_memory(rows):
        raise MemoryError

    database = empty()
    drive(database, circle(5), rng, session='a')
    with monkeypatch.context() as patch:
        patch.setattr(database._index, 'extend', no_memory)
        with pytest.raises(MemoryError):
            drive(database, circle(1), rng, session='b')
    with pytest.raises(DatabaseError, match='6 places and 6 clouds, expected 5'):
        drive(database, circle(1), rng, session='c')
    database.save(tmp_path / 'a.map')
    again = PlaceDatabase.load(tmp_path / 'a.map', database.config, fingerprint='checkpoint')
    assert len(again) == 5
    drive(again, circle(1), rng, session='c')
    assert again.place(5).session == 'c'


@pytest.mark.parametrize('reach_m', [0.5, 100.0, 327.0, 5000.0])
def test_quantization_error_is_at_most_half_a_step(rng, reach_m):
    points = rng.uniform(-reach_m, reach_m, (500, 3)).astype(np.float32)
    packed = pack(points, 0.0, 1000)
    assert packed.step_m == max(0.01, np.abs(points).max() / 32767)
    assert np.abs(packed.points - points).max() <= 0.5001 * packed.step_m + 1e-4
    again = pack(packed.points, 0.0, 1000)
    assert np.array_equal(again.cells, packed.cells)


def test_append_array_behaves_like_an_array(rng):
    blocks = AppendArray((300,), np.float64)
    rows = rng.normal(size=(4000, 300))
    for start in range(0, 4000, 700):
        blocks.extend(rows[start : start + 700])
    assert np.array_equal(np.concatenate(list(blocks.parts(5, 3999))), rows[5:3999])
    chosen = np.array([3999, 0, 1747, 1748])
    assert np.array_equal(blocks.take(chosen), rows[chosen])
    assert np.array_equal(blocks[1748], rows[1748])
    with pytest.raises(IndexError, match='row 4000, expected 0 to 3999'):
        blocks[4000]
    with pytest.raises(ValueError, match='read-only'):
        blocks[0][0] = 1.0


def test_invalid_descriptors_are_rejected(rng):
    database = empty()
    with pytest.raises(DatabaseError, match=r'shape \(3,\), expected \(16,\)'):
        database.make_keyframe(np.zeros(3, np.float32), NO_POINTS, session='a', stamp_ns=0)
    bad = np.zeros(DIM, np.float32)
    bad[5] = np.nan
    with pytest.raises(DatabaseError, match=r'descriptor\[5\] is nan .*expected finite'):
        database.make_keyframe(bad, NO_POINTS, session='a', stamp_ns=0)
    assert len(database) == 0
    assert database.sessions == ()


@pytest.mark.parametrize('stamp_ns', [9 * S, 9 * S - 1, 0])
def test_stamps_within_a_session_must_ascend(rng, stamp_ns):
    database = empty()
    drive(database, circle(10), rng)
    zero = np.zeros(DIM, np.float32)
    with pytest.raises(DatabaseError, match=f'stamp {stamp_ns} ns, expected .* {9 * S} ns'):
        database.make_keyframe(zero, NO_POINTS, session='robot/0', stamp_ns=stamp_ns)
    first = database.make_keyframe(zero, NO_POINTS, session='robot/1', stamp_ns=stamp_ns)
    second = database.make_keyframe(zero, NO_POINTS, session='robot/1', stamp_ns=stamp_ns)
    database.add(first)
    with pytest.raises(DatabaseError, match='keyframe 10, expected the next id, 11'):
        database.add(second)
    assert len(database) == 11


def test_invalid_poses_clouds_and_ids_are_rejected(rng):
    database = empty()
    zero = np.zeros(DIM, np.float32)
    T = np.eye(4)
    T[1, 3] = np.nan
    with pytest.raises(DatabaseError, match=r'nan.*expected a 4 x 4 matrix of finite'):
        database.make_keyframe(zero, NO_POINTS, session='a', stamp_ns=0, T_odom_sensor=T)
    cloud = np.full((4, 3), np.inf, np.float32)
    with pytest.raises(CloudError, match='4 of 4 points are not finite'):
        database.make_keyframe(zero, cloud, session='a', stamp_ns=0)
    with pytest.raises(CloudError, match=r'expected points of shape \(N, 3\), got \(4, 2\)'):
        database.make_keyframe(zero, cloud[:, :2], session='a', stamp_ns=0)
    with pytest.raises(DatabaseError, match='keyframe 0, expected'):
        database.place(0)
    with pytest.raises(ConfigError, match='top_k'):
        DatabaseConfig(top_k=0)
