"""Find the loop closures of a recorded drive, and write a report about it.

    python -m lpr_ros.offline BAG_OR_FOLDER --out DIR

BAG_OR_FOLDER is a rosbag2 folder, .mcap, .db3 or ROS 1 .bag file, a KITTI folder (velodyne/*.bin
and poses), or a scans_*.npz file. DIR gets report.html, loops.csv, keyframes.csv, the map, the
pose graph (g2o) and the trajectories before and after (TUM). Ctrl-C ends the drive there and
writes what there is so far.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
import logging
from pathlib import Path
import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lpr_ros.core.drive_result import CheckpointNote, DriveResult
    from lpr_ros.core.model.describer import Describer
    from lpr_ros.core.offline_run import Gathered
    from lpr_ros.core.pipeline import PipelineConfig
    from lpr_ros.core.scan_source import ScanSource

INTERRUPTED = 130  # exit status after Ctrl-C, as shells have it
EXAMPLES_PER_KIND = 3


def build_parser() -> argparse.ArgumentParser:
    """Declare the command line."""
    parser = argparse.ArgumentParser(
        prog='lpr_offline',
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add('drive', type=Path, metavar='BAG_OR_FOLDER')
    add('--out', type=Path, required=True, metavar='DIR', help='new folder for the results')
    add('--points', default='', metavar='TOPIC', help='PointCloud2, if there are several')
    add('--odometry', default='', metavar='TOPIC', help='Odometry or PoseStamped, if several')
    add('--truth', default='', metavar='TOPIC|FILE',
        help='true poses: a topic (default: named ground_truth) or a TUM or KITTI file')
    add('--poses', type=Path, metavar='FILE', help='TUM or KITTI file in place of the odometry')
    add('--extrinsic', type=float, nargs=7, metavar=('X', 'Y', 'Z', 'QX', 'QY', 'QZ', 'QW'),
        help='sensor on the body of the odometry (default: from /tf_static)')
    add('--weights', type=Path, metavar='FILE', help='.safetensors (default: those that ship)')
    add('--device', default='auto', choices=('auto', 'cpu', 'cuda'))
    add('--config', type=Path, metavar='YAML', help='settings of the pipeline')
    add('--set', nargs='+', default=[], metavar='KEY=VALUE', dest='assignments',
        help='settings that replace those, e.g. keyframes.distance_m=1.0')
    add('--map', type=Path, metavar='FILE', help='old map to find the drive in')
    add('--session', default='', help='name of this drive in the map (default: of the recording)')
    add('--quiet', action='store_true', help='no progress bar')
    return parser  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 1 on bad input, 130 when interrupted."""
    args = build_parser().parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format='%(levelname)s: %(message)s')
    from lpr_ros.core.errors import LprError  # imported late: --help must be instant

    try:
        result = run(args)
    except (LprError, OSError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('interrupted: nothing was written', file=sys.stderr)
        return INTERRUPTED
    print_summary(result, args.out)
    return INTERRUPTED if result.interrupted else 0


def run(args: argparse.Namespace) -> 'DriveResult':
    """Do the whole command and return what came of the drive."""
    from lpr_ros.core.drive_files import write_drive
    from lpr_ros.core.drive_truth import judge
    from lpr_ros.core.files import refuse_existing, whole_folder
    from lpr_ros.core.offline_run import run_offline
    from lpr_ros.report.page import write_report

    refuse_existing(args.out)  # before an hour of work, not after it
    config = config_from(args)
    describer, checkpoint = load_weights(args)
    source = open_drive(args)
    with stop_on_interrupt() as should_stop, progress_bar(source, args.quiet) as on_scan:
        result = run_offline(
            source,
            describer,
            config,
            session=args.session,
            old_map=args.map,
            checkpoint=checkpoint,
            should_stop=should_stop,
            on_scan=on_scan,
        )
    source.close()
    judgement = judge(result)
    with whole_folder(args.out) as folder:
        write_drive(folder, result, judgement)
        write_report(folder, result, judgement)
    return result


def config_from(args: argparse.Namespace) -> 'PipelineConfig':
    """Return the settings of the file, with those of the command line in their place."""
    from lpr_ros.core.config import override, parse_assignments
    from lpr_ros.core.pipeline import PipelineConfig

    config = PipelineConfig.from_yaml(args.config) if args.config else PipelineConfig()
    return override(config, parse_assignments(args.assignments))


def load_weights(args: argparse.Namespace) -> 'tuple[Describer, CheckpointNote]':
    """Return the network, and what is known about it."""
    from lpr_ros.core.drive_result import CheckpointNote
    from lpr_ros.core.model.checkpoint import load_checkpoint
    from lpr_ros.core.model.describer import Describer
    from lpr_ros.core.resources import default_weights

    path = args.weights or default_weights()
    describer = Describer.load(path, device=args.device)
    checkpoint = load_checkpoint(path)
    note = CheckpointNote(
        str(path), describer.fingerprint, checkpoint.licence, dict(checkpoint.provenance)
    )
    return describer, note


def open_drive(args: argparse.Namespace) -> 'ScanSource':
    """Open the recording; a bag is read through once for its poses and stamps."""
    from tqdm import tqdm

    from lpr_ros.core.errors import ConfigError
    from lpr_ros.core.geometry import pose_from_quaternion
    from lpr_ros.core.scan_sources import SourceOptions, open_source

    def progress(messages: Iterable[Any], total: int) -> Iterable[Any]:
        return tqdm(messages, total=total, desc='index', unit='message', disable=args.quiet)

    extrinsic = None
    if args.extrinsic:
        if not any(args.extrinsic[3:]):
            raise ConfigError(f'--extrinsic: expected a unit quaternion, got {args.extrinsic[3:]}')
        extrinsic = pose_from_quaternion(args.extrinsic[:3], args.extrinsic[3:])
    options = SourceOptions(args.points, args.odometry, args.truth, args.poses, extrinsic)
    logger = logging.getLogger(__name__)
    return open_source(args.drive, options, on_bad=logger.warning, progress=progress)


@contextmanager
def stop_on_interrupt() -> 'Iterator[Callable[[], bool]]':
    """Let the first Ctrl-C end the drive between two scans; a second one ends the program."""
    asked = []

    def ask(number: int, frame: object) -> None:
        asked.append(number)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def progress_bar(source: 'ScanSource', quiet: bool) -> 'Iterator[Callable[[Gathered], None]]':
    """Show scans, keyframes, loops and the milliseconds of the last keyframe."""
    from tqdm import tqdm

    with tqdm(total=len(source), desc=source.name, unit='scan', disable=quiet) as bar:

        def show(gathered: 'Gathered') -> None:
            last = gathered.outcomes[-1].seconds.values() if gathered.outcomes else ()
            bar.set_postfix(
                keyframes=len(gathered.outcomes),
                loops=len(gathered.loops),
                ms=round(1e3 * sum(last)),
                refresh=False,
            )
            bar.update(gathered.scans - bar.n)

        yield show


def print_summary(result: 'DriveResult', out: Path) -> None:
    """Say what was found, what went wrong and where to look."""
    from lpr_ros.report.words import drops_in_words

    for sentence, messages in drops_in_words(result):
        print(f'{sentence}:')
        for message in messages[:EXAMPLES_PER_KIND]:
            print(f'  {message}')
        if len(messages) > EXAMPLES_PER_KIND:
            print(f'  and {len(messages) - EXAMPLES_PER_KIND} more')
    if result.interrupted:
        print('interrupted: this is the drive so far')
    print(
        f'{result.name}: {result.scans} scans, {len(result.places)} keyframes, '
        f'{result.travelled_m:.0f} m, {len(result.loops)} loops; see {out / "report.html"}'
    )


if __name__ == '__main__':
    sys.exit(main())
