"""Draw a simulated world from above with its drive, and single scans, as PNG.

python training/preview.py --world city --seed 3 --out runs/preview
python training/preview.py --world forest --sensor os1_128 --scans 5 --out runs/preview
python training/preview.py --cloud scan.bin --out runs/preview
python training/preview.py --figure docs/images/simulated_and_real.png
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
import sys

import numpy as np

from lpr_ros.core.errors import LprError
from lpr_training.simulator.figure import draw_figure, read_cloud
from lpr_training.simulator.options import add_options, drive_from, simulation_from, world_from
from lpr_training.simulator.pictures import draw_scan, draw_world


def build_parser() -> argparse.ArgumentParser:
    """Declare the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    out = parser.add_argument_group('output')
    out.add_argument('--out', type=Path, default=Path('runs/preview'), metavar='DIR',
                     help='folder of the pictures, default runs/preview')  # fmt: skip
    out.add_argument('--scans', type=int, default=3, metavar='N', help='scans to draw')
    out.add_argument('--cloud', type=Path, metavar='FILE', help='draw this KITTI .bin instead')
    out.add_argument('--figure', type=Path, metavar='PNG',
                     help='draw the figure of the README instead')  # fmt: skip
    return parser


def preview(args: argparse.Namespace) -> list[Path]:
    """Draw what was asked for; return the files."""
    if args.figure:
        args.figure.parent.mkdir(parents=True, exist_ok=True)
        draw_figure(args.figure)
        return [args.figure]
    args.out.mkdir(parents=True, exist_ok=True)
    if args.cloud:
        path = args.out / f'{args.cloud.stem}.png'
        draw_scan(read_cloud(args.cloud), path, args.cloud.name)
        return [path]
    world = world_from(args)
    drive = drive_from(args, world)
    stem = f'{args.world}_{args.seed}_{args.day}'
    paths = [args.out / f'{stem}_world.png']
    draw_world(world, drive, paths[0])
    simulation = simulation_from(args, world, drive)
    for index in np.linspace(0, len(simulation) - 1, args.scans + 2).astype(int)[1:-1]:
        scan = simulation.scan(int(index))
        paths.append(args.out / f'{stem}_{index:05d}.png')
        title = f'{stem}, scan {index}: {len(scan.points):,} points of {args.sensor}'
        draw_scan(scan.points, paths[-1], title)
    return paths


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, 1 on bad input, 130 on Ctrl-C."""
    args = build_parser().parse_args(argv)
    try:
        for path in preview(args):
            print(path)
    except (LprError, OSError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == '__main__':
    sys.exit(main())
