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
from collections.abc import Sequence
import json
from pathlib import Path
import sys
from typing import Any

ROOT = Path(__file__).parents[1]
SHARED_DATA = ROOT.parent / 'shared' / 'data'


def build_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    descriptor = commands.add_parser(
        'descriptor', help='one cloud to one descriptor: ours, MinkowskiEngine, matmul floor'
    )
    descriptor.add_argument('--repeats', type=int, default=20, help='runs per figure (median)')
    descriptor.add_argument(
        '--data', type=Path, default=SHARED_DATA, help='folder with kitti_full/*.bin'
    )
    descriptor.set_defaults(run=_descriptor)
    training = commands.add_parser(
        'training', help='clouds per second, forward and multistage step: ours, MinkowskiEngine'
    )
    training.add_argument('--repeats', type=int, default=5, help='runs per figure (median)')
    training.add_argument(
        '--data', type=Path, default=SHARED_DATA, help='folder with kitti_full/*.bin'
    )
    training.set_defaults(run=_training)
    simulator = commands.add_parser('simulator', help='scans of 64 x 1024 rays per second')
    simulator.add_argument('--scans', type=int, default=100, help='scans per world')
    simulator.set_defaults(run=_simulator)
    database = commands.add_parser(
        'database', help='query time, memory and recall at 1e3 to 1e6 keyframes'
    )
    database.add_argument('--sizes', type=int, nargs='+', help='keyframes (1e3 to 1e6)')
    database.add_argument('--dims', type=int, nargs='+', help='of descriptors (256 1024)')
    database.add_argument('--kinds', nargs='+', choices=['places', 'gaussian'])
    database.add_argument('--methods', nargs='+', help="such as exact 'ours, 8 bit' (all)")
    database.add_argument('--queries', type=int, default=200, help='per figure (median)')
    database.set_defaults(run=_database)
    registration = commands.add_parser(
        'registration', help='verification of true and false pairs, real and simulated'
    )
    registration.add_argument('--every', type=int, default=4, help='take every n-th real pair')
    registration.add_argument('--pairs', type=int, default=20, help='per simulated drive')
    registration.add_argument(
        '--data', type=Path, default=SHARED_DATA, help='folder with scans_*.npz'
    )
    registration.set_defaults(run=_registration)
    node = commands.add_parser('node', help='lpr_node under 130,000 points at 10 Hz')
    node.add_argument('--seconds', type=float, default=60.0, help='of driving')
    node.set_defaults(run=_node)
    loops = commands.add_parser(
        'loops', help='whole drives: precision, recall, poses, trajectories; ours and peers'
    )
    loops.add_argument(
        '--weights', type=Path, default=ROOT / 'weights' / 'kitti_bev.safetensors'
    )
    loops.add_argument('--drives', nargs='+', metavar='NAME', help="such as 'city hdl64' (all)")
    loops.add_argument('--peers', nargs='*', help='scan_context map_closures (those installed)')
    loops.add_argument(
        '--data', type=Path, default=SHARED_DATA, help='folder with scans_balm.npz'
    )
    loops.set_defaults(run=_loops)
    load = commands.add_parser(
        'load', help='lpr_node under two LiDARs for minutes; a drive of hours, accelerated'
    )
    load.add_argument('--minutes', type=float, default=10.0, help='of two LiDARs; 0: none')
    load.add_argument('--keyframes', type=int, default=20_000, help='of the drive; 0: no drive')
    load.add_argument('--standing', action='store_true',
                      help='two LiDARs, but no keyframes: nothing may grow')  # fmt: skip
    load.set_defaults(run=_load)
    fuzz = commands.add_parser('fuzz', help='damaged inputs to every reader of outside data')
    fuzz.add_argument('--inputs', type=int, default=100_000, help='in all')
    fuzz.add_argument('--seed', type=int, default=0, help='which inputs')
    fuzz.add_argument('--targets', nargs='+', default=[], help="such as map 'bag ros1' (all)")
    fuzz.set_defaults(run=_fuzz)
    faults = commands.add_parser('faults', help='kill -9, full disks, lost sensors, clocks')
    faults.add_argument('--rounds', type=int, default=5, help='every fault once in each')
    faults.add_argument('--seed', type=int, default=0, help='which order and moments')
    faults.set_defaults(run=_faults)
    for command in commands.choices.values():
        command.add_argument('--json', type=Path, help='also write the result here')
    return parser


def _descriptor(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from lpr_training.benchmarks import descriptor

    result = descriptor.run(args.data, args.repeats)
    return result, descriptor.table(result)


def _training(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from lpr_training.benchmarks import training

    result = training.run(args.data, args.repeats)
    return result, training.table(result)


def _simulator(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from lpr_training.benchmarks import simulator

    result = simulator.run(scans=args.scans)
    return result, simulator.table(result)


def _database(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from lpr_training.benchmarks import database

    names = ('sizes', 'dims', 'kinds', 'methods')
    given = {name: getattr(args, name) for name in names if getattr(args, name)}
    result = database.run(queries=args.queries, **given)
    return result, database.table(result)


def _registration(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from lpr_training.benchmarks import registration

    result = registration.run(args.data, every=args.every, pairs=args.pairs)
    return result, registration.table(result)


def _node(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from lpr_training.benchmarks import node

    result = node.run(args.seconds)
    return result, node.table(result)


def _loops(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from lpr_training.benchmarks import loops

    result = loops.run(args.weights, args.data, drives=args.drives, peers=args.peers)
    return result, loops.table(result)


def _load(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
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


def _fuzz(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from lpr_training.benchmarks import fuzz

    result = fuzz.run(args.inputs, args.seed, args.targets)
    return result, fuzz.table(result)


def _faults(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from lpr_training.benchmarks import faults

    result = faults.run(args.rounds, args.seed)
    return result, faults.table(result)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one benchmark, print its table, write its JSON."""
    args = build_parser().parse_args(argv)
    from lpr_ros.core.errors import LprError
    from lpr_ros.core.files import whole_file

    try:
        result, table = args.run(args)
    except LprError as error:
        print(f'benchmark.py: {error}', file=sys.stderr)
        return 1
    if args.json:
        with whole_file(args.json) as partial:
            partial.write_text(json.dumps(result, indent=1))
    print(table)
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
