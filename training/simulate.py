r"""Simulate a drive through a generated world and write it as a bag or a dataset.

    python training/simulate.py --world city --seed 3 --out runs/city_3
    python training/simulate.py --world forest --sensor os1_128 --spacing 2 \
        --format wild_places_v3 --out runs/wild
    python training/simulate.py --trajectory poses/05.txt --format kitti --run 05 --out runs/kitti
    python training/simulate.py --world city --seed 3 --day 1 --snow --no-leaves --out runs/snow

The same options produce the same bytes. --world and --seed define the world; --day changes its
parked cars and traffic, --drive-seed the route through it.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
import sys

from tqdm import tqdm

from lpr_training.command import make_parser, run_command
from lpr_training.datasets.oxford import OXFORD
from lpr_training.simulator.tools.export import FORMATS, moved
from lpr_training.simulator.tools.options import (
    add_options,
    drive_from,
    sensor_from,
    simulation_from,
    world_from,
)


def build_parser() -> argparse.ArgumentParser:
    """Declare the command line."""
    parser = make_parser(__file__, __doc__)
    add_options(parser)
    add = parser.add_argument_group('output').add_argument
    add('--out', type=Path, required=True, metavar='DIR', help='Bag, or root of the dataset')
    add('--format', choices=sorted(FORMATS), default='bag', help='Output format (%(default)s)')
    add('--run', default='', metavar='NAME', help='Run of the dataset: 00 (kitti), V-01 (wild)')
    parts = sorted(OXFORD.parts)
    add('--part', choices=parts, default='evaluation', help='Part of an oxford run (%(default)s)')
    add('--origin', type=float, nargs=2, default=(0.0, 0.0), metavar='M',
        help='East and north of the world, to place it inside or outside the test regions of a '
        'benchmark (0 0)')  # fmt: skip
    add('--clock', action='store_true', help='Also write /clock (bag)')
    add('--quiet', action='store_true', help='Do not show a progress bar')
    return parser


def simulate(args: argparse.Namespace) -> str:
    """Simulate and write one drive; return a summary."""
    sensor_from(args)  # check the name before building the world takes its time
    world = world_from(args)
    drive = drive_from(args, world)
    simulation = simulation_from(args, world, drive)
    bar = tqdm(simulation, desc=args.format, unit='scan', disable=args.quiet)
    path = FORMATS[args.format](args, moved(bar, args.origin))
    return (
        f'{path}: {len(simulation)} scans of {args.sensor} along {drive.length_m:.0f} m '
        f'({drive.duration_s:.0f} s) in {args.world} {args.seed}, day {args.day}'
    )


def run(args: argparse.Namespace) -> None:
    """Simulate the drive and print the summary."""
    print(simulate(args))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(build_parser(), run, argv)


if __name__ == '__main__':
    sys.exit(main())
