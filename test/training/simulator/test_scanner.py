"""Ranges match analytic shapes, and sensor errors have their declared size."""

from dataclasses import replace

import numpy as np
import pytest

from lpr_training.simulator.geometry import mesh as m
from lpr_training.simulator.geometry.ground import Ground
from lpr_training.simulator.geometry.materials import Material
from lpr_training.simulator.sensor.model import BeamGroup, Sensor
from lpr_training.simulator.sensor.scanner import Scanner, Scene

PERFECT = Sensor(
    beams=(BeamGroup(32, 10.0, -30.0),), columns=360, min_range_m=0.1, max_range_m=100.0,
    range_at_10_percent_m=1e4, range_sigma_m=0.0, dropout=0.0, divergence_mrad=0.0,
)  # fmt: skip
HERE = np.eye(4)


def wall(distance_m: float, material: Material = Material.BRICK) -> m.Mesh:
    return m.box((1.0, 400.0, 200.0), (distance_m + 0.5, 0.0, 0.0), material)


def floor(depth_m: float) -> m.Mesh:
    return m.box((400.0, 400.0, 1.0), (0.0, 0.0, -depth_m - 0.5), Material.ASPHALT)


def sweep(mesh, sensor, rng, T_start_end=HERE, movers=None):
    return Scanner(mesh, sensor).sweep(HERE, T_start_end, rng, movers)


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def test_ranges_to_a_floor_match_geometry(rng):
    found = sweep(floor(1.8), PERFECT, rng)
    elevation = PERFECT.elevations_rad()[found.ring]
    assert np.allclose(found.points[:, 2], -1.8, atol=1e-3)
    assert np.allclose(np.linalg.norm(found.points, axis=1), 1.8 / np.sin(-elevation), rtol=1e-4)
    reach = -1.8 / np.tan(PERFECT.elevations_rad())
    expected = int(((reach > 0) & (1.8 / np.abs(np.sin(PERFECT.elevations_rad())) < 100)).sum())
    assert len(found.points) == expected * PERFECT.columns


def test_only_the_near_side_of_a_box_is_visible(rng):
    found = sweep(m.box((2.0, 4.0, 6.0), (11.0, 0.0, 0.0), Material.PAINT), PERFECT, rng)
    assert len(found.points) > 100
    assert np.allclose(found.points[:, 0], 10.0, atol=1e-3)
    assert np.abs(found.points[:, 1]).max() <= 2.001


def test_points_outside_the_range_limits_are_dropped(rng):
    sensor = replace(PERFECT, min_range_m=3.0, max_range_m=20.0)
    r = np.linalg.norm(sweep(m.merge([floor(1.8), wall(30.0)]), sensor, rng).points, axis=1)
    assert 3.0 <= r.min() < 4.0
    assert 15.0 < r.max() <= 20.0


def test_range_noise_has_the_declared_sigma(rng):
    found = sweep(wall(10.0), replace(PERFECT, range_sigma_m=0.05), rng)
    r = np.linalg.norm(found.points, axis=1)
    truth = 10.0 / (found.points[:, 0] / r)
    assert np.std(r - truth) == pytest.approx(0.05, rel=0.05)


def test_dropout_has_the_declared_rate(rng):
    whole = len(sweep(wall(10.0), PERFECT, rng).points)
    assert len(sweep(wall(10.0), replace(PERFECT, dropout=0.3), rng).points) == pytest.approx(
        0.7 * whole, rel=0.03
    )


def test_glass_returns_less_often_and_signs_are_bright(rng):
    brick, glass, sign = (
        sweep(wall(10.0, k), PERFECT, rng) for k in (Material.BRICK, Material.GLASS, Material.SIGN)
    )
    assert len(glass.points) < 0.5 * len(brick.points)
    assert sign.intensity.mean() > 2.0 * brick.intensity.mean()
    assert brick.intensity.min() >= 0.0
    assert sign.intensity.max() <= 1.0


def test_dark_targets_disappear_with_distance(rng):
    sensor = replace(PERFECT, range_at_10_percent_m=20.0)
    dark, bright = (sweep(wall(60.0, k), sensor, rng) for k in (Material.RUBBER, Material.SNOW))
    assert len(dark.points) < 0.05 * len(bright.points)


def test_wide_beams_produce_mixed_pixels_at_edges(rng):
    post = m.box((0.2, 0.3, 50.0), (9.0, 0.0, 0.0), Material.METAL)
    scene = m.merge([wall(10.0), post])

    def between(sensor):
        x = sweep(scene, sensor, rng).points[:, 0]
        return int(((x > 9.15) & (x < 9.9)).sum())

    assert between(PERFECT) == 0
    assert between(replace(PERFECT, divergence_mrad=3.0)) > 0


def test_motion_distortion_is_undone_by_the_motion(rng):
    T_start_end = np.eye(4)
    T_start_end[0, 3] = 1.5
    found = sweep(wall(10.0), PERFECT, rng, T_start_end)
    assert np.ptp(found.points[:, 0]) > 0.5
    assert np.allclose(found.points[:, 0] + 1.5 * found.phase, 10.0, atol=1e-3)


def test_rotation_distortion_is_undone_by_the_rotation(rng):
    angle = 0.2
    T_start_end = np.eye(4)
    T_start_end[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    found = sweep(wall(10.0), PERFECT, rng, T_start_end)
    turn = angle * found.phase
    x = np.cos(turn) * found.points[:, 0] - np.sin(turn) * found.points[:, 1]
    assert np.allclose(x, 10.0, atol=1e-3)


def test_a_moving_vehicle_occludes_the_background(rng):
    car = m.box((4.0, 2.0, 2.0), (7.0, 0.0, 0.0), Material.PAINT)
    alone = sweep(wall(10.0), PERFECT, rng)
    hidden = sweep(wall(10.0), PERFECT, rng, movers=car)
    near = hidden.points[hidden.points[:, 0] < 9.0]
    assert not (alone.points[:, 0] < 9.0).any()
    assert np.allclose(near[:, 0].min(), 5.0, atol=1e-3)


def test_rays_hit_the_ground_at_its_height(rng):
    ground = Ground(rng.normal(size=(30, 40)), (-5.0, 3.0), 2.0)
    xy = rng.uniform([-4.0, 4.0], [70.0, 58.0], (500, 2))
    origins = np.column_stack([xy, np.full(500, 50.0)]).astype(np.float32)
    down = np.tile(np.array([0.0, 0.0, -1.0], np.float32), (500, 1))
    mesh = ground.mesh(np.zeros((29, 39), np.uint8))
    hits = Scene(mesh).cast(origins, down, 1000.0)
    assert np.allclose(50.0 - hits.range_m, ground.height(xy), atol=1e-3)
