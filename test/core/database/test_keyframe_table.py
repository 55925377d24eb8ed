"""The keyframe table: stamps and distances ascend, and its memory is what it says."""

import sys

import numpy as np
import pytest

from lpr_ros.core.database.keyframe_table import (
    BYTES_PER_PLACE,
    KeyframeTable,
    Timeline,
    place_row,
)
from lpr_ros.core.errors import DatabaseError
from lpr_ros.core.geometry.se3 import pose_from_euler


def at(x, y=0.0, z=0.0):
    return pose_from_euler([x, y, z], [0.0, 0.0, 0.5])


def extended(timeline, *stamps_ns, traveled_m=None):
    """Append keyframes without odometry."""
    count = len(stamps_ns)
    timeline.extend(
        np.arange(count),
        np.array(stamps_ns),
        np.zeros(count) if traveled_m is None else np.array(traveled_m),
        np.full((count, 3), np.nan),
    )
    return timeline


def test_the_memory_of_the_table_is_a_constant_per_keyframe():
    table = KeyframeTable()
    for i in range(300):
        table.extend(place_row(i, 0.0, None), ['ab'[i % 2]])
    assert table.nbytes == 300 * BYTES_PER_PLACE


@pytest.mark.parametrize('count', [500, 4000, 9001])
def test_the_memory_of_a_timeline_includes_what_arrays_allocate_in_advance(count):
    timeline = Timeline('a', 0)
    empty_bytes = 3 * sys.getsizeof(timeline.ids)
    for i in range(count):
        extended(timeline, i)
    columns = (timeline.ids, timeline._stamps_ns, timeline._traveled_m)
    allocated = sum(map(sys.getsizeof, columns)) - empty_bytes
    assert 24 * count <= allocated <= timeline.nbytes <= 1.2 * 24 * count


@pytest.mark.parametrize(
    ('stored', 'stamps_ns', 'bad', 'newest'),
    [
        ([5], [5], 5, 5),
        ([5], [6, 4], 4, 6),
        ([1, 5], [4], 4, 5),
        ([], [5, 7, 7, 9], 7, 7),
        ([], [3, 9, 8, 7], 8, 9),
        ([], [-(2**63), 2**63 - 1, -(2**63)], -(2**63), 2**63 - 1),
    ],
)
def test_stamps_must_ascend(stored, stamps_ns, bad, newest):
    timeline = extended(Timeline('a', 0), *stored)
    with pytest.raises(DatabaseError, match=f'stamp {bad} ns, expected .* at {newest} ns'):
        timeline.check_stamps(np.array(stamps_ns))
    timeline.check_stamps(np.array([10, 11, 12]))


def test_the_traveled_distance_must_not_fall():
    timeline = extended(Timeline('a', 0), 1, 2, 3, traveled_m=[0.0, 0.5, 4.0])
    extended(timeline, 4, traveled_m=[4.0])
    for falling in ([3.9], [5.0, 4.5], [-1.0]):
        stamps_ns = range(10, 10 + len(falling))
        with pytest.raises(DatabaseError, match=r'falls below 4\.0 m'):
            extended(timeline, *stamps_ns, traveled_m=falling)
    assert len(timeline) == 4


def test_the_traveled_distance_is_the_sum_of_the_known_steps():
    """Without odometry it stays, and then continues from the last known position."""
    table = KeyframeTable()
    poses = [None, at(1.0, 1.0), at(1.0, 4.0), None, at(1.0, 4.0, 4.0), at(-2.0, 4.0, 0.0)]
    expected = [0.0, 0.0, 3.0, 3.0, 7.0, 12.0]
    for i, (T, traveled_m) in enumerate(zip(poses, expected, strict=True)):
        assert table.timeline('a').traveled_to(T) == traveled_m
        table.extend(place_row(i, traveled_m, T), ['a'])


@pytest.mark.parametrize(
    ('limits', 'count'),
    [
        ({}, 4),
        ({'age_ns': 20}, 3),
        ({'age_ns': 21}, 2),
        ({'gap_m': 0.5}, 4),
        ({'gap_m': 0.75}, 3),
        ({'gap_keyframes': 3}, 1),
        ({'gap_keyframes': 9}, 0),
        ({'age_ns': 20, 'gap_m': 0.75, 'gap_keyframes': 2}, 2),
    ],
)
def test_eligible_keyframes_are_past_all_limits(limits, count):
    """Keyframes at 10, 20, 30 and 40 ns after 0, 1/2, 1 and 3/2 m; the query is at 50 ns, 2 m."""
    timeline = extended(Timeline('a', 0), 10, 20, 30, 40, traveled_m=[0.0, 0.5, 1.0, 1.5])
    unlimited = {'age_ns': 0, 'gap_m': 0.0, 'gap_keyframes': 0}
    assert timeline.eligible(50, 2.0, **(unlimited | limits)) == count


def test_rows_of_several_sessions_are_numbered_in_each():
    table = KeyframeTable()
    table.extend(place_row(5, 0.0, at(9.0)), ['b'])
    rows = np.concatenate([place_row(i, 0.25 * i, at(i)) for i in range(5)])
    rows['session'] = [1, 0, 1, 0, 0]
    rows['stamp_ns'] += 10
    table.extend(rows, ['a', 'b'])
    assert table.sessions == ('b', 'a')
    places = [table[i] for i in range(6)]
    assert [p.session for p in places] == [*'bbabaa']
    assert [p.order for p in places] == [0, 1, 0, 2, 1, 2]
    assert [p.stamp_ns for p in places] == [5, 10, 11, 12, 13, 14]
    assert list(table.timeline('a').ids) == [2, 4, 5]
    np.testing.assert_array_equal(places[5].T_odom_sensor, at(4.0))
    assert table.timeline('a').traveled_to(at(4.0, 2.0)) == 3.0


def test_only_existing_keyframes_are_returned():
    table = KeyframeTable()
    for i in range(2):
        table.extend(place_row(i, 0.0, None), ['a'])
    assert [table[i].id for i in range(2)] == [0, 1]
    assert table[0].T_odom_sensor is None
    for bad in (-1, 2):
        with pytest.raises(DatabaseError, match=f'keyframe {bad}, expected 0 to 1'):
            table[bad]
