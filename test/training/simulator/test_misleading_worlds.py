"""Worlds made to mislead: copies are exact, paths are free, and what should move does."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.spatial import cKDTree

from lpr_training.simulator import Day, make_drive, make_world, on_day
from lpr_training.simulator.drive.drive import drive_route
from lpr_training.simulator.drive.ramps import drive_through
from lpr_training.simulator.sensor.scanner import Scene
from lpr_training.simulator.world import avenues as av
from lpr_training.simulator.world import garage as ga
from lpr_training.simulator.world.street_scenes import with_furniture, with_standing_traffic

MOUNT_M = 1.73


@pytest.fixture(scope='module')
def avenues():
    return av.make_avenues(3)


@pytest.fixture(scope='module')
def garage():
    return ga.make_garage(3)


@pytest.fixture(scope='module')
def city():
    return make_world('city', 7, size_m=120.0)


def ranges_m(mesh, origin):
    """Return the ranges of rays in all directions, slightly up and down."""
    azimuth, elevation = np.meshgrid(np.linspace(-np.pi, np.pi, 360), np.radians([-4.0, 0.0, 3.0]))
    flat = np.cos(elevation)
    rays = np.stack([np.cos(azimuth) * flat, np.sin(azimuth) * flat, np.sin(elevation)], axis=-1)
    rays = rays.reshape(-1, 3).astype(np.float32)
    origins = np.tile(np.asarray(origin, np.float32), (len(rays), 1))
    return Scene(mesh).cast(origins, rays, 200.0).range_m


def test_inside_an_avenue_nothing_tells_which_one_it_is(avenues):
    middle = av.STREET_M + av.AVENUE_M / 2
    seen = [ranges_m(avenues.mesh(), (middle, k * av.APART_M, MOUNT_M)) for k in range(av.AVENUES)]
    near = seen[0] < 30.0  # beyond, rays pass above the hedges
    assert near.mean() > 0.8
    for other in seen[1:]:
        np.testing.assert_allclose(other[near], seen[0][near], atol=1e-3)


def test_the_streets_at_the_ends_of_the_avenues_differ(avenues):
    seen = [ranges_m(avenues.mesh(), (20.0, k * av.APART_M, MOUNT_M)) for k in range(2)]
    first, second = np.minimum(seen, 200.0)
    assert (np.abs(first - second) > 0.5).mean() > 0.2


def test_the_second_avenue_is_entered_before_any_is_driven_again(avenues):
    route = av.avenue_route()
    assert route[:2] == [0, 1]
    steps = list(pairwise(route))
    streets = [frozenset(step) for step in steps]
    entered = streets.index(frozenset((2, 3)))
    assert len(set(streets[: entered + 1])) == entered + 1
    assert streets.count(frozenset((0, 1))) == streets.count(frozenset((2, 3))) == 2
    assert all(a in avenues.roads.neighbors(b) for a, b in steps)


def test_the_floors_of_the_garage_are_identical(garage):
    seen = [
        ranges_m(garage.fixed, (30.0, ga.AISLE_M, k * ga.FLOOR_M + MOUNT_M))
        for k in range(ga.FLOORS)
    ]
    for other in seen[1:]:
        np.testing.assert_allclose(other, seen[0], atol=1e-3)


def test_cars_differ_from_floor_to_floor(garage):
    low, high = (
        garage.daily.vertices[np.abs(garage.daily.vertices[:, 2] - z - 1.0) < 1.0]
        for z in (0.0, ga.FLOOR_M)
    )
    assert len(low) > 0
    assert cKDTree(low[:, :2]).query(high[:, :2])[0].max() > 1.0


def test_the_drive_through_the_garage_stays_on_its_floors_and_ramps(garage):
    drive = drive_through(ga.garage_path(), speed_mps=4.0)
    T = drive.poses(garage.ground, drive.sample_times(10.0, 1.0))
    origins = (T[:, :3, 3] + (0.0, 0.0, 1.0)).astype(np.float32)
    down = np.tile(np.array([0.0, 0.0, -1.0], np.float32), (len(origins), 1))
    height = Scene(garage.mesh()).cast(origins, down, 50.0).range_m
    np.testing.assert_allclose(height, 1.0, atol=0.15)
    assert np.unique(np.round(T[:, 2, 3] / ga.FLOOR_M)).tolist() == list(range(ga.FLOORS))


def test_a_ramp_tilts_the_vehicle_up_on_the_way_up():
    drive = drive_through(np.array([(0.0, 0.0, 0.0), (100.0, 0.0, 10.0)]), speed_mps=5.0)
    T = drive.poses(None, drive.sample_times(10.0, 1.0))[50]
    np.testing.assert_allclose(T[:3, 0], [0.995, 0.0, 0.0995], atol=1e-3)
    assert T[2, 3] == pytest.approx(T[0, 3] / 10.0, abs=1e-3)


def test_half_of_the_furniture_moves_and_the_other_half_stays(city):
    before = with_furniture(city, moved=0.0, seed=1).daily.vertices[len(city.daily.vertices) :]
    after = with_furniture(city, moved=0.5, seed=1).daily.vertices[len(city.daily.vertices) :]
    assert len(before) == len(after) > 0
    stayed = np.linalg.norm(before - after, axis=1) < 1e-6
    assert stayed.mean() == pytest.approx(0.5, abs=0.15)
    assert np.linalg.norm(before - after, axis=1)[~stayed].min() > 0.5


def test_standing_traffic_fills_the_lanes_and_leaves_the_path_free(city):
    drive = make_drive(city, 300.0)
    jammed = with_standing_traffic(city, drive.xy, seed=1)
    cars = jammed.daily.vertices[len(city.daily.vertices) :, :2]
    assert cKDTree(cars).query(drive.xy)[0].min() > 1.0
    assert city.plan.road_distance(cars).max() < city.recipe.road_width_m / 2
    tomorrow = on_day(city, Day(number=1))
    assert len(jammed.daily.faces) > len(tomorrow.daily.faces)


def test_the_drive_along_the_avenues_stays_on_the_road(avenues):
    drive = drive_route(avenues, av.avenue_route(), seed=3)
    distance = avenues.plan.road_distance(drive.xy)
    assert distance.max() < avenues.recipe.road_width_m / 2 + 0.6
