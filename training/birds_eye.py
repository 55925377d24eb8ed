r"""Write places with 3-D clouds as bird's-eye counts, in the format of the public KITTI images.

    python training/birds_eye.py --data ../data_sim/worlds --out ../data_bev

One file per world, kitti_bev_<world>.npz, all its runs one after the other. Worlds are set
10 km apart, so that they can be opened together with each other and with KITTI.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
import sys

import numpy as np
from tqdm import tqdm

from lpr_ros.core.errors import LprError
from lpr_ros.core.files import whole_file
from lpr_training.datasets import make_dataset
from lpr_training.datasets.kitti_bev import PREFIX, SIDE, count_image
from lpr_training.training_data import world_of

APART_M = 10_000.0


def build_parser() -> argparse.ArgumentParser:
    """Declare the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--data', type=Path, required=True, help='folder of converted places')
    parser.add_argument('--out', type=Path, required=True, help='folder of the files')
    parser.add_argument('--quiet', action='store_true', help='no progress bar')
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, 1 on bad input, 130 when interrupted."""
    args = build_parser().parse_args(argv)
    try:
        places = make_dataset('places', args.data)
        worlds = np.array([world_of(run) for run in places.runs])
        bar = tqdm(total=len(places), unit='scan', disable=args.quiet)
        for number, world in enumerate(np.unique(worlds), start=1):
            members = np.flatnonzero(worlds == world)
            poses = places.T_world_sensor[members, :3].copy()
            poses[:, 0, 3] += APART_M * number
            images = np.zeros((len(members), SIDE, SIDE), np.uint8)
            for row, index in enumerate(members):
                images[row] = count_image(places.points(index))
                bar.update()
            args.out.mkdir(parents=True, exist_ok=True)
            with whole_file(args.out / f'{PREFIX}{world}.npz') as partial, partial.open('wb') as f:
                np.savez_compressed(f, counts=images, T_world_sensor=poses)
    except (LprError, OSError) as error:
        print(f'birds_eye.py: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('\ninterrupted; the worlds that are written are whole', file=sys.stderr)
        return 130
    print(f'{args.out}: {len(places)} scans of {len(np.unique(worlds))} worlds')
    return 0


if __name__ == '__main__':
    sys.exit(main())
