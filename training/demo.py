"""Play a drive with revisits and drifting odometry to the real nodes over ROS.

    python training/demo.py            a simulated city, about two minutes
    python training/demo.py --real     the real scans in --data

The player, lpr_node and pose_graph_node run as three processes that communicate over DDS. Prints a
table and writes summary.json, report.html and report.png to --out.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
import sys

from lpr_training.command import make_parser, run_command

ROOT = Path(__file__).resolve().parents[1]
SHARED_DATA = ROOT.parent / 'shared' / 'data'


def build_parser() -> argparse.ArgumentParser:
    """Declare the command line."""
    parser = make_parser(__file__, __doc__)
    add = parser.add_argument
    add('--out', type=Path, default=ROOT / 'demo', metavar='DIR', help='Output folder (demo/)')
    add('--real', action='store_true', help='Play the real scans')
    add('--data', type=Path, default=SHARED_DATA, metavar='DIR', help='Folder of the real scans')
    return parser


def run(args: argparse.Namespace) -> None:
    """Play the drive and evaluate it."""
    from lpr_training.demo.drives import real_drive, simulated_drive  # late: --help needs no ROS
    from lpr_training.demo.outcome import evaluate_demo, write_outcome
    from lpr_training.demo.run import play

    out = args.out / 'real' if args.real else args.out
    out.mkdir(parents=True, exist_ok=True)
    drive = real_drive(args.data, out) if args.real else simulated_drive(out)
    outcome = evaluate_demo(drive, play(drive, out))
    write_outcome(out, outcome)
    print(f'\n{outcome.table()}\nReport: {out / "report.html"}')


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(build_parser(), run, argv, on_interrupt='No report was written')


if __name__ == '__main__':
    sys.exit(main())
