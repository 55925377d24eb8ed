"""Simulated drives: worlds unseen in training, and worlds made to mislead."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from lpr_ros.core.geometry.odometry_noise import OdometryNoiseConfig
from lpr_training.benchmarks.loops.recorded_drive import ODOMETRY, RecordedDrive, join_sessions
from lpr_training.benchmarks.loops.recorder import Recorder
from lpr_training.simulator import (
    Day,
    OdometryConfig,
    make_drive,
    make_world,
    on_day,
)
from lpr_training.simulator.drive.drive import drive_route
from lpr_training.simulator.drive.ramps import drive_through
from lpr_training.simulator.world.avenues import avenue_route, make_avenues
from lpr_training.simulator.world.garage import garage_path, make_garage
from lpr_training.simulator.world.street_scenes import with_furniture, with_standing_traffic

WORLDS = ('city', 'suburb', 'forest')
ALIASED_WORLDS = ('car_park', 'identical_houses')
SENSORS = ('hdl64', 'vlp16')
WORLD_M = {'car_park': 120.0}  # side; others 300
DRIVE_M = {'car_park': 800.0}  # others 1500
SESSION_M = 800.0  # of drives with two sessions
GARAGE_SPEED_MPS = 4.0
GARAGE_REVISIT_M = 3.0  # less than from floor to floor: another floor is another place
# Wheel odometry drifts twice as much as the defaults expect.
WHEELS = replace(
    ODOMETRY,
    scale_sigma=2.0 * ODOMETRY.scale_sigma,
    heading_bias_deg=2.0 * ODOMETRY.heading_bias_deg,
    heading_walk_deg=2.0 * ODOMETRY.heading_walk_deg,
    tilt_walk_deg=2.0 * ODOMETRY.tilt_walk_deg,
    position_walk_m=2.0 * ODOMETRY.position_walk_m,
)
WHEELS_NOISE = OdometryNoiseConfig(
    position_fraction=2.0 * OdometryNoiseConfig().position_fraction,
    heading_deg=2.0 * OdometryNoiseConfig().heading_deg,
    tilt_deg=2.0 * OdometryNoiseConfig().tilt_deg,
)


def simulated_drive(
    recorder: Recorder,
    kind: str,
    sensor: str = 'hdl64',
    *,
    length_m: float | None = None,
    odometry: OdometryConfig = ODOMETRY,
) -> RecordedDrive:
    """Simulate a drive with revisits in both directions and drifting odometry."""
    world = make_world(kind, recorder.seed, size_m=WORLD_M.get(kind, 300.0))
    drive = make_drive(world, length_m or DRIVE_M.get(kind, 1500.0), seed=recorder.seed)
    return recorder.record(world, drive, sensor, odometry=odometry)


def wheels(recorder: Recorder, kind: str, *, told: bool) -> RecordedDrive:
    """Simulate a world of look-alikes with odometry of wheels; the pipeline may be told."""
    drive = simulated_drive(recorder, kind, odometry=WHEELS)
    return replace(drive, odometry_noise=WHEELS_NOISE if told else None)


def avenues(recorder: Recorder) -> RecordedDrive:
    """Drive along copies of one avenue: matches are wrong until a street comes into sight."""
    world = make_avenues(recorder.seed)
    return recorder.record(world, drive_route(world, avenue_route(), seed=recorder.seed))


def garage(recorder: Recorder) -> RecordedDrive:
    """Drive up and down a parking garage with identical floors."""
    drive = drive_through(garage_path(), speed_mps=GARAGE_SPEED_MPS)
    recorded = recorder.record(make_garage(recorder.seed), drive)
    return replace(recorded, revisit_radius_m=GARAGE_REVISIT_M)


def moved_furniture(recorder: Recorder, length_m: float = SESSION_M) -> RecordedDrive:
    """Drive on two days; half of the furniture is moved between them, and other cars park."""
    seed = recorder.seed
    city = make_world('city', seed, size_m=300.0)
    days = [
        with_furniture(on_day(city, Day(number=number)), moved=moved, seed=seed)
        for number, moved in ((0, 0.0), (1, 0.5))
    ]
    drives = [make_drive(city, length_m, seed=seed + k, route_seed=seed) for k in range(2)]
    return join_sessions([recorder.record(*pair) for pair in zip(days, drives, strict=True)])


def standing_traffic(recorder: Recorder, length_m: float = SESSION_M) -> RecordedDrive:
    """Drive on two days; on the first, traffic stands still in the lanes."""
    seed = recorder.seed
    city = make_world('city', seed, size_m=300.0)
    drives = [make_drive(city, length_m, seed=seed + k, route_seed=seed) for k in range(2)]
    days = [
        with_standing_traffic(city, drives[0].xy, seed=seed),
        on_day(city, Day(number=1)),
    ]
    return join_sessions([recorder.record(*pair) for pair in zip(days, drives, strict=True)])


SIMULATED = tuple(f'{w} {s}' for w in (*WORLDS, *ALIASED_WORLDS) for s in SENSORS)
ADVERSARIAL: dict[str, Callable[[Recorder], RecordedDrive]] = {
    'identical_houses wheels': partial(wheels, kind='identical_houses', told=False),
    'identical_houses wheels told': partial(wheels, kind='identical_houses', told=True),
    'car_park wheels': partial(wheels, kind='car_park', told=False),
    'car_park wheels told': partial(wheels, kind='car_park', told=True),
    'avenues': avenues,
    'garage': garage,
    'moved_furniture': moved_furniture,
    'standing_traffic': standing_traffic,
}
