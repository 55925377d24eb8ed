"""Convert bags to a dataset for training and evaluation.

    python training/convert.py BAG ... --out DIR

Each BAG (rosbag2 folder, .mcap, .db3 or ROS 1 .bag) becomes a run DIR/<name> of the dataset
`places`: keyframes, or with --submap scans merged along the odometry.
"""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lpr_training.command import make_parser, run_command

if TYPE_CHECKING:
    from lpr_ros.core.errors import DatasetError
    from lpr_ros.core.recordings.base import OnBad
    from lpr_ros.core.retrieval.keyframing import KeyframeConfig
    from lpr_training.datasets.bag import BagDataset


def build_parser() -> argparse.ArgumentParser:
    """Return the parser."""
    parser = make_parser(__file__, __doc__)
    add = parser.add_argument
    add('bags', nargs='+', type=Path, metavar='BAG')
    add('--out', type=Path, required=True, metavar='DIR', help='folder for the dataset')
    add('--points', default='', metavar='TOPIC', help='PointCloud2 topic, required if several')
    add(
        '--odometry',
        default='',
        metavar='TOPIC',
        help='Odometry or PoseStamped topic, required if several',
    )
    add(
        '--truth',
        default='',
        metavar='TOPIC',
        help='ground-truth poses (default: the topic named ground_truth)',
    )
    add('--poses', type=Path, metavar='FILE', help='TUM or KITTI pose file instead of odometry')
    add(
        '--extrinsic',
        type=float,
        nargs=7,
        metavar=('X', 'Y', 'Z', 'QX', 'QY', 'QZ', 'QW'),
        help='pose of the sensor in the base frame of the odometry (default: from /tf_static)',
    )
    add(
        '--distance',
        type=float,
        default=2.0,
        metavar='M',
        help='keyframe every M meters (default: 2)',
    )
    add(
        '--angle', type=float, default=0.0, metavar='DEG', help='keyframe every DEG degrees of yaw'
    )
    add('--interval', type=float, default=0.0, metavar='S', help='keyframe every S seconds')
    add('--submap', type=float, default=0.0, metavar='M', help='merge scans over M meters')
    add(
        '--voxel',
        type=float,
        default=0.1,
        metavar='M',
        help='voxel size of submaps, one point per voxel (default: 0.1)',
    )
    add('--skip-bad', action='store_true', help='skip and list unreadable messages')
    return parser


def run(args: argparse.Namespace) -> None:
    """Convert every bag, then list what was skipped."""
    from lpr_ros.core.errors import ConfigError
    from lpr_ros.core.recordings.bag import run_name

    skipped: list[DatasetError] = []
    runs = [run_name(bag) for bag in args.bags]
    if len(set(runs)) != len(runs):
        raise ConfigError(f'expected bags with different names, got {runs}')
    for bag, name in zip(args.bags, runs, strict=True):
        print(convert_one(args, bag, name, skipped))
    if skipped:
        print(f'skipped {len(skipped)} unreadable messages:')
        for error in skipped:
            print(f'  {error}')


def convert_one(
    args: argparse.Namespace, bag: Path, run: str, skipped: 'list[DatasetError]'
) -> str:
    """Convert one bag and return a summary line."""
    from lpr_training.datasets.convert import convert, is_complete

    settings = settings_of(args, bag)
    if is_complete(args.out, run, settings):
        return f'{run}: already converted'
    on_bad = skipped.append if args.skip_bad else None
    dataset = open_bag(args, bag, run, on_bad)
    done = convert(
        dataset, args.out, run, settings, progress=progress_bar(run, 'place'), on_bad=on_bad
    )
    kept = (
        f', {done.places - done.written} of them converted earlier'
        if done.places > done.written
        else ''
    )
    lost = f', {dataset.without_pose} scans without a pose' if dataset.without_pose else ''
    return (
        f'{run}: {done.places} places{kept}{lost} in {args.out / run} '
        f'(clouds {dataset.cloud_topic}, poses {dataset.pose_source}'
        f'{", truth " + dataset.truth_topic if dataset.truth_topic else ""})'
    )


def keyframes_of(args: argparse.Namespace) -> 'KeyframeConfig':
    """Return the keyframe configuration of the command line."""
    from lpr_ros.core.retrieval.keyframing import KeyframeConfig

    return KeyframeConfig(
        distance_m=args.distance,
        angle_deg=args.angle,
        interval_s=args.interval,
        submap_m=args.submap,
        submap_voxel_m=args.voxel,
    )


def settings_of(args: argparse.Namespace, bag: Path) -> dict[str, Any]:
    """Return everything that determines the result; stored with it to detect changes."""
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
    """Open a bag as a dataset of keyframes."""
    from lpr_ros.core.errors import ConfigError
    from lpr_ros.core.geometry.se3 import pose_from_quaternion
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
    """Return a function that iterates with a progress bar."""
    from tqdm import tqdm

    def progress(items: Iterable[Any], total: int) -> Iterable[Any]:
        return tqdm(items, total=total, desc=label, unit=unit)

    return progress


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(
        build_parser(), run, argv, on_interrupt='Run the same command again to continue'
    )


if __name__ == '__main__':
    raise SystemExit(main())
