"""Measure speed, each figure beside what it is compared with, in one run.

    python training/benchmark.py descriptor --json descriptor.json

Nothing else should run on the machine meanwhile.
"""

import argparse
from collections.abc import Sequence
import json
from pathlib import Path
import sys

SHARED_DATA = Path(__file__).parents[2] / 'shared' / 'data'


def build_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest='command', required=True)
    descriptor = commands.add_parser(
        'descriptor', help='one cloud to one descriptor: ours, MinkowskiEngine, matmul floor'
    )
    descriptor.add_argument('--repeats', type=int, default=20, help='runs per figure (median)')
    descriptor.add_argument(
        '--data', type=Path, default=SHARED_DATA, help='folder with kitti_full/*.bin'
    )
    for command in commands.choices.values():
        command.add_argument('--json', type=Path, help='also write the result here')
        command.add_argument('--threads', type=int, default=0, help='torch threads, 0 for default')
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one benchmark, print its table, write its JSON."""
    args = build_parser().parse_args(argv)
    import torch

    from lpr_ros.core.errors import LprError
    from lpr_ros.core.files import whole_file
    from lpr_training.benchmarks import descriptor

    if args.threads:
        torch.set_num_threads(args.threads)
    try:
        result = descriptor.run(args.data, args.repeats)
    except LprError as error:
        print(f'benchmark.py: {error}', file=sys.stderr)
        return 1
    if args.json:
        with whole_file(args.json) as partial:
            partial.write_text(json.dumps(result, indent=1))
    print(descriptor.table(result))
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
