"""Feed damaged inputs to every reader of external data.

A reader must accept an input or reject it with an error that names it; anything else is a finding.
The seed determines input `index` of a target, so that a finding can be reproduced:
`list(process.outcomes(target, seed, index, index + 1))`.
"""

import argparse
from collections import Counter
from collections.abc import Sequence
import time
from typing import Any

from tqdm import tqdm

from lpr_ros.core.errors import ConfigError
from lpr_ros.core.markdown import markdown_table
from lpr_training.benchmarks.fuzz.process import ACCEPTED, REJECTED, Outcome, outcomes
from lpr_training.benchmarks.fuzz.registry import TARGETS, WEIGHTS
from lpr_training.benchmarks.options import add_option

MAX_LISTED = 20  # findings of one kind to report in full


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_option(parser, '--inputs', 100_000, 'Total number of inputs')
    add_option(parser, '--seed', 0, 'Seed of the inputs')
    parser.add_argument(
        '--targets',
        nargs='+',
        default=[],
        metavar='NAME',
        help="Readers to attack, such as map or 'bag ros1' (all)",
    )


def run(inputs: int, seed: int = 0, targets: Sequence[str] = ()) -> dict[str, Any]:
    """Read at least `inputs` damaged inputs, distributed by the weights of the targets."""
    unknown = sorted(set(targets) - TARGETS.keys())
    if unknown:
        raise ConfigError(f'--targets {unknown[0]!r}: unknown, expected some of {list(TARGETS)}')
    chosen = list(targets) or list(TARGETS)
    total = sum(WEIGHTS[name] for name in chosen)
    shares = {name: -(-inputs * WEIGHTS[name] // total) for name in chosen}
    started = time.perf_counter()
    with tqdm(total=sum(shares.values()), unit='input') as bar:
        rows = [_run_target(name, seed, count, bar) for name, count in shares.items()]
    return {
        'seed': seed,
        'inputs': sum(row['inputs'] for row in rows),
        'findings': sum(row['findings'] for row in rows),
        'seconds': time.perf_counter() - started,
        'targets': rows,
    }


def _run_target(name: str, seed: int, count: int, bar: Any) -> dict[str, Any]:
    bar.set_description(name)
    started = time.perf_counter()
    kinds: Counter[str] = Counter()
    found: list[Outcome] = []
    for outcome in outcomes(name, seed, 0, count):
        kinds[outcome.kind] += 1
        if outcome.kind not in (ACCEPTED, REJECTED) and kinds[outcome.kind] <= MAX_LISTED:
            found.append(outcome)
            bar.write(f'{name} {outcome.index}: {outcome.kind}: {outcome.detail}')
        bar.update()
    return {
        'target': name,
        'inputs': count,
        'accepted': kinds[ACCEPTED],
        'refused': kinds[REJECTED],
        'findings': count - kinds[ACCEPTED] - kinds[REJECTED],
        'kinds': dict(kinds),
        'listed': [vars(outcome) for outcome in found],
        'seconds': time.perf_counter() - started,
    }


def table(result: dict[str, Any]) -> str:
    """Return the results as a markdown table."""
    keys = ('target', 'inputs', 'accepted', 'refused', 'findings')
    rows = [*result['targets'], {
        'target': '**all**',
        **{key: sum(row[key] for row in result['targets']) for key in keys[1:]},
    }]  # fmt: skip
    head = ('target', 'inputs', 'accepted', 'rejected', 'findings')
    return markdown_table(head, [[row[key] for key in keys] for row in rows])
