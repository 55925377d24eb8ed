"""Find the loop closures of a recorded drive and write a report.

    python -m lpr_ros.cli.offline BAG_OR_FOLDER --out DIR

BAG_OR_FOLDER is a rosbag2 folder, an .mcap, .db3 or ROS 1 .bag file, a KITTI folder
(velodyne/*.bin and poses), or a scans_*.npz file. DIR receives report.html, loops.csv,
keyframes.csv, the map, the pose graph (g2o) and the trajectories before and after loop closure
(TUM and KITTI). Ctrl-C stops the run and writes the results so far; a second Ctrl-C discards them.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
import logging
import os
from pathlib import Path
import shutil
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Any

from lpr_ros.core.errors import ConfigError, LprError, error_with_type, utf8_text
from lpr_ros.core.resources import WEIGHTS_HELP

if TYPE_CHECKING:
    from lpr_ros.core.model.descriptor_extractor import NetworkDescriptorExtractor
    from lpr_ros.core.offline.result import CheckpointNote, DriveResult
    from lpr_ros.core.offline.run import Progress
    from lpr_ros.core.pipeline import PipelineConfig
    from lpr_ros.core.recordings.base import Recording

logger = logging.getLogger(__name__)
INTERRUPTED = 130  # exit status of a process stopped by Ctrl-C
EXAMPLES_PER_KIND = 3
ODOMETRY_SOURCES = ('auto', 'lidar', 'recorded')  # anything else is a topic
MAP_BYTES_PER_KEYFRAME = 60_000  # typical, with default settings
MIB = 2**20


def build_parser() -> argparse.ArgumentParser:
    """Declare the command line."""
    parser = argparse.ArgumentParser(
        prog='lpr_offline',
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add('drive', type=Path, metavar='BAG_OR_FOLDER')
    add('--out', type=Path, required=True, metavar='DIR', help='output folder; must not exist')
    add('--points', default='', metavar='TOPIC', help='PointCloud2 topic, if the bag has several')
    add(
        '--odometry',
        default='auto',
        metavar='auto|lidar|recorded|TOPIC',
        help='lidar: from the clouds; recorded: of the recording, none if it has none; auto: '
        'recorded if there is any, else lidar; or an Odometry or PoseStamped topic of the bag',
    )
    add(
        '--truth',
        default='',
        metavar='TOPIC|FILE',
        help='ground truth: a topic (default: one named ground_truth) or a TUM or KITTI file',
    )
    add('--poses', type=Path, metavar='FILE', help='TUM or KITTI file to use as odometry')
    add(
        '--extrinsic',
        type=float,
        nargs=7,
        metavar=('X', 'Y', 'Z', 'QX', 'QY', 'QZ', 'QW'),
        help='pose of the sensor in the base frame of the odometry (default: from /tf_static)',
    )
    add('--weights', default='', metavar='FILE|NAME', help=f'{WEIGHTS_HELP}; default kitti_bev')
    add(
        '--device',
        default='auto',
        choices=('auto', 'cpu', 'cuda'),
        help='device of the network; auto: cuda if available',
    )
    add('--config', type=Path, metavar='YAML', help='pipeline settings')
    add(
        '--set',
        nargs='+',
        default=[],
        metavar='KEY=VALUE',
        dest='assignments',
        help='settings that override --config, e.g. keyframes.distance_m=1.0',
    )
    add('--map', type=Path, metavar='FILE', help='existing map to relocalize in')
    add('--session', default='', help='session name in the map (default: name of the recording)')
    add('--quiet', action='store_true', help='hide the progress bar')
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 1 on an error or missing output, 130 if interrupted."""
    args = build_parser().parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format='%(levelname)s: %(message)s')
    try:
        result, errors = run(args)
    except (LprError, OSError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('interrupted: nothing was written', file=sys.stderr)
        return INTERRUPTED
    print_summary(result, args.out)
    for name, error in errors.items():
        print(
            f'error: {args.out / name} was not written: {error_with_type(error)}', file=sys.stderr
        )
        if not isinstance(error, LprError | OSError):
            traceback.print_exception(error)
    if errors:
        return 1
    return INTERRUPTED if result.interrupted else 0


def run(args: argparse.Namespace) -> 'tuple[DriveResult, dict[str, Exception]]':
    """Process the drive and write the output; return the result and the errors by file name."""
    # Imported here, so that --help is instant.
    from lpr_ros.core.files import atomic_folder
    from lpr_ros.core.offline.evaluation import evaluate_drive
    from lpr_ros.core.offline.export import drive_writers, map_writer, reserve_space, write_files
    from lpr_ros.core.offline.run import run_offline
    from lpr_ros.report.page import report_writers

    # The output folder comes first: a long drive must not be lost because of its name or disk.
    with InterruptGuard() as guard, atomic_folder(args.out) as folder:
        config = config_from(args)
        extractor, checkpoint = load_weights(args)
        source = open_drive(args, config.session.max_step_m)
        reserve_space(folder, len(source))
        warn_if_map_may_not_fit(folder, len(source))
        use_lidar = args.odometry == 'lidar' or (
            args.odometry == 'auto' and not source.has_odometry
        )
        guard.arm()
        with progress_bar(source, args.quiet) as on_scan:
            result = run_offline(
                source,
                extractor,
                config,
                session=args.session,
                old_map=args.map,
                checkpoint=checkpoint,
                use_lidar_odometry=use_lidar,
                should_stop=lambda: guard.interrupted,
                on_scan=on_scan,
            )
        source.close()
        evaluation = evaluate_drive(result)
        # The map is last: it is the largest file, and the first not to fit on a full disk.
        writers = {
            **drive_writers(result, evaluation),
            **report_writers(result, evaluation),
            **map_writer(result),
        }
        errors = write_files(folder, writers)
        if len(errors) == len(writers):
            name, error = next(iter(errors.items()))
            raise LprError(f'{args.out / name} was not written: {error_with_type(error)}')
    return result, errors


def warn_if_map_may_not_fit(folder: Path, scans: int) -> None:
    """Warn early about a disk that is too small if every scan becomes a keyframe."""
    free, needed = shutil.disk_usage(folder).free, scans * MAP_BYTES_PER_KEYFRAME
    if free < needed:
        logger.warning(
            '%s has %d MiB of free disk space; the map of %d scans may need up to %d MiB',
            folder.parent.parent,
            free // MIB,
            scans,
            needed // MIB,
        )


def config_from(args: argparse.Namespace) -> 'PipelineConfig':
    """Return the settings of --config, overridden by those of the command line."""
    from lpr_ros.core.config import override, parse_assignments
    from lpr_ros.core.pipeline import PipelineConfig

    try:
        args.session.encode('utf-8')
    except UnicodeEncodeError as error:
        raise ConfigError(f'--session {args.session!r}: expected UTF-8 text') from error
    config = PipelineConfig.from_yaml(args.config) if args.config else PipelineConfig()
    return override(config, parse_assignments(args.assignments))


def load_weights(args: argparse.Namespace) -> 'tuple[NetworkDescriptorExtractor, CheckpointNote]':
    """Return the network and a note about its checkpoint."""
    from lpr_ros.core.model.checkpoint import load_checkpoint
    from lpr_ros.core.model.descriptor_extractor import NetworkDescriptorExtractor
    from lpr_ros.core.offline.result import CheckpointNote
    from lpr_ros.core.resources import weights_path

    path = weights_path(args.weights)
    extractor = NetworkDescriptorExtractor.load(path, device=args.device)
    checkpoint = load_checkpoint(path)
    note = CheckpointNote(
        str(path), extractor.fingerprint, checkpoint.license, dict(checkpoint.provenance)
    )
    return extractor, note


def open_drive(args: argparse.Namespace, max_step_m: float) -> 'Recording':
    """Open the recording; a bag is read once for its poses and stamps."""
    from tqdm import tqdm

    from lpr_ros.core.geometry.se3 import pose_from_quaternion
    from lpr_ros.core.recordings.base import RecordingOptions
    from lpr_ros.core.recordings.open import open_recording

    def progress(messages: Iterable[Any], total: int) -> Iterable[Any]:
        return tqdm(messages, total=total, desc='indexing', unit='message', disable=args.quiet)

    extrinsic = None
    if args.extrinsic:
        if not any(args.extrinsic[3:]):
            raise ConfigError(f'--extrinsic: expected a unit quaternion, got {args.extrinsic[3:]}')
        extrinsic = pose_from_quaternion(args.extrinsic[:3], args.extrinsic[3:])
    options = RecordingOptions(
        points=args.points,
        odometry='' if args.odometry in ODOMETRY_SOURCES else args.odometry,
        use_odometry=args.odometry != 'lidar',
        truth=args.truth,
        poses=args.poses,
        T_base_sensor=extrinsic,
        on_bad=logger.warning,
        progress=progress,
        max_step_m=max_step_m,
    )
    return open_recording(args.drive, options)


class InterruptGuard:
    """Once armed, defers the first Ctrl-C until the block ends; a second one interrupts at once.

    Before it is armed, Ctrl-C interrupts at once.
    """

    def __init__(self) -> None:
        self.interrupted = False

    def __enter__(self) -> 'InterruptGuard':
        self._previous = signal.getsignal(signal.SIGINT)
        return self

    def __exit__(self, *exception: object) -> None:
        signal.signal(signal.SIGINT, self._previous)

    def arm(self) -> None:
        """Defer the next Ctrl-C."""
        signal.signal(signal.SIGINT, self._defer)

    def _defer(self, number: int, frame: object) -> None:
        self.interrupted = True
        signal.signal(signal.SIGINT, self._previous)
        # Not print: a handler must not enter a stream that it may have interrupted.
        with suppress(OSError):
            os.write(2, b'\ninterrupted: writing results; press Ctrl-C again to discard them\n')


@contextmanager
def progress_bar(source: 'Recording', quiet: bool) -> 'Iterator[Callable[[Progress], None]]':
    """Show the numbers of scans, keyframes and loops and the time of the last keyframe."""
    from tqdm import tqdm

    with tqdm(total=len(source), desc=source.name, unit='scan', disable=quiet) as bar:

        def show(progress: 'Progress') -> None:
            last = progress.outcomes[-1].seconds.values() if progress.outcomes else ()
            bar.set_postfix(
                keyframes=len(progress.outcomes),
                loops=len(progress.loops),
                ms=round(1e3 * sum(last)),
                refresh=False,
            )
            bar.update(progress.scans - bar.n)

        yield show


def print_summary(result: 'DriveResult', out: Path) -> None:
    """Print the dropped scans, the numbers of the drive, and the path of the report."""
    from lpr_ros.report.text import drop_sentences

    lines = []
    for sentence, messages in drop_sentences(result):
        lines.append(f'{sentence}:')
        lines += [f'  {message}' for message in messages[:EXAMPLES_PER_KIND]]
        if len(messages) > EXAMPLES_PER_KIND:
            lines.append(f'  and {len(messages) - EXAMPLES_PER_KIND} more')
    if result.interrupted:
        lines.append('interrupted: these are the results so far')
    lines.append(
        f'{result.name}: {result.scans} scans, {len(result.places)} keyframes, '
        f'{result.traveled_m:.0f} m, {len(result.loops)} loop closures; see {out / "report.html"}'
    )
    print(utf8_text('\n'.join(lines)))


if __name__ == '__main__':
    sys.exit(main())
