r"""Simulate all worlds that the `sim` weights are trained, chosen and tested on.

    python training/simulate_suite.py --out ../data_sim
    python training/train.py config/sim.yaml --data ../data_sim/worlds --out runs/sim
    python training/evaluate.py places --weights weights/sim.safetensors --data ../data_sim/test

About 20,000 thinned scans, 5 GB, ten minutes to half an hour on two cores. The same command goes
on where it was stopped.
"""

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
import multiprocessing
from pathlib import Path
import sys

from tqdm import tqdm

from lpr_ros.core.errors import ConfigError, LprError
from lpr_training.simulator.suite import SuiteWorld, sim_suite, write_world


def build_parser() -> argparse.ArgumentParser:
    """Declare the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add('--out', type=Path, required=True, metavar='DIR', help='folder of all worlds')
    add('--worlds', nargs='+', metavar='NAME', help='only these, e.g. city_0 (default: all)')
    add('--processes', type=int, default=2, help='worlds made at once (2)')
    add('--quiet', action='store_true', help='no progress bar')
    return parser


def _chosen(names: Sequence[str] | None) -> list[SuiteWorld]:
    """Return the worlds that are asked for, all without names."""
    known = {world.name: world for world in sim_suite()}
    unknown = sorted(set(names or ()) - set(known))
    if unknown:
        raise ConfigError(f'no world {unknown[0]!r} in the suite; choose from {list(known)}')
    return [known[name] for name in names or known]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, 1 on bad input, 130 on Ctrl-C."""
    args = build_parser().parse_args(argv)
    write = partial(write_world, root=args.out)
    # Spawned: a forked child would share the threads of the ray caster.
    context = multiprocessing.get_context('spawn')
    try:
        worlds = _chosen(args.worlds)
        with ProcessPoolExecutor(args.processes, mp_context=context) as pool:
            bar = tqdm(
                pool.map(write, worlds), total=len(worlds), unit='world', disable=args.quiet
            )
            written = sum(bar)
    except (LprError, OSError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('interrupted; the same command goes on from here', file=sys.stderr)
        return 130
    print(f'{args.out}: {written} new places in {len(worlds)} worlds')
    return 0


if __name__ == '__main__':
    sys.exit(main())
