r"""Evaluate a checkpoint, or Scan Context as a baseline, with one of the published protocols.

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
from pathlib import Path

from lpr_ros.core.resources import WEIGHTS_HELP
from lpr_training.command import make_parser, run_command
from lpr_training.evaluation.protocol import Protocol
from lpr_training.evaluation.registry import PROTOCOLS, run_protocol
from lpr_training.evaluation.report import write_figures, write_json


def build_parser() -> argparse.ArgumentParser:
    """Return the parser, with one subcommand per protocol."""
    parser = make_parser(__file__, __doc__)
    commands = parser.add_subparsers(dest='protocol', required=True, metavar='PROTOCOL')
    for name, protocol in PROTOCOLS.items():
        about = protocol.description
        command = commands.add_parser(name, help=about, description=about)
        _add_common_options(command, protocol)
        protocol.add_options(command)
    return parser


def _add_common_options(parser: argparse.ArgumentParser, protocol: Protocol) -> None:
    add = parser.add_argument
    add('--weights', default='', metavar='FILE|NAME', help=f'{WEIGHTS_HELP}; default: kitti_bev')
    add('--data', type=Path, required=True, help='file or folder of the dataset')
    add('--json', type=Path, metavar='FILE', help='write all results to this file')
    add('--figures', type=Path, metavar='DIR', help='write figures to this folder, PNG and PDF')
    methods = protocol.methods
    add('--method', choices=methods, default=methods[0], help=f'default: {methods[0]}')
    add('--device', default='auto', choices=('auto', 'cpu', 'cuda'))
    add('--batch', type=int, default=16, help='clouds described per batch (default: 16)')
    add('--quiet', action='store_true', help='hide the progress bar')


def run(args: argparse.Namespace) -> None:
    """Evaluate, print the tables and write the requested files."""
    report = run_protocol(args)
    print(report.markdown)
    if args.json:
        write_json(args.json, report.values)
    if args.figures:
        write_figures(args.figures, report.figures)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(build_parser(), run, argv)


if __name__ == '__main__':
    raise SystemExit(main())
