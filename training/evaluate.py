r"""Evaluate a checkpoint, or the handcrafted baseline, by one of the published protocols.

python training/evaluate.py kitti_bev --weights weights/kitti_bev.safetensors \
        --data kitti_bev_05.npz --yaw random --seed 7 --json FILE --figures DIR
python training/evaluate.py sequence --weights W --data kitti_bev_05.npz
python training/evaluate.py sequence --method scan_context --data scans_balm.npz \
        --exclude 60 --exclude-by time
python training/evaluate.py places --weights W --data ../data_sim/test
python training/evaluate.py oxford --weights W --data benchmark_datasets
python training/evaluate.py wild_places_inter --weights W --data Wild-Places
python training/evaluate.py wild_places_intra --weights W --data Wild-Places
"""

import argparse
from collections.abc import Sequence
import logging
from pathlib import Path
import sys

PROTOCOLS = {
    'kitti_bev': "KITTI bird's-eye images, early frames against later ones",
    'sequence': 'one drive against its own past',
    'places': 'converted or simulated worlds, every drive against the others of its world',
    'oxford': 'Oxford RobotCar and the in-house sets, all pairs of runs',
    'wild_places_inter': 'Wild-Places between the sequences of each site',
    'wild_places_intra': 'Wild-Places, revisits within each sequence',
}


def build_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest='protocol', required=True, metavar='PROTOCOL')
    for name, about in PROTOCOLS.items():
        command = commands.add_parser(name, help=about, description=about)
        _add_common(command, takes_metres=name != 'oxford')
        OPTIONS[name](command)
    return parser


def _add_common(parser: argparse.ArgumentParser, *, takes_metres: bool) -> None:
    add = parser.add_argument
    add('--weights', type=Path, metavar='FILE', help='checkpoint (.safetensors)')
    add('--data', type=Path, required=True, help='file or folder of the dataset')
    add('--json', type=Path, metavar='FILE', help='write every number here')
    add('--figures', type=Path, metavar='DIR', help='write figures here, PNG and PDF')
    methods = ('whitened-checkpoint', *(('scan_context',) if takes_metres else ()))
    add('--method', choices=methods, default=methods[0], help=f'default {methods[0]}')
    add('--device', default='auto', choices=('auto', 'cpu', 'cuda'))
    add('--batch', type=int, default=16, help='clouds described at once (16)')
    add('--quiet', action='store_true', help='no progress bar')


def _kitti_bev_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add('--database', metavar='A:B', help='frames of the database (default: by sequence)')
    add('--queries', metavar='A:B', help='frames that ask (default: by sequence)')
    _yaw_options(parser, 'random')


def _sequence_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add('--dataset', metavar='NAME', help='kitti_bev, scans, places, kitti or bag (guessed)')
    add('--run', default='', help='which run, where the data has several')
    add('--exclude', type=float, default=300.0, metavar='N', help='recent past left out (300)')
    add('--exclude-by', choices=('frames', 'time', 'distance'), default='frames',
        help='unit of --exclude: frames, seconds or metres travelled')  # fmt: skip
    add('--radius', type=float, default=4.0, metavar='M', help='a match is right within (4)')
    _yaw_options(parser, 'none')


def _places_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add('--worlds', nargs='+', metavar='WORLD', help='only these (default: all under --data)')
    add('--drives', default='*', metavar='PATTERN', help="only those so named, '*_hdl64' (all)")
    add('--radius', type=float, default=5.0, metavar='M', help='a match is right within (5)')
    _yaw_options(parser, 'random')


def _yaw_options(parser: argparse.ArgumentParser, default: str) -> None:
    add = parser.add_argument
    add('--yaw', choices=('none', 'random'), default=default, help=f'turn scans ({default})')
    add('--seed', type=int, default=7, help='of the random yaws (7)')


def _oxford_options(parser: argparse.ArgumentParser) -> None:
    _sets_option(parser, ('oxford', 'university', 'residential', 'business'))


def _inter_options(parser: argparse.ArgumentParser) -> None:
    _sets_option(parser, ('Venman', 'Karawatha'))


def _intra_options(parser: argparse.ArgumentParser) -> None:
    _sets_option(parser, ('V-03', 'V-04', 'K-03', 'K-04'))
    parser.add_argument('--official-window', action='store_true',
                        help='keep the off-by-one of the published script')  # fmt: skip


def _sets_option(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    parser.add_argument('--sets', nargs='+', choices=names, metavar='SET',
                        help=f'of {", ".join(names)} (default: those that are there)')  # fmt: skip


OPTIONS = {
    'kitti_bev': _kitti_bev_options,
    'sequence': _sequence_options,
    'places': _places_options,
    'oxford': _oxford_options,
    'wild_places_inter': _inter_options,
    'wild_places_intra': _intra_options,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Evaluate as the command line says; return 0, 1 on bad input, 130 when interrupted."""
    args = build_parser().parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format='%(levelname)s: %(message)s')
    # Imported late: --help must not wait for torch.
    from lpr_ros.core.errors import LprError
    from lpr_training.evaluation.command import run_protocol
    from lpr_training.evaluation.report import write_figures, write_json

    try:
        report = run_protocol(args)
        print(report.markdown)
        if args.json:
            write_json(args.json, report.values)
        if args.figures:
            write_figures(args.figures, report.figures)
    except (LprError, OSError) as error:
        print(f'evaluate.py: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('\ninterrupted', file=sys.stderr)
        return 130
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
