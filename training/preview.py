"""Draw a simulated world with its drive from above, and single scans, as PNG files.

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

from lpr_training.command import make_parser, run_command
from lpr_training.simulator.tools.options import (
    add_options,
    drive_from,
    simulation_from,
    world_from,
)
from lpr_training.simulator.tools.pictures import draw_scan, draw_world
from lpr_training.simulator.tools.readme_figure import draw_figure, read_cloud


def build_parser() -> argparse.ArgumentParser:
    """Declare the command line."""
    parser = make_parser(__file__, __doc__)
    add_options(parser)
    add = parser.add_argument_group('output').add_argument
    out = Path('runs/preview')
    add('--out', type=Path, default=out, metavar='DIR', help='Output folder (%(default)s)')
    add('--scans', type=int, default=3, metavar='N', help='Number of scans to draw (%(default)s)')
    add('--cloud', type=Path, metavar='FILE', help='Draw this KITTI .bin file instead')
    add('--figure', type=Path, metavar='PNG', help='Draw the figure of the documentation instead')
    return parser


def draw(args: argparse.Namespace) -> list[Path]:
    """Draw the requested pictures and return their paths."""
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


def run(args: argparse.Namespace) -> None:
    """Draw the pictures and print their paths."""
    for path in draw(args):
        print(path)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(build_parser(), run, argv, on_interrupt='Some pictures may be missing')


if __name__ == '__main__':
    sys.exit(main())
