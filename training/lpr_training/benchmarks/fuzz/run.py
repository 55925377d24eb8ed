"""Damaged inputs to every reader: what is refused in words, and what is a finding.

The input `index` of a target follows from the seed alone, so a finding can be made again:
`fuzz_process.outcomes(target, seed, index, index + 1)`.
"""

from collections import Counter
from collections.abc import Sequence
import time
from typing import Any

from tqdm import tqdm

from lpr_ros.core.errors import ConfigError
from lpr_ros.core.markdown import markdown_table
from lpr_training.benchmarks.fuzz_list import TARGETS, WEIGHTS
from lpr_training.benchmarks.fuzz_process import ACCEPTED, REFUSED, Outcome, outcomes

MOST_LISTED = 20  # findings of one kind that are written out


def run(inputs: int, seed: int = 0, targets: Sequence[str] = ()) -> dict[str, Any]:
    """Read at least `inputs` damaged inputs, shared out by how fast each target is."""
    unknown = sorted(set(targets) - TARGETS.keys())
    if unknown:
        raise ConfigError(f'no target {unknown[0]!r}; there are {list(TARGETS)}')
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
        if outcome.kind not in (ACCEPTED, REFUSED) and kinds[outcome.kind] <= MOST_LISTED:
            found.append(outcome)
            bar.write(f'{name} {outcome.index}: {outcome.kind}: {outcome.detail}')
        bar.update()
    return {
        'target': name,
        'inputs': count,
        'accepted': kinds[ACCEPTED],
        'refused': kinds[REFUSED],
        'findings': count - kinds[ACCEPTED] - kinds[REFUSED],
        'kinds': dict(kinds),
        'listed': [vars(outcome) for outcome in found],
        'seconds': time.perf_counter() - started,
    }


def table(result: dict[str, Any]) -> str:
    """Return the result as a markdown table."""
    keys = ('target', 'inputs', 'accepted', 'refused', 'findings')
    rows = [*result['targets'], {
        'target': '**all**',
        **{key: sum(row[key] for row in result['targets']) for key in keys[1:]},
    }]  # fmt: skip
    head = ('target', 'inputs', 'accepted', 'refused in words', 'findings')
    return markdown_table(head, [[row[key] for key in keys] for row in rows])
