"""Quantizers: definition and uniqueness of cells, and errors for bad points."""

from collections import defaultdict
from dataclasses import replace
import math
import subprocess
import sys

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
import numpy as np
import pytest

from lpr_ros.core.errors import CloudError, ConfigError
from lpr_ros.core.model import wall_alignment, wall_alignment_numba
from lpr_ros.core.model.bev_counts import lift_columns
from lpr_ros.core.model.config import InputConfig
from lpr_ros.core.model.quantize import quantize
from lpr_ros.core.model.wall_alignment import wall_direction

CARTESIAN = InputConfig(step=(0.4, 0.5, 0.25))
POLAR = InputConfig(quantizer='polar', step=(0.8, 0.15, 0.2))
BEV = InputConfig(quantizer='bev', step=(0.4, 0.4, 0.4), max_range_m=30.0)
PUBLISHED = replace(BEV, bev_counts='published')
RAW = InputConfig(quantizer='points')
ALL = pytest.mark.parametrize(
    'config',
    [CARTESIAN, POLAR, BEV, PUBLISHED, RAW],
    ids=['cartesian', 'polar', 'bev', 'published', 'points'],
)

clouds = arrays(
    np.float32,
    st.tuples(st.integers(1, 60), st.just(3)),
    elements=st.floats(-50.0, 50.0, width=32),
)


def as_set(cells: np.ndarray) -> set[tuple]:
    return set(map(tuple, cells.tolist()))


def turn_quarter(points: np.ndarray) -> np.ndarray:
    return np.stack([-points[:, 1], points[:, 0], points[:, 2]], axis=1)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(points=clouds)
def test_cartesian_cells_are_the_floor_of_each_axis(points):
    cells = quantize(points, CARTESIAN)
    expected = {
        tuple(math.floor(float(v) / s) for v, s in zip(point, CARTESIAN.step, strict=True))
        for point in points
    }
    assert cells.dtype == np.int32
    assert as_set(cells) == expected
    assert len(cells) == len(expected)


def test_points_just_below_zero_fall_into_cell_minus_one():
    points = np.array([[-0.01, 0.01, -0.26], [0.39, -0.5, 0.0]])
    assert as_set(quantize(points, CARTESIAN)) == {(-1, 0, -2), (0, -1, 0)}


@settings(max_examples=50, deadline=None, derandomize=True)
@given(points=clouds)
def test_polar_cells_are_sector_ring_and_height(points):
    expected = set()
    for x, y, z in points.astype(np.float64):
        theta = 180.0 + math.degrees(math.atan2(y, x))
        ring = math.hypot(x, y)
        expected.add(
            tuple(math.floor(v / s) for v, s in zip((theta, ring, z), POLAR.step, strict=True))
        )
    cells = quantize(points, POLAR)
    assert as_set(cells) == expected
    assert len(cells) == len(expected)


@pytest.mark.parametrize(
    ('point', 'cell'),
    [
        ((-1.0, -1e-9, 0.0), (0, 6, 0)),  # just past -180 degrees
        ((0.0, -1.0, 0.0), (112, 6, 0)),  # 90 / 0.8 = 112.5
        ((1.0, 0.0, 0.1), (225, 6, 0)),
        ((0.0, 0.16, -0.1), (337, 1, -1)),
        ((-1.0, 0.0, 0.0), (450, 6, 0)),
    ],
)
def test_polar_cells_worked_by_hand(point, cell):
    assert as_set(quantize(np.array([point]), POLAR)) == {cell}


@ALL
def test_order_and_duplicates_of_points_do_not_matter(config, scene, rng):
    once = quantize(scene, config)
    shuffled = quantize(rng.permutation(scene), config)
    assert sorted(once.tolist()) == sorted(shuffled.tolist())
    if config is not RAW:
        again = np.concatenate([scene, scene])
        assert once.tolist() == quantize(again, config).tolist()
        assert len(as_set(once)) == len(once)


@ALL
def test_float64_points_give_the_cells_of_float32_ones(config, scene):
    assert np.array_equal(quantize(scene.astype(np.float64), config), quantize(scene, config))


def occupied_columns(points: np.ndarray) -> set[tuple]:
    """Count occupied 0.4 m voxels per column, drop columns with one, clip at 10, stack."""
    columns = defaultdict(set)
    for x, y, z in points.astype(np.float64):
        if max(abs(x), abs(y), abs(z)) < 30.0:
            column = math.floor(x / 0.4), math.floor(y / 0.4)
            columns[column].add(math.floor(z / 0.4))
    return {
        (*column, level)
        for column, voxels in columns.items()
        if len(voxels) > 1
        for level in range(min(len(voxels), 10))
    }


def test_bev_counts_equal_a_slow_loop(scene, rng):
    tower = np.stack([np.full(50, -7.3), np.full(50, 3.1), np.linspace(-3, 15, 50)], axis=1)
    points = np.concatenate([scene, tower]).astype(np.float32)
    cells = quantize(points, BEV)
    assert as_set(cells) == occupied_columns(points)
    assert len(as_set(cells)) == len(cells)
    assert cells[:, 2].max() == 9


def test_bev_of_a_scan_rotated_by_a_quarter_turn_is_the_rotated_bev(scene):
    cells = quantize(scene, BEV)
    turned = np.stack([-1 - cells[:, 1], cells[:, 0], cells[:, 2]], axis=1)
    assert as_set(quantize(turn_quarter(scene), BEV)) == as_set(turned)


def test_columns_are_lifted_from_zero_without_gaps():
    cells = lift_columns(np.array([[5, -2], [0, 0], [7, 7]]), np.array([3, 0, 1]))
    assert cells.tolist() == [[5, -2, 0], [5, -2, 1], [5, -2, 2], [7, 7, 0]]


def published_columns(points: np.ndarray) -> dict[tuple, int]:
    """Layers of 20 cm with a point, from 50 cm above the ground, at most 10, scaled to 10."""
    heights = defaultdict(set)
    for x, y, z in points:
        if max(abs(x), abs(y), abs(z)) < 30.0:
            column = int(x / np.float32(0.4)), int(y / np.float32(0.4))
            heights[column].add(math.floor(z / np.float32(0.01)))
    ground = np.percentile([min(column) for column in heights.values()], 25)
    counts = {
        column: min(10, len({layer for z in zs if (layer := (z - ground - 50) // 20) >= 0}))
        for column, zs in heights.items()
    }
    top = max(counts.values())
    return {c: round(10 * n / top) for c, n in counts.items() if round(10 * n / top) > 0}


def test_published_counts_equal_a_slow_loop_and_peak_at_ten(scene):
    cells = quantize(scene, PUBLISHED)
    columns, counts = np.unique(cells[:, :2], axis=0, return_counts=True)
    assert dict(zip(map(tuple, columns.tolist()), counts.tolist(), strict=True)) == (
        published_columns(scene)
    )
    assert counts.max() == 10
    assert (cells[:, 2].min(), cells[:, 2].max()) == (0, 9)


@pytest.mark.parametrize('quarters', [1, 2, 3])
def test_published_counts_rotate_with_the_scan(quarters, scene):
    here, turned = quantize(scene, PUBLISHED), scene
    for _ in range(quarters):
        turned = turn_quarter(turned)
        here = np.stack([-here[:, 1], here[:, 0], here[:, 2]], axis=1)
    assert as_set(quantize(turned, PUBLISHED)) == as_set(here)


@pytest.mark.parametrize('height_m', [-4.0, -0.5, 3.0])
def test_published_counts_do_not_depend_on_the_height_of_the_sensor(height_m, scene):
    """By whole centimeters, the resolution of heights."""
    points = np.round(scene, 2).astype(np.float64)
    points[:, 2] += 0.005  # between two centimeters
    raised = points + np.array([0.0, 0.0, height_m])
    inside = (np.abs(points) < 25.0).all(axis=1)  # away from the crop at max_range_m
    assert np.array_equal(quantize(raised[inside], PUBLISHED), quantize(points[inside], PUBLISHED))


def test_published_counts_have_the_histogram_of_the_published_images(real_scans, shared_data):
    """Same sensor, other streets: histograms differ less than between scenes."""
    with np.load(shared_data / 'kitti_bev_00.npz') as stored:
        some = stored['counts'][::20]
    images = np.stack([np.bincount(image.ravel(), minlength=11)[1:] for image in some])
    ours = []
    for scan in real_scans:
        cells = quantize(scan, replace(PUBLISHED, max_range_m=25.0))
        counts = np.unique(cells[:, :2], axis=0, return_counts=True)[1]
        ours.append(np.bincount(counts, minlength=11)[1:])
    shares = [np.mean(h, axis=0) / np.mean(h, axis=0).sum() for h in (ours, images)]
    assert np.abs(np.cumsum(shares[0]) - np.cumsum(shares[1])).max() < 0.15


@pytest.mark.parametrize('config', [BEV, PUBLISHED], ids=['occupied', 'published'])
def test_bev_of_real_scans_lies_in_the_range_of_the_published_images(
    config, real_scans, image_ranges
):
    columns, totals = image_ranges
    for scan in real_scans:
        cells = quantize(scan, config)
        assert columns[0] <= len(np.unique(cells[:, :2], axis=0)) <= columns[1]
        assert totals[0] <= len(cells) <= totals[1]


@pytest.fixture(scope='module')
def image_ranges(shared_data):
    """Range of occupied columns and of counts over all public images."""
    with np.load(shared_data / 'kitti_bev_00.npz') as stored:
        images = stored['counts']
    columns, totals = np.count_nonzero(images, axis=(1, 2)), images.sum((1, 2), dtype=np.int64)
    return (columns.min(), columns.max()), (totals.min(), totals.max())


def test_range_limits_are_horizontal_and_inclusive():
    points = np.array([[0.5, 0.0, 0.0], [1.0, 0.0, 9.0], [0.0, 3.0, -9.0], [0.0, 3.1, 0.0]])
    config = replace(RAW, min_range_m=1.0, max_range_m=3.0)
    assert quantize(points, config).tolist() == points[1:3].tolist()


@pytest.mark.parametrize('limit', [1, 7, 100])
def test_cloud_is_thinned_evenly_from_first_to_last(limit):
    points = np.arange(300.0).reshape(-1, 3)
    thinned = quantize(points, replace(RAW, max_points=limit))
    rows = thinned[:, 0] / 3.0
    assert len(thinned) == limit
    assert len(np.unique(rows)) == limit
    if limit > 1:
        assert (rows[0], rows[-1]) == (0.0, 99.0)
        assert np.ptp(np.diff(rows)) <= 1.0


@ALL
@pytest.mark.parametrize(
    ('points', 'message'),
    [
        (np.zeros((4, 2)), r'\(N, 3\), got \(4, 2\)'),
        (np.zeros(3), r'\(N, 3\), got \(3,\)'),
        (np.zeros((2, 3), np.int32), 'floating-point coordinates, got int32'),
        (np.array([[0.0, 0.0, 0.0], [1.0, np.nan, 2.0]]), r'finite.*\[1.0, nan, 2.0\] at row 1'),
        (np.array([[0.0, -np.inf, 0.0]] * 2), r'finite.*-inf.* at row 0 \(2 of 2 points'),
        (np.zeros((0, 3)), 'no point within .* expected at least one'),
    ],
)
def test_bad_points_are_reported_with_their_value(config, points, message):
    with pytest.raises(CloudError, match=message):
        quantize(points, config)


@pytest.mark.parametrize('value', [1e5, -1e5, 1e30, 3e38])
@pytest.mark.parametrize(
    'config',
    [CARTESIAN, POLAR, replace(BEV, max_range_m=0.0), replace(PUBLISHED, max_range_m=0.0)],
)
def test_points_beyond_the_grid_are_refused_not_wrapped(config, value):
    points = np.zeros((2, 3), np.float32)
    points[1, 2] = value
    with pytest.raises(CloudError, match=r'leave the grid \[-32768, 32768\)'):
        quantize(points, config)


@pytest.mark.parametrize('value', [-32768, 32767])
def test_cells_at_the_limit_of_the_grid_are_kept(value):
    points = np.array([[value + 0.5] * 3])
    assert quantize(points, replace(CARTESIAN, step=(1.0, 1.0, 1.0))).tolist() == [[value] * 3]


def test_cloud_without_points_in_range_is_refused():
    with pytest.raises(CloudError, match=r'no point within 2.0 to 5.0 m'):
        quantize(np.full((3, 3), 9.0), replace(CARTESIAN, min_range_m=2.0, max_range_m=5.0))


@pytest.mark.parametrize('config', [BEV, PUBLISHED])
def test_bev_of_flat_ground_is_refused(config):
    ground = np.zeros((400, 3))
    ground[:, :2] = np.stack(np.meshgrid(np.arange(20), np.arange(20)), -1).reshape(-1, 2)
    with pytest.raises(CloudError, match='no obstacles above the ground'):
        quantize(ground, config)


def test_obstacles_are_kept_at_any_ground_height(rng):
    xy = rng.uniform(-20.0, 20.0, (3000, 2))
    ground = np.column_stack([xy, rng.normal(0.0, 0.03, 3000)])
    post = np.column_stack([np.full((60, 2), 5.1), np.linspace(0.0, 2.9, 60)])
    for road in (-1.7, 0.0, 12.3):
        cloud = np.concatenate([ground, post]) + np.array([0.0, 0.0, road])
        kept = quantize(cloud, InputConfig(step=(0.5,) * 3, above_ground_m=0.5))
        assert set(map(tuple, kept[:, :2])) == {(10, 10)}
        np.testing.assert_array_equal(kept[:, 2], [1, 2, 3, 4, 5])


def test_flat_ground_without_obstacles_is_refused(rng):
    ground = np.column_stack([rng.uniform(-9.0, 9.0, (400, 2)), np.zeros(400)])
    with pytest.raises(CloudError, match='no obstacles above the ground'):
        quantize(ground, InputConfig(above_ground_m=0.3))


def test_heights_above_ground_require_a_cartesian_grid():
    with pytest.raises(ConfigError, match=r'above_ground_m.*bev'):
        replace(BEV, above_ground_m=0.5)


def turned_by(points: np.ndarray, angle_rad: float) -> np.ndarray:
    c, s = math.cos(angle_rad), math.sin(angle_rad)
    return points @ np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])


def off_quarter_deg(angle_rad: float) -> float:
    """Return how far an angle is from the nearest quarter turn."""
    return abs((math.degrees(angle_rad) + 45.0) % 90.0 - 45.0)


@pytest.fixture
def street(rng) -> np.ndarray:
    """Walls of houses along x on one side and a crossing street, on flat ground."""
    ground = np.column_stack([rng.uniform(-24, 24, (4000, 2)), np.full(4000, -1.7)])
    along = np.column_stack(
        [rng.uniform(-24, 12, 3000), rng.choice([-8.5, 11.5], 3000), rng.uniform(-1.7, 2.0, 3000)]
    )
    across = np.column_stack(
        [rng.choice([12.5, 20.5], 1500), rng.uniform(11, 24, 1500), rng.uniform(-1.7, 2.0, 1500)]
    )
    return np.concatenate([ground, along, across])


@pytest.mark.parametrize('heading_deg', [0.0, 7.0, 33.0, 45.0, 85.0, 89.0, 140.0, -71.0])
def test_wall_direction_follows_the_heading(heading_deg, street):
    heading = math.radians(heading_deg)
    assert off_quarter_deg(wall_direction(turned_by(street, heading)) - heading) < 1.2


def test_wall_direction_of_real_scans_follows_the_heading(real_scans):
    """Two equally good directions may swap."""
    off = []
    for scan in real_scans:
        inside = scan[np.hypot(scan[:, 0], scan[:, 1]) < 25.0].astype(np.float64)
        here = wall_direction(inside)
        off += [
            off_quarter_deg(wall_direction(turned_by(inside, turn)) - here - turn)
            for turn in (0.4, 1.1, 2.9)
        ]
    assert np.percentile(off, 75) < 1.5


def test_wall_direction_does_not_prefer_the_axes_of_the_sensor(rng):
    """Points without a direction: the grid must not add one."""
    directions = []
    for _ in range(40):
        radius, angle = 20.0 * np.sqrt(rng.random(1500)), rng.uniform(0, 2 * np.pi, 1500)
        cloud = np.column_stack([radius * np.cos(angle), radius * np.sin(angle), rng.random(1500)])
        directions.append(off_quarter_deg(wall_direction(cloud)))
    assert (np.array(directions) < 3.0).mean() < 0.3
    assert np.median(directions) > 10.0


@pytest.mark.parametrize('points', [np.zeros((1, 3)), np.ones((40, 3))], ids=['one', 'one column'])
def test_wall_direction_exists_without_walls(points):
    assert 0.0 <= wall_direction(points) < math.pi / 2.0


def test_compiled_alignment_agrees_with_numpy(rng):
    columns, weights = rng.uniform(-60.0, 60.0, (800, 2)), rng.integers(1, 10, 800)
    angles = np.radians(np.arange(0.0, 90.0, 0.7))
    expected = wall_alignment._alignment(columns, weights, angles)
    found = wall_alignment_numba.alignment(columns, weights, angles)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_numpy_and_torch_replace_numba_without_a_cache_folder():
    """For example on a read-only file system without a home folder."""
    code = """
import numba.core.caching as caching
caching.CacheImpl._locator_classes = []
from lpr_ros.core.model import wall_alignment
from lpr_ros.core.sparse import kernel_map
print(wall_alignment.wall_alignment_numba, kernel_map.kernel_map_numba)
"""
    command = [sys.executable, '-c', code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.stdout.strip() == 'None None', done.stderr


def test_stray_point_at_extreme_height_is_ignored(rng):
    ground = np.column_stack([rng.uniform(-20.0, 20.0, (3000, 2)), np.zeros(3000)])
    post = np.column_stack([np.full((30, 2), 5.1), np.linspace(0.6, 2.9, 30)])
    config = InputConfig(step=(0.5,) * 3, above_ground_m=0.5)
    stray = np.array([[5.1, 5.1, -5000.0]])
    alone = quantize(np.concatenate([ground, post]), config)
    np.testing.assert_array_equal(quantize(np.concatenate([ground, post, stray]), config), alone)


def test_wall_direction_without_numba_is_the_same(street, monkeypatch):
    compiled = wall_direction(street)
    monkeypatch.setattr(wall_alignment, 'wall_alignment_numba', None)
    assert wall_direction(street) == compiled


@pytest.mark.parametrize('config', [CARTESIAN, PUBLISHED], ids=['cartesian', 'published'])
def test_aligned_cells_are_nearly_independent_of_the_heading(config, street):
    """Up to quarter turns; points near cell borders may fall on either side."""

    def shared(aligned: bool, heading: float) -> float:
        rules = replace(config, step=(1.0, 1.0, 4.0), max_range_m=20.0, align_yaw=aligned)
        here, there = as_set(quantize(street, rules)), quantize(turned_by(street, heading), rules)
        turns = [there]
        for _ in range(3):
            x, y, z = turns[-1].T
            turns.append(np.stack([-1 - y, x, z], axis=1))
        return max(len(here & as_set(t)) / len(here | as_set(t)) for t in turns)

    for heading in (0.5, 0.9, 2.5):
        assert shared(True, heading) > max(0.5, 0.3 + shared(False, heading))


def test_alignment_requires_a_cartesian_grid():
    with pytest.raises(ConfigError, match=r'align_yaw.*polar'):
        replace(POLAR, align_yaw=True)
