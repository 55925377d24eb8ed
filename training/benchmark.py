"""Run one benchmark, print its results as a markdown table and optionally write them as JSON.

    python training/benchmark.py descriptor --json descriptor.json
    python training/benchmark.py loops --drives 'city hdl64' --json loops.json
    python training/benchmark.py fuzz --inputs 100000 --json fuzz.json
    python training/benchmark.py siege --minutes 30 --json siege.json

Keep the machine otherwise idle, except for fuzz, faults and siege, which measure no times.
"""

import argparse
from collections.abc import Sequence
import json
from pathlib import Path
import sys

from lpr_training.benchmarks.registry import BENCHMARKS
from lpr_training.command import make_parser, run_command


def build_parser(name: str) -> argparse.ArgumentParser:
    """Return the command line; only the benchmark `name` is imported, for its options."""
    parser = make_parser(__file__, __doc__)
    commands = parser.add_subparsers(dest='benchmark', metavar='BENCHMARK', required=True)
    for key, entry in BENCHMARKS.items():
        command = commands.add_parser(key, help=entry.summary, description=entry.summary)
        if key == name:
            entry.load().add_options(command)
        command.add_argument('--json', type=Path, metavar='FILE', help='Also write the results')
    return parser


def run(args: argparse.Namespace) -> None:
    """Run the selected benchmark."""
    from lpr_ros.core.files import atomic_file

    options = dict(vars(args))
    benchmark = BENCHMARKS[options.pop('benchmark')].load()
    json_path = options.pop('json')
    result = benchmark.run(**options)
    print(benchmark.table(result))
    if json_path:
        with atomic_file(json_path) as partial:
            partial.write_text(json.dumps(result, indent=1))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    argv = sys.argv[1:] if argv is None else argv
    return run_command(build_parser(argv[0] if argv else ''), run, argv)


if __name__ == '__main__':
    sys.exit(main())
