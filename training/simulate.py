r"""Simulate a drive through a made-up world and write it as a bag or a dataset.

    python training/simulate.py --world city --seed 3 --out runs/city_3
    python training/simulate.py --world forest --sensor os1_128 --spacing 2 \
        --format wild_places_v3 --out runs/wild
    python training/simulate.py --trajectory poses/05.txt --format kitti --run 05 --out runs/kitti
    python training/simulate.py --world city --seed 3 --day 1 --snow --no-leaves --out runs/snow

The same options give the same bytes. A world is decided by --world and --seed; --day moves the
cars in it, --drive-seed takes another way through it.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
import sys

from tqdm import tqdm

from lpr_ros.core.errors import LprError
from lpr_training.datasets.oxford import OXFORD
from lpr_training.simulator.export import FORMATS, moved
from lpr_training.simulator.options import (
    add_options,
    drive_from,
    sensor_from,
    simulation_from,
    world_from,
)


def build_parser() -> argparse.ArgumentParser:
    """Declare the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    out = parser.add_argument_group('output')
    out.add_argument('--out', type=Path, required=True, metavar='DIR',
                     help='the bag, or the root folder of the dataset')  # fmt: skip
    out.add_argument('--format', choices=sorted(FORMATS), default='bag', help='default bag')
    out.add_argument('--run', default='', metavar='NAME',
                     help='run or sequence in the dataset: 00 (kitti), V-01 (wild)')  # fmt: skip
    out.add_argument('--part', choices=sorted(OXFORD.parts), default='evaluation',
                     help='part of an oxford run')  # fmt: skip
    out.add_argument('--origin', type=float, nargs=2, default=(0.0, 0.0), metavar='M',
                     help='where the world lies, x (east) and y (north): inside or outside the '
                     'test regions of a benchmark')  # fmt: skip
    out.add_argument('--clock', action='store_true', help='bag: write /clock too')
    out.add_argument('--quiet', action='store_true', help='no progress bar')
    return parser


def run(args: argparse.Namespace) -> str:
    """Simulate and write one drive; return a sentence that says what was written."""
    sensor_from(args)  # a wrong name is refused before the world is built
    world = world_from(args)
    drive = drive_from(args, world)
    simulation = simulation_from(args, world, drive)
    bar = tqdm(simulation, desc=args.format, unit='scan', disable=args.quiet)
    path = FORMATS[args.format](args, moved(bar, args.origin))
    return (
        f'{path}: {len(simulation)} scans of {args.sensor} along {drive.length_m:.0f} m '
        f'({drive.duration_s:.0f} s) in {args.world} {args.seed}, day {args.day}'
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, 1 on bad input, 130 on Ctrl-C."""
    args = build_parser().parse_args(argv)
    try:
        print(run(args))
    except (LprError, OSError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('interrupted: nothing was written', file=sys.stderr)
        return 130
    return 0


if __name__ == '__main__':
    sys.exit(main())
