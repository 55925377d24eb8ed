"""A drive with revisits and drifting odometry, played to the real nodes over real ROS.

    python training/demo.py            a simulated city, about two minutes
    python training/demo.py --real     the real scans of ../shared/data

Three processes talk DDS: the player, lpr_node, pose_graph_node. In the end: a table, and in --out
summary.json, report.html and report.png.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
import sys

ROOT = Path(__file__).resolve().parents[1]
SHARED_DATA = ROOT.parent / 'shared' / 'data'


def build_parser() -> argparse.ArgumentParser:
    """Declare the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--out', type=Path, default=ROOT / 'demo', help='folder (demo/)')
    parser.add_argument('--real', action='store_true', help='play the real scans')
    parser.add_argument('--data', type=Path, default=SHARED_DATA, help='folder of the real scans')
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration; return 0, 1 where something failed, 130 on Ctrl-C."""
    args = build_parser().parse_args(argv)
    from lpr_ros.core.errors import LprError  # late: --help must be instant
    from lpr_training.demo.drives import real_drive, simulated_drive
    from lpr_training.demo.outcome import judge_played, write_outcome
    from lpr_training.demo.run import play

    out = args.out / 'real' if args.real else args.out
    try:
        out.mkdir(parents=True, exist_ok=True)
        drive = real_drive(args.data, out) if args.real else simulated_drive(out)
        outcome = judge_played(drive, play(drive, out))
        write_outcome(out, outcome)
    except (LprError, OSError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f'\n{outcome.table()}\n\nThe drive in pictures: {out / "report.html"}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
