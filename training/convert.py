"""Turn recordings into a dataset to train and evaluate on.

    python training/convert.py BAG ... --out DIR

Each BAG (rosbag2 folder, .mcap, .db3 or ROS 1 .bag) becomes a run DIR/<name> that the dataset
`places` reads: keyframes, or with --submap scans merged along the odometry.
"""

import argparse
from collections.abc import Iterable, Sequence
import logging
from pathlib import Path
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lpr_ros.core.bags import OnBad
    from lpr_ros.core.errors import DatasetError
    from lpr_ros.core.keyframes import KeyframeConfig
    from lpr_training.datasets.bag import BagDataset


def build_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add('bags', nargs='+', type=Path, metavar='BAG')
    add('--out', type=Path, required=True, metavar='DIR', help='folder of the dataset')
    add('--points', default='', metavar='TOPIC', help='PointCloud2, if there are several')
    add('--odometry', default='', metavar='TOPIC', help='Odometry or PoseStamped, if several')
    add('--truth', default='', metavar='TOPIC', help='true poses (default: named ground_truth)')
    add('--poses', type=Path, metavar='FILE', help='TUM or KITTI file in place of --odometry')
    add(
        '--extrinsic',
        type=float,
        nargs=7,
        metavar=('X', 'Y', 'Z', 'QX', 'QY', 'QZ', 'QW'),
        help='sensor on the body of the odometry (default: from /tf_static)',
    )
    add('--distance', type=float, default=2.0, metavar='M', help='keyframe every M metres (2)')
    add('--angle', type=float, default=0.0, metavar='DEG', help='and every DEG turned (off)')
    add('--interval', type=float, default=0.0, metavar='S', help='and every S seconds (off)')
    add('--submap', type=float, default=0.0, metavar='M', help='merge M metres of scans (off)')
    add('--voxel', type=float, default=0.1, metavar='M', help='one point per voxel in submaps')
    add('--skip-bad', action='store_true', help='leave out and list what cannot be read')
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Convert recordings; return 0, 1 on bad input, 130 when interrupted."""
    args = build_parser().parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format='%(levelname)s: %(message)s')
    from lpr_ros.core.bag_source import run_name  # imported late: --help must be instant
    from lpr_ros.core.errors import LprError

    bad: list[DatasetError] = []
    try:
        runs = [run_name(bag) for bag in args.bags]
        if len(set(runs)) != len(runs):
            raise LprError(f'expected bags with different names, got {runs}')
        for bag, run in zip(args.bags, runs, strict=True):
            print(convert_one(args, bag, run, bad))
    except (LprError, OSError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('interrupted; the same command goes on from here', file=sys.stderr)
        return 130
    if bad:
        print(f'left out {len(bad)} that could not be read:')
        for error in bad:
            print(f'  {error}')
    return 0


def convert_one(
    args: argparse.Namespace, bag: Path, run: str, bad: 'list[DatasetError]'
) -> str:
    """Convert one recording and return a line that says what came of it."""
    from lpr_training.conversion import convert, is_complete

    settings = settings_of(args, bag)
    if is_complete(args.out, run, settings):
        return f'{run}: already converted'
    on_bad = bad.append if args.skip_bad else None
    dataset = open_bag(args, bag, run, on_bad)
    done = convert(
        dataset, args.out, run, settings, progress=progress_bar(run, 'place'), on_bad=on_bad
    )
    kept = f', {done.places - done.written} from before' if done.places > done.written else ''
    lost = f', {dataset.without_pose} scans without a pose' if dataset.without_pose else ''
    return (
        f'{run}: {done.places} places{kept}{lost} in {args.out / run} '
        f'(clouds {dataset.cloud_topic}, poses {dataset.pose_source}'
        f'{", truth " + dataset.truth_topic if dataset.truth_topic else ""})'
    )


def keyframes_of(args: argparse.Namespace) -> 'KeyframeConfig':
    """Return the keyframe configuration that the command line asks for."""
    from lpr_ros.core.keyframes import KeyframeConfig

    return KeyframeConfig(
        distance_m=args.distance,
        angle_deg=args.angle,
        interval_s=args.interval,
        submap_m=args.submap,
        submap_voxel_m=args.voxel,
    )


def settings_of(args: argparse.Namespace, bag: Path) -> dict[str, Any]:
    """Return all that the result depends on, to be kept beside it."""
    return {
        'bag': str(bag.resolve()),
        'points': args.points,
        'odometry': args.odometry,
        'truth': args.truth,
        'poses': str(args.poses.resolve()) if args.poses else None,
        'extrinsic': args.extrinsic,
        'keyframes': keyframes_of(args).to_dict(),
    }


def open_bag(
    args: argparse.Namespace, bag: Path, run: str, on_bad: 'OnBad | None'
) -> 'BagDataset':
    """Open a recording as a dataset of keyframes."""
    from lpr_ros.core.errors import ConfigError
    from lpr_ros.core.geometry import pose_from_quaternion
    from lpr_training.datasets.bag import BagDataset

    extrinsic = None
    if args.extrinsic:
        if not any(args.extrinsic[3:]):
            raise ConfigError(f'--extrinsic: expected a unit quaternion, got {args.extrinsic[3:]}')
        extrinsic = pose_from_quaternion(args.extrinsic[:3], args.extrinsic[3:])
    return BagDataset(
        bag,
        points=args.points,
        odometry=args.odometry,
        truth=args.truth,
        poses=args.poses,
        T_base_sensor=extrinsic,
        keyframes=keyframes_of(args),
        on_bad=on_bad,
        progress=progress_bar(f'{run}: index', 'message'),
    )


def progress_bar(label: str, unit: str) -> Any:
    """Return a function that shows how far an iteration has come."""
    from tqdm import tqdm

    def progress(items: Iterable[Any], total: int) -> Iterable[Any]:
        return tqdm(items, total=total, desc=label, unit=unit)

    return progress


if __name__ == '__main__':
    raise SystemExit(main())
