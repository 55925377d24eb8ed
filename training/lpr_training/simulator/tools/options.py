"""The command-line options that choose a world, a sensor and a drive, shared by the commands."""

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

from lpr_training.simulator.build import Day
from lpr_training.simulator.drives import Drive, make_drive
from lpr_training.simulator.recipes import RECIPES
from lpr_training.simulator.sensor import Sensor, load_sensor, sensor_names
from lpr_training.simulator.simulation import Simulation, SimulationConfig, simulate_drive
from lpr_training.simulator.trajectory import read_trajectory
from lpr_training.simulator.worlds import World, make_world


def add_options(parser: ArgumentParser) -> None:
    """Declare the options of the world, the sensor and the drive."""
    world = parser.add_argument_group('world')
    world.add_argument('--world', default='city', metavar='KIND', help=f'{", ".join(RECIPES)}')
    world.add_argument('--seed', type=int, default=0, help='which world of that kind')
    world.add_argument('--size', type=float, metavar='M', help='side of the world')
    world.add_argument('--day', type=int, default=0, help='another day moves cars and people')
    world.add_argument('--no-leaves', action='store_true', help='trees and bushes are bare')
    world.add_argument('--snow', action='store_true', help='snow lies on the ground')
    world.add_argument('--trajectory', type=Path, metavar='FILE',
                       help='KITTI poses (N x 12): build the roads along this drive')  # fmt: skip
    drive = parser.add_argument_group('drive')
    drive.add_argument('--length', type=float, metavar='M',
                       help='1500, or the whole trajectory')  # fmt: skip
    drive.add_argument('--speed', type=float, default=8.0, metavar='M/S', help='default 8')
    drive.add_argument('--drive-seed', type=int, default=0, help='which drive in that world')
    drive.add_argument('--spacing', type=float, default=0.0, metavar='M',
                       help='a scan every M metres; default: at the sensor rate')  # fmt: skip
    drive.add_argument('--traffic', type=float, default=5.0, metavar='N',
                       help='moving vehicles per km of road, default 5')  # fmt: skip
    sensor = parser.add_argument_group('sensor')
    sensor.add_argument('--sensor', default='hdl64', metavar='NAME',
                        help=f'{", ".join(sensor_names())}, or a YAML file')  # fmt: skip
    sensor.add_argument('--columns', type=int, metavar='N', help='shots of a beam per sweep')
    sensor.add_argument('--motion', action='store_true',
                        help='points are measured while the vehicle moves')  # fmt: skip


def world_from(args: Namespace) -> World:
    """Make the world that was asked for."""
    day = Day(number=args.day, leaves=not args.no_leaves, snow=args.snow)
    track = read_trajectory(args.trajectory, args.length) if args.trajectory else None
    return make_world(args.world, args.seed, day, size_m=args.size, trajectory=track)


def drive_from(args: Namespace, world: World) -> Drive:
    """Make the drive that was asked for."""
    return make_drive(world, args.length, speed_mps=args.speed, seed=args.drive_seed)


def sensor_from(args: Namespace) -> Sensor:
    """Read the sensor that was asked for."""
    sensor = load_sensor(args.sensor)
    return sensor if args.columns is None else replace(sensor, columns=args.columns)


def simulation_from(args: Namespace, world: World, drive: Drive) -> Simulation:
    """Put the sensor on the drive."""
    config = SimulationConfig(
        spacing_m=args.spacing, motion_distortion=args.motion, traffic_per_km=args.traffic
    )
    return simulate_drive(world, sensor_from(args), drive, config, seed=args.drive_seed)
