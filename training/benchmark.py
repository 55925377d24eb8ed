"""Measure speed, accuracy and robustness, each figure beside what it is compared with.

    python training/benchmark.py descriptor --json descriptor.json
    python training/benchmark.py training --json training.json
    python training/benchmark.py simulator --json simulator.json
    python training/benchmark.py database --json database.json
    python training/benchmark.py registration --json registration.json
    python training/benchmark.py node --json node.json
    python training/benchmark.py loops --json loops.json
    python training/benchmark.py load --json load.json
    python training/benchmark.py fuzz --inputs 100000 --json fuzz.json
    python training/benchmark.py faults --json faults.json

Nothing else should run on the machine meanwhile, but for `fuzz` and `faults`, which measure no
time.
"""

import argparse
from collections.abc import Callable, Sequence
import json
from pathlib import Path
import sys
from typing import Any

ROOT = Path(__file__).parents[1]
SHARED_DATA = ROOT.parent / 'shared' / 'data'

Option = dict[str, Any]  # what add_argument takes
Figures = tuple[dict[str, Any], str]  # and the same as a table
Run = Callable[[argparse.Namespace], Figures]

COMMANDS: dict[str, tuple[Run, str, dict[str, Option]]] = {}


def command(description: str, **options: Option) -> Callable[[Run], Run]:
    """Make a function a subcommand of its name; an option is called as its keyword."""

    def register(run: Run) -> Run:
        COMMANDS[run.__name__] = run, description, options
        return run

    return register


def _number(default: float, text: str) -> Option:
    return {'type': type(default), 'default': default, 'help': f'{text} ({default})'}


def _several(text: str, **more: Any) -> Option:
    return {'nargs': '+', 'help': text, **more}


def _data(text: str) -> Option:
    return {'type': Path, 'default': SHARED_DATA, 'help': f'folder with {text}'}


def build_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    for name, (run, description, options) in COMMANDS.items():
        made = commands.add_parser(name, help=description, description=description)
        for option, arguments in options.items():
            made.add_argument(f'--{option}', **arguments)
        made.add_argument('--json', type=Path, help='also write the result here')
        made.set_defaults(run=run)
    return parser


@command(
    'one cloud to one descriptor: ours, MinkowskiEngine, matmul floor',
    repeats=_number(20, 'runs per figure, of which the median counts'),
    data=_data('kitti_full/*.bin'),
)
def descriptor(args: argparse.Namespace) -> Figures:
    """Measure one description."""
    from lpr_training.benchmarks import descriptor

    result = descriptor.run(args.data, args.repeats)
    return result, descriptor.table(result)


@command(
    'clouds per second, forward and multistage step: ours, MinkowskiEngine',
    repeats=_number(5, 'runs per figure, of which the median counts'),
    data=_data('kitti_full/*.bin'),
)
def training(args: argparse.Namespace) -> Figures:
    """Measure training."""
    from lpr_training.benchmarks import training

    result = training.run(args.data, args.repeats)
    return result, training.table(result)


@command('scans of 64 x 1024 rays per second', scans=_number(100, 'scans per world'))
def simulator(args: argparse.Namespace) -> Figures:
    """Measure the simulator."""
    from lpr_training.benchmarks import simulator

    result = simulator.run(scans=args.scans)
    return result, simulator.table(result)


@command(
    'query time, memory and recall at 1e3 to 1e6 keyframes',
    sizes=_several('keyframes (1e3 to 1e6)', type=int),
    dims=_several('of descriptors (256 1024)', type=int),
    kinds=_several('of descriptors (both)', choices=['places', 'gaussian']),
    methods=_several("such as exact 'ours, 8 bit' (all)"),
    queries=_number(200, 'per figure, of which the median counts'),
)
def database(args: argparse.Namespace) -> Figures:
    """Measure the search."""
    from lpr_training.benchmarks import database

    names = ('sizes', 'dims', 'kinds', 'methods')
    given = {name: getattr(args, name) for name in names if getattr(args, name)}
    result = database.run(queries=args.queries, **given)
    return result, database.table(result)


@command(
    'verification of true and false pairs, real and simulated',
    every=_number(4, 'take every n-th real pair'),
    pairs=_number(20, 'per simulated drive'),
    data=_data('scans_*.npz'),
)
def registration(args: argparse.Namespace) -> Figures:
    """Measure verification."""
    from lpr_training.benchmarks import registration

    result = registration.run(args.data, every=args.every, pairs=args.pairs)
    return result, registration.table(result)


@command('lpr_node under 130,000 points at 10 Hz', seconds=_number(60.0, 'of driving'))
def node(args: argparse.Namespace) -> Figures:
    """Measure the node."""
    from lpr_training.benchmarks import node

    result = node.run(args.seconds)
    return result, node.table(result)


@command(
    'whole drives: precision, recall, poses, trajectories; ours and peers',
    weights={'type': Path, 'default': ROOT / 'weights' / 'kitti_bev.safetensors'},
    drives=_several("such as 'city hdl64' (all)", metavar='NAME'),
    peers={'nargs': '*', 'help': 'scan_context map_closures (those installed)'},
    data=_data('scans_balm.npz'),
)
def loops(args: argparse.Namespace) -> Figures:
    """Measure loops."""
    from lpr_training.benchmarks import loops

    result = loops.run(args.weights, args.data, drives=args.drives, peers=args.peers)
    return result, loops.table(result)


@command(
    'lpr_node under two LiDARs for minutes; a drive of hours, accelerated',
    minutes=_number(10.0, 'of two LiDARs; 0: none'),
    keyframes=_number(20_000, 'of the drive; 0: no drive'),
    standing={'action': 'store_true', 'help': 'two LiDARs, no keyframes: nothing may grow'},
)
def load(args: argparse.Namespace) -> Figures:
    """Measure what grows under load."""
    result, tables = {}, []
    if args.minutes:
        from lpr_training.benchmarks import load_lidars

        result['lidars'] = load_lidars.run(args.minutes, standing=args.standing)
        tables.append(load_lidars.table(result['lidars']))
    if args.keyframes:
        from lpr_training.benchmarks import load_drive

        result['drive'] = load_drive.run(args.keyframes)
        tables.append(load_drive.table(result['drive']))
    return result, '\n\n'.join(tables)


@command(
    'damaged inputs to every reader of outside data',
    inputs=_number(100_000, 'in all'),
    seed=_number(0, 'which inputs'),
    targets=_several("such as map 'bag ros1' (all)", default=[]),
)
def fuzz(args: argparse.Namespace) -> Figures:
    """Try damaged inputs."""
    from lpr_training.benchmarks import fuzz

    result = fuzz.run(args.inputs, args.seed, args.targets)
    return result, fuzz.table(result)


@command(
    'kill -9, full disks, lost sensors, clocks',
    rounds=_number(5, 'every fault once in each'),
    seed=_number(0, 'which order and moments'),
)
def faults(args: argparse.Namespace) -> Figures:
    """Try faults."""
    from lpr_training.benchmarks import faults

    result = faults.run(args.rounds, args.seed)
    return result, faults.table(result)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one benchmark, print its table, write its JSON; return 0, 1 or, interrupted, 130."""
    args = build_parser().parse_args(argv)
    from lpr_ros.core.errors import LprError
    from lpr_ros.core.files import whole_file

    try:
        result, table = args.run(args)
        print(table)
        if args.json:
            with whole_file(args.json) as partial:
                partial.write_text(json.dumps(result, indent=1))
    except (LprError, OSError) as error:
        print(f'benchmark.py: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('\nbenchmark.py: interrupted; nothing was written', file=sys.stderr)
        return 130
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
