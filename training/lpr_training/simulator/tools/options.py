"""Command-line options for world, sensor and drive, shared by the commands."""

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

from lpr_training.simulator.drive.drive import Drive, make_drive
from lpr_training.simulator.sensor.model import Sensor, load_sensor, sensor_names
from lpr_training.simulator.simulation import Simulation, SimulationConfig, simulate_drive
from lpr_training.simulator.world.build import Day
from lpr_training.simulator.world.recipes import RECIPES
from lpr_training.simulator.world.recorded_route import read_trajectory
from lpr_training.simulator.world.world import World, make_world


def add_options(parser: ArgumentParser) -> None:
    """Declare the options of world, drive and sensor."""
    add = parser.add_argument_group('world').add_argument
    add('--world', default='city', metavar='KIND', help=f'{", ".join(RECIPES)} (%(default)s)')
    add('--seed', type=int, default=0, help='Seed of the world (%(default)s)')
    add('--size', type=float, metavar='M', help='Side length of the world (depends on its kind)')
    add('--day', type=int, default=0, help='Number of the day, which changes cars and people (0)')
    add('--no-leaves', action='store_true', help='Trees and bushes without leaves')
    add('--snow', action='store_true', help='Snow on the ground')
    add('--trajectory', type=Path, metavar='FILE',
        help='KITTI poses (N x 12) that the road of the world follows')  # fmt: skip
    add = parser.add_argument_group('drive').add_argument
    add('--length', type=float, metavar='M', help='Length (1500, or the whole trajectory)')
    add('--speed', type=float, default=8.0, metavar='M/S', help='Speed (%(default)s)')
    add('--drive-seed', type=int, default=0, help='Seed of the drive (%(default)s)')
    add('--spacing', type=float, default=0.0, metavar='M',
        help='Distance between scans (by default they come at the sensor rate)')  # fmt: skip
    add('--traffic', type=float, default=5.0, metavar='N',
        help='Moving vehicles per km of road (%(default)s)')  # fmt: skip
    add = parser.add_argument_group('sensor').add_argument
    add('--sensor', default='hdl64', metavar='NAME',
        help=f'{", ".join(sensor_names())}, or a YAML file (%(default)s)')  # fmt: skip
    add('--columns', type=int, metavar='N', help='Measurements per beam and sweep (by sensor)')
    add('--motion', action='store_true', help='Distort scans by the motion of the vehicle')


def world_from(args: Namespace) -> World:
    """Return the world that the options describe."""
    day = Day(number=args.day, leaves=not args.no_leaves, snow=args.snow)
    trajectory = read_trajectory(args.trajectory, args.length) if args.trajectory else None
    return make_world(args.world, args.seed, day, size_m=args.size, trajectory=trajectory)


def drive_from(args: Namespace, world: World) -> Drive:
    """Return the drive that the options describe."""
    return make_drive(world, args.length, speed_mps=args.speed, seed=args.drive_seed)


def sensor_from(args: Namespace) -> Sensor:
    """Return the sensor that the options describe."""
    sensor = load_sensor(args.sensor)
    return sensor if args.columns is None else replace(sensor, columns=args.columns)


def simulation_from(args: Namespace, world: World, drive: Drive) -> Simulation:
    """Return the simulation that the options describe."""
    config = SimulationConfig(
        spacing_m=args.spacing, motion_distortion=args.motion, traffic_per_km=args.traffic
    )
    return simulate_drive(world, sensor_from(args), drive, config, seed=args.drive_seed)
