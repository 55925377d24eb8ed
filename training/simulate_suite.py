"""Simulate all worlds that the `sim` weights are trained, validated and tested on.

    python training/simulate_suite.py --out ../data_sim
    python training/train.py config/sim.yaml --data ../data_sim/worlds --out runs/sim
    python training/evaluate.py places --weights weights/sim.safetensors --data ../data_sim/test

Writes about 20,000 downsampled scans (5 GB) in 10 to 30 minutes on two cores. An interrupted run
resumes with the same command.
"""

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
import multiprocessing
from pathlib import Path
import sys

from tqdm import tqdm

from lpr_ros.core.errors import ConfigError
from lpr_training.command import make_parser, run_command
from lpr_training.simulator.tools.suite import SuiteWorld, sim_suite, write_world


def build_parser() -> argparse.ArgumentParser:
    """Declare the command line."""
    parser = make_parser(__file__, __doc__)
    add = parser.add_argument
    add('--out', type=Path, required=True, metavar='DIR', help='Output folder')
    add('--worlds', nargs='+', metavar='NAME', help='Worlds such as city_0 (all)')
    add('--processes', type=int, default=2, help='Worlds to simulate in parallel (2)')
    add('--quiet', action='store_true', help='Do not show a progress bar')
    return parser


def _select(names: Sequence[str] | None) -> list[SuiteWorld]:
    """Return the named worlds, or all of them."""
    known = {world.name: world for world in sim_suite()}
    unknown = sorted(set(names or ()) - set(known))
    if unknown:
        raise ConfigError(f'--worlds {unknown[0]!r}: unknown, expected some of {list(known)}')
    return [known[name] for name in names or known]


def run(args: argparse.Namespace) -> None:
    """Simulate the worlds that are not complete yet."""
    worlds = _select(args.worlds)
    write = partial(write_world, root=args.out)
    # Spawn, because a forked child would inherit the threads of the ray caster.
    context = multiprocessing.get_context('spawn')
    with ProcessPoolExecutor(args.processes, mp_context=context) as pool:
        bar = tqdm(pool.map(write, worlds), total=len(worlds), unit='world', disable=args.quiet)
        written = sum(bar)
    print(f'{args.out}: {written} new places in {len(worlds)} worlds')


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(build_parser(), run, argv, on_interrupt='The same command resumes')


if __name__ == '__main__':
    sys.exit(main())
