"""Worlds are determined by their seed, vary by day and keep roads clear."""

import numpy as np
import pytest
from scipy.spatial import cKDTree

from lpr_ros.core.errors import ConfigError
from lpr_training.simulator import WORLDS, Day, make_drive, make_world, on_day
from lpr_training.simulator.geometry.materials import Material
from lpr_training.simulator.world.occupancy_plan import Plan, rectangle

SIZE_M = {'car_park': 60.0}


@pytest.fixture(scope='module', params=WORLDS)
def world(request):
    return make_world(request.param, 4, size_m=SIZE_M.get(request.param, 100.0))


@pytest.fixture(scope='module')
def city():
    return make_world('city', 7, size_m=120.0)


@pytest.mark.parametrize('kind', ['campus', 'forest', 'car_park'])
def test_a_seed_determines_the_world(kind):
    a, b, other = (make_world(kind, seed, size_m=60.0).mesh().tobytes() for seed in (4, 4, 5))
    assert a == b
    assert a != other


def test_another_day_moves_cars_but_not_buildings(city):
    tomorrow = on_day(city, Day(number=1))
    assert tomorrow.fixed is city.fixed
    assert tomorrow.daily.tobytes() != city.daily.tobytes()
    rebuilt = make_world('city', 7, Day(number=1), size_m=120.0)
    assert rebuilt.fixed.tobytes() == city.fixed.tobytes()
    assert rebuilt.daily.tobytes() == tomorrow.daily.tobytes()


def test_a_day_without_leaves_keeps_the_wood(city):
    def count(world, material):
        return int((world.mesh().material == material).sum())

    bare = on_day(city, Day(leaves=False))
    assert count(city, Material.LEAF) > 5 * count(bare, Material.LEAF)
    assert count(bare, Material.BARK) == count(city, Material.BARK)


def test_snow_covers_the_ground_next_to_the_road(city):
    white = on_day(city, Day(snow=True)).daily
    snow = white.material == Material.SNOW
    middle = white.vertices[white.faces[snow]].mean(axis=1)
    depth = middle[:, 2] - city.ground.height(middle[:, :2])
    assert snow.sum() > 1000
    assert 0.1 < np.median(depth) < 0.4
    assert city.plan.road_distance(middle[:, :2]).min() > city.recipe.road_width_m / 2 - 2.0


def test_no_building_stands_on_a_road(world):
    edge = world.recipe.road_width_m / 2
    for building, (x, y, yaw) in world.sites.buildings:
        footprint = rectangle((x, y), yaw, building.width_m, building.depth_m)
        assert world.plan.road_distance(footprint).min() >= edge


@pytest.mark.parametrize('seed', range(2))
def test_drives_do_not_collide_with_objects(world, seed):
    drive = make_drive(world, 600.0, seed=seed)
    assert world.plan.road_distance(drive.xy).max() < world.recipe.road_width_m / 2 + 0.6
    # Check the triangles as well as the plan; only twigs may hang over the road.
    hard = world.fixed.material != Material.LEAF
    fixed = world.fixed.vertices[world.fixed.faces[hard]].mean(axis=1)
    low = fixed[:, 2] - world.ground.height(fixed[:, :2])
    solid = fixed[(low > 0.5) & (low < 1.8)][:, :2]
    if world.sites.slots:
        slots = np.array(world.sites.slots)[:, :2]
        assert cKDTree(drive.xy).query(slots)[0].min() > 1.8  # half of two cars
    gap = cKDTree(solid).query(drive.xy[::4])[0] if len(solid) else np.inf
    assert np.min(gap) > 0.8


def test_roads_are_lined_with_objects(world):
    sites = world.sites
    near = [s[:2] for s in sites.slots] + [s[:2] for _, _, s in sites.trees]
    near += [spot[:2] for _, spot in sites.buildings]
    assert len(near) > 30


def test_buildings_vary_except_in_identical_houses():
    houses = make_world('identical_houses', 2, size_m=120.0).sites.buildings
    varied = make_world('suburb', 2, size_m=150.0).sites.buildings
    assert len({building for building, _ in houses}) == 1
    assert len({building for building, _ in varied}) == len(varied) > 20


def test_an_unknown_world_is_rejected_with_the_known_names():
    with pytest.raises(ConfigError, match=r'moon.*city.*forest'):
        make_world('moon', 0)


def test_claim_rejects_occupied_areas_and_roads():
    plan = Plan([np.array([[0.0, 0.0], [50.0, 0.0]])], 20.0)
    house = rectangle((25.0, 10.0), 0.3, 8.0, 6.0)
    assert plan.claim(house, 3.0)
    assert not plan.claim(house + 2.0, 3.0)
    assert not plan.claim(house - np.array([0.0, 8.0]), 3.0)
    assert not plan.claim(house + np.array([0.0, 30.0]), 3.0)
