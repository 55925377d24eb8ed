r"""Convert places with 3-D clouds to bird's-eye counts in the format of the public KITTI images.

    python training/birds_eye.py --data ../data_sim/worlds --out ../data_bev

Writes one file per world, kitti_bev_<world>.npz, which holds all runs of that world. The worlds
are placed 10 km apart, so that they can be loaded together with each other and with KITTI.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from lpr_ros.core.files import atomic_file
from lpr_training.command import make_parser, run_command
from lpr_training.datasets.base import world_of
from lpr_training.datasets.kitti_bev import PREFIX, SIDE, count_image
from lpr_training.datasets.registry import make_dataset

WORLD_SPACING_M = 10_000.0


def build_parser() -> argparse.ArgumentParser:
    """Return the parser."""
    parser = make_parser(__file__, __doc__)
    parser.add_argument('--data', type=Path, required=True, help='folder of converted places')
    parser.add_argument('--out', type=Path, required=True, help='folder for the .npz files')
    parser.add_argument('--quiet', action='store_true', help='hide the progress bar')
    return parser


def run(args: argparse.Namespace) -> None:
    """Write one file of bird's-eye counts per world."""
    places = make_dataset('places', args.data)
    worlds = np.array([world_of(run) for run in places.runs])
    bar = tqdm(total=len(places), unit='scan', disable=args.quiet)
    for number, world in enumerate(np.unique(worlds), start=1):
        members = np.flatnonzero(worlds == world)
        poses = places.T_world_sensor[members, :3].copy()
        poses[:, 0, 3] += WORLD_SPACING_M * number
        images = np.zeros((len(members), SIDE, SIDE), np.uint8)
        for row, index in enumerate(members):
            images[row] = count_image(places.points(index))
            bar.update()
        path = args.out / f'{PREFIX}{world}.npz'
        with atomic_file(path) as partial, partial.open('wb') as stream:
            np.savez_compressed(stream, counts=images, T_world_sensor=poses)
    print(f'{args.out}: {len(places)} scans of {len(np.unique(worlds))} worlds')


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(build_parser(), run, argv, on_interrupt='Files written so far are complete')


if __name__ == '__main__':
    raise SystemExit(main())
