"""Scan Context: bins, yaw invariance of the distance, yaw recovery, and the two searches."""

from pathlib import Path

import numpy as np
import pytest

from lpr_training.datasets.kitti_bev import lift
from lpr_training.descriptors.scan_context import (
    ScanContextConfig,
    compare,
    describe,
    match_before,
    rank,
    ring_keys,
)
from lpr_training.evaluation.retrieval import exclude_recent

CONFIG = ScanContextConfig()
SECTOR = 2 * np.pi / CONFIG.sectors
DRIVE = Path(__file__).resolve().parents[4] / 'shared' / 'data' / 'kitti_bev_05.npz'


def make_cloud(seed, count=6000):
    """Walls and poles of random height around the sensor."""
    rng = np.random.default_rng(seed)
    wall = rng.choice(90, count)
    angle = wall * (2 * np.pi / 90) + rng.normal(0, 0.01, count)
    radius = rng.uniform(5, 75, 90)[wall] + rng.normal(0, 2, count)
    height = rng.uniform(0, 6, 90)[wall] * rng.random(count)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle), height - 1.5], axis=1)
    return points.astype(np.float32)


def rotated(points, angle):
    c, s = np.cos(angle), np.sin(angle)
    return points @ np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]], dtype=np.float32)


def test_describe_on_hand_computed_bins():
    points = np.array(
        [
            [10.0, 0.1, 1],
            [10.0, 0.2, 3],
            [0, 10.1, -1],
            [-0.1, -79, 0],
            [80.1, 0, 9],
            [5, -1e-9, 2],
        ]
    )
    context = describe(points, CONFIG)
    expected = np.zeros((20, 60))
    expected[2, 0] = 5  # the higher of two points, plus the sensor height
    expected[2, 14] = expected[2, 15] = 0
    expected[2, 15] = 1
    expected[19, 44] = 2
    expected[1, describe(points[5:], CONFIG)[1].argmax()] = 4
    np.testing.assert_allclose(context, expected)


def test_describe_is_zero_below_the_ground_and_without_points():
    assert describe(np.zeros((0, 3)), CONFIG).sum() == 0
    assert describe(np.array([[5.0, 5, -9]]), CONFIG).sum() == 0


def test_describe_ignores_non_finite_points_and_clips_edges():
    outliers = np.array([[np.nan, 1, 1], [np.inf, 1, 1], [-1e30, 1, 1], [80, 0, 1]])
    assert describe(outliers, CONFIG).sum() == 0
    edge = np.array([[np.nextafter(np.float32(80), np.float32(0)), 0, 1], [79.999, -1e-12, 1]])
    context = describe(edge, CONFIG)
    assert context[19].max() == 3
    assert context.sum() <= 6


@pytest.mark.parametrize('columns', [0, 1, 17, -20])
def test_yaw_shifts_columns_only(columns):
    # at bin centers, so that rounding cannot change the bin
    rng = np.random.default_rng(0)
    angle = (rng.integers(0, 60, 500) + 0.5) * SECTOR
    radius = rng.integers(0, 20, 500) * 4 + 2.0
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle), rng.random(500)], axis=1)
    first = describe(points, CONFIG)
    second = describe(rotated(points.astype(np.float32), columns * SECTOR), CONFIG)
    np.testing.assert_allclose(second, np.roll(first, columns, axis=1), atol=1e-6)
    np.testing.assert_allclose(ring_keys(first), ring_keys(second), rtol=1e-5)
    distance, yaw = compare(first, second[None])
    assert distance[0] == pytest.approx(0, abs=1e-5)
    assert yaw[0] == pytest.approx(columns * SECTOR, abs=1e-6)  # p_match = Rz(yaw) p_query


def test_compare_equals_the_loop():
    query, candidate = describe(make_cloud(1), CONFIG), describe(make_cloud(2), CONFIG)
    query[:, 5:9] = 0  # empty columns do not count in the mean
    best = 2.0
    for shift in range(60):
        terms = []
        for j in range(60):
            a, b = query[:, j], candidate[:, (j + shift) % 60]
            if a.any() and b.any():
                terms.append(1 - a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
        best = min(best, np.mean(terms))
    distance, _ = compare(query, np.stack([candidate, query]))
    assert distance[0] == pytest.approx(best, abs=1e-5)
    assert distance[1] == pytest.approx(0, abs=1e-5)


def test_compare_with_an_empty_context_is_one():
    empty = np.zeros((20, 60), dtype=np.float32)
    distance, _ = compare(describe(make_cloud(0), CONFIG), empty[None])
    assert distance[0] == 1.0


def test_rank_recognizes_places_from_any_heading():
    clouds = [make_cloud(seed) for seed in range(30)]
    database = np.stack([describe(cloud, CONFIG) for cloud in clouds])
    rng = np.random.default_rng(5)
    queries = np.stack([describe(rotated(c, rng.uniform(0, 6)), CONFIG) for c in clouds])
    indices, distances = rank(queries, database, CONFIG)
    assert indices.shape == (30, 10)
    assert (indices[:, 0] == np.arange(30)).mean() > 0.95
    assert (np.diff(distances, axis=1) >= 0).all()


def test_match_before_equals_rank_of_the_candidates():
    contexts = np.stack([describe(make_cloud(seed % 7), CONFIG) for seed in range(25)])
    ends = exclude_recent('frames', 5, np.zeros((25, 2)))
    indices, distances, _ = match_before(contexts, ends, CONFIG)
    assert indices[:5].tolist() == [-1] * 5
    assert np.isinf(distances[:5]).all()
    for q in range(5, 25):
        _, expected = rank(contexts[q : q + 1], contexts[: ends[q]], CONFIG)
        assert distances[q] == pytest.approx(expected[0, 0], abs=1e-6)
        assert indices[q] < ends[q]


@pytest.mark.skipif(not DRIVE.exists(), reason=f'{DRIVE} not found')
def test_yaw_of_revisits_on_kitti_05():
    """The estimated yaw of revisits agrees with the poses."""
    with np.load(DRIVE) as data:
        counts, T = data['counts'], data['T_world_sensor']
    apart = np.linalg.norm(T[1200:, None, :2, 3] - T[None, :1000, :2, 3], axis=2)
    queries = 1200 + np.argsort(apart.min(axis=1))[:20]
    matches = apart[queries - 1200].argmin(axis=1)
    config = ScanContextConfig(max_range_m=30.0, sensor_height_m=0.0)
    heading = np.arctan2(T[:, 1, 0], T[:, 0, 0])
    errors = []
    for q, m in zip(queries, matches, strict=True):
        query, match = (describe(lift(counts[i]), config) for i in (q, m))
        _, yaw = compare(query, match[None])
        errors.append((heading[q] - heading[m] - yaw[0] + np.pi) % (2 * np.pi) - np.pi)
    assert np.median(np.abs(errors)) < np.radians(3)
