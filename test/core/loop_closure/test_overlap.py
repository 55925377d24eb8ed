"""Overlap and free-space violation of clouds whose agreement is known by construction."""

from types import SimpleNamespace

import numpy as np
import pytest

from lpr_ros.core.geometry.se3 import invert, pose_from_euler, transform_points
from lpr_ros.core.loop_closure.overlap import CloudOverlap, geometry_log_odds, measure_overlap
from lpr_ros.core.loop_closure.registration import RegistrationConfig, prepare


def cloud(points, upright=None):
    """Return what overlap uses of a prepared cloud; by default every point is upright."""
    points = np.asarray(points, np.float32)
    return SimpleNamespace(
        points=points, upright=points if upright is None else np.asarray(upright, np.float32)
    )


def band(range_m, azimuth_deg=(-5.0, 5.0), elevation_deg=(-0.9, 0.9)):
    """Return points at one range within a window of directions."""
    azimuth, elevation = np.meshgrid(
        np.radians(np.linspace(*azimuth_deg, 40)), np.radians(np.linspace(*elevation_deg, 30))
    )
    xy = np.cos(elevation) * [np.cos(azimuth), np.sin(azimuth)]
    return range_m * np.stack([*xy, np.sin(elevation)], axis=-1).reshape(-1, 3)


def violation(reference, points):
    """Return the free-space violation of two clouds of points in one frame."""
    return measure_overlap(cloud(reference), cloud(points), np.eye(4), 0.5).free_space_violation


def test_points_in_free_space_are_violations(rng):
    """Two walls, one 10 m behind the other, against the far wall alone."""
    y, z = rng.uniform(-8, 8, 8000), rng.uniform(-1.5, 3, 8000)
    near = np.stack([np.full(8000, 10.0), y, z], axis=1).astype(np.float32)
    far = np.stack([np.full(8000, 20.0), 2 * y, 2 * z], axis=1).astype(np.float32)
    with_wall, without = (prepare(x, RegistrationConfig())
                          for x in (np.concatenate([near, far]), far))  # fmt: skip
    found = measure_overlap(without, with_wall, np.eye(4), 1.0)
    assert found.overlap_target > 0.95
    assert found.free_space_violation > 0.15
    same = measure_overlap(without, without, np.eye(4), 1.0)
    assert (same.minimum, same.free_space_violation) == (1.0, 0.0)


@pytest.mark.parametrize('degrees', [-89.0, -61.0, -41.0, -1.0, 1.0, 31.0, 61.0, 87.0])
def test_free_space_is_checked_per_elevation(degrees):
    """A farther measurement violates only what lies in its own direction."""
    window, above = (degrees - 0.9, degrees + 0.9), (degrees + 1.1, degrees + 2.9)
    near = band(10.0, elevation_deg=window)
    assert violation(band(20.0, elevation_deg=window), near) == 1.0
    assert violation(band(20.0, elevation_deg=above), near) == 0.0


@pytest.mark.parametrize('degrees', [-179.0, -91.0, -1.0, 45.0, 91.0, 179.0])
def test_free_space_is_checked_per_azimuth(degrees):
    window, beside = (degrees - 0.9, degrees + 0.9), (degrees + 1.1, degrees + 2.9)
    near = band(10.0, azimuth_deg=window)
    assert violation(band(20.0, azimuth_deg=window), near) == 1.0
    assert violation(band(20.0, azimuth_deg=beside), near) == 0.0


@pytest.mark.parametrize(('range_m', 'is_violation'), [(17.9, True), (18.1, False), (20.5, False)])
def test_a_violation_is_well_in_front_of_the_measurement(range_m, is_violation):
    """At 20 m the margin is 1 m and 5 % of the range; what lies behind is merely hidden."""
    assert violation(band(20.0), band(range_m)) == float(is_violation)


def test_only_the_nearest_measurement_of_a_direction_bounds_free_space():
    near, behind = band(10.0), band(30.0)
    wall = cloud(np.concatenate([behind, near, behind]), upright=behind)
    assert measure_overlap(wall, cloud(band(20.0)), np.eye(4), 0.5).free_space_violation == 0.0
    assert violation(behind, band(20.0)) == 1.0


def test_violations_are_a_fraction_of_the_points_that_agree_or_violate():
    """Ten points violate, thirty overlap, and sixty are in directions never measured."""
    wall = band(20.0)
    in_front = 0.5 * wall[:10]
    unseen = band(20.0, azimuth_deg=(90.0, 180.0))[:60]
    points = np.concatenate([wall[-30:], in_front, unseen])
    found = measure_overlap(cloud(wall), cloud(points), np.eye(4), 0.01)
    assert found.free_space_violation == pytest.approx(10 / 40)
    assert found.overlap_source == pytest.approx(30 / 100)
    assert found.overlap_target == pytest.approx(30 / len(wall))
    assert found.minimum == found.overlap_target


@pytest.mark.parametrize('direction', [[1, 0, 0], [-1, 0, 0], [0, 0, 1], [0, 0, -1]])
def test_single_points_are_compared_in_every_direction(direction):
    near, far = 10.0 * np.array([direction]), 20.0 * np.array([direction])
    assert violation(far, near) == 1.0
    same = measure_overlap(cloud(far), cloud(far), np.eye(4), 0.5)
    assert (same.minimum, same.free_space_violation) == (1.0, 0.0)


def test_swapping_the_clouds_swaps_the_overlaps():
    T = pose_from_euler([3.0, -2.0, 0.5], [0.1, -0.2, 2.0])
    wall = band(20.0)
    a = cloud(wall)
    b = cloud(transform_points(invert(T), wall[:500].astype(np.float32)))
    forward, backward = measure_overlap(a, b, T, 0.2), measure_overlap(b, a, invert(T), 0.2)
    assert (forward.overlap_source, forward.overlap_target) == (
        backward.overlap_target,
        backward.overlap_source,
    )
    assert forward.overlap_source == 1.0
    assert forward.minimum == forward.overlap_target < 0.8
    assert forward.free_space_violation == backward.free_space_violation


def test_clouds_without_upright_points_do_not_overlap():
    wall, flat = cloud(band(20.0)), cloud(band(10.0), upright=np.zeros((0, 3)))
    for pair in ((flat, wall), (wall, flat)):
        found = measure_overlap(*pair, np.eye(4), 1.0)
        assert (found.minimum, found.free_space_violation) == (0.0, 0.0)


def test_the_evidence_of_geometry_falls_with_violation_and_missing_overlap():
    """Linear in both, as wrong registrations of real drives become as frequent as right ones."""
    full = CloudOverlap(0.9, 1.0, 0.0)
    assert geometry_log_odds(full) == pytest.approx(7.0)
    assert geometry_log_odds(CloudOverlap(1.0, 0.75, 0.0)) == pytest.approx(6.0)
    assert geometry_log_odds(CloudOverlap(0.9, 0.9, 0.05)) == pytest.approx(2.5)
    assert 0.0 < geometry_log_odds(CloudOverlap(0.72, 0.8, 0.055)) < 1.5
    assert geometry_log_odds(CloudOverlap(0.3, 0.9, 0.5)) == pytest.approx(-7.0)
