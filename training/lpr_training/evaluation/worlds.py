"""Protocol `places`: every drive of a world against the other drives of that world.

Converted or simulated drives are folders ROOT/<world>/<drive>.
"""

from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.markdown import markdown_table
from lpr_training.datasets.base import PlaceDataset, Subset, world_of
from lpr_training.datasets.places import PlacesDataset
from lpr_training.evaluation.between_runs import PairResult, Run, evaluate_pair
from lpr_training.evaluation.protocol import (
    Protocol,
    add_radius_option,
    add_yaw_options,
    yaw_seed,
)
from lpr_training.evaluation.report import Report, Result, percent
from lpr_training.evaluation.retrieval import Search, ground_distance, nearest

if TYPE_CHECKING:
    from lpr_training.evaluation.methods import Method

COLUMNS = ('world', 'R@1', 'R@1 opposite', 'R@5', 'queries', 'opposite queries')


@dataclass(frozen=True, eq=False)
class WorldResult(Result):
    """Means over the queries of all ordered pairs of drives, NaN without queries."""

    recall_at_1: float
    recall_at_5: float
    recall_at_1_opposite: float  # queries that head opposite to the database
    queries: int
    queries_opposite: int
    pairs: tuple[PairResult, ...]


def evaluate_world(
    drives: Sequence[Run],
    forward: Sequence[NDArray[np.floating]],
    radius_m: float,
    search: Search = nearest,
) -> WorldResult:
    """Search every drive with every other one; `forward` (N, 2 or more) are the headings."""
    if len(drives) < 2:
        raise DatasetError(f'expected at least two drives, got {[d.name for d in drives]}')
    pairs, opposite = [], []
    for a, b in permutations(range(len(drives)), 2):
        pairs.append(evaluate_pair(drives[a], drives[b], radius_m, search))
        is_opposite = _heads_opposite(drives[a], forward[a], drives[b], forward[b])
        opposite_only = replace(drives[b], is_query=drives[b].is_query & is_opposite)
        opposite.append(evaluate_pair(drives[a], opposite_only, radius_m, search))
    return WorldResult(
        recall_at_1=_mean_recall(pairs, 1),
        recall_at_5=_mean_recall(pairs, 5),
        recall_at_1_opposite=_mean_recall(opposite, 1),
        queries=sum(pair.queries for pair in pairs),
        queries_opposite=sum(pair.queries for pair in opposite),
        pairs=tuple(pairs),
    )


def _heads_opposite(
    database: Run,
    database_forward: NDArray[np.floating],
    query: Run,
    query_forward: NDArray[np.floating],
) -> NDArray[np.bool_]:
    """Return which queries head against the nearest place of the database."""
    apart = ground_distance(query.positions[:, None], database.positions[None])
    closest = database_forward[apart.argmin(axis=1)]
    is_opposite: NDArray[np.bool_] = (query_forward[:, :2] * closest[:, :2]).sum(axis=1) < 0.0
    return is_opposite


def _mean_recall(pairs: Sequence[PairResult], k: int) -> float:
    found = sum(pair.recall[k - 1] * pair.queries for pair in pairs if pair.queries)
    queries = sum(pair.queries for pair in pairs)
    return float(found / queries) if queries else float('nan')


def open_worlds(
    root: Path, names: Sequence[str] | None = None, drives: str = '*'
) -> dict[str, PlaceDataset]:
    """Open the named worlds, by default every world with several drives.

    `drives` is a pattern of drive names such as `*_hdl64`.
    """
    places = PlacesDataset(root)
    places = Subset(places, np.flatnonzero([fnmatch(run, drives) for run in places.runs]))
    worlds = [world_of(run) for run in places.runs]
    with_pairs = {w for w, count in Counter(map(world_of, set(places.runs))).items() if count > 1}
    missing = sorted(set(names or ()) - with_pairs)
    if missing or not with_pairs:
        raise DatasetError(
            f'{root}: expected at least two drives matching {drives!r} in '
            f'{missing[0] if missing else "a world"}; worlds found: {sorted(set(worlds))}'
        )
    return {
        world: Subset(places, np.flatnonzero(np.array(worlds) == world))
        for world in names or sorted(with_pairs)
    }


def evaluate(
    method: 'Method',
    worlds: Mapping[str, PlaceDataset],
    *,
    radius_m: float = 5.0,
    yaw_seed: int | None = None,
) -> Report:
    """Evaluate every world; the overall recall is the mean over all queries."""
    results = {name: _evaluate_world(method, w, radius_m, yaw_seed) for name, w in worlds.items()}
    used = [r for r in results.values() if r.queries]
    first = next(iter(worlds.values()))
    values = {
        'protocol': 'places',
        'method': method.name,
        'radius_m': radius_m,
        'yaw_seed': yaw_seed,
        'recall_at_1': float(
            np.average([r.recall_at_1 for r in used], weights=[r.queries for r in used])
        )
        if used
        else float('nan'),
        'queries': sum(r.queries for r in used),
        'ms_per_scan': method.ms_per_scan(first, np.arange(len(first))),
        'worlds': {name: result.to_dict() for name, result in results.items()},
    }
    return Report(values, _markdown(method.name, results), {})


def _evaluate_world(
    method: 'Method', places: PlaceDataset, radius_m: float, yaw_seed: int | None
) -> WorldResult:
    method.check(places)
    descriptors = method.describe(places, np.arange(len(places)), yaw_seed)
    rows = {run: places.indices_of(run) for run in dict.fromkeys(places.runs)}
    drives = [
        Run(run, descriptors[at], places.positions[at], np.ones(len(at), dtype=bool))
        for run, at in rows.items()
    ]
    forward = [places.T_world_sensor[at, :3, 0] for at in rows.values()]
    return evaluate_world(drives, forward, radius_m, method.nearest)


def _markdown(name: str, results: Mapping[str, WorldResult]) -> str:
    rows = []
    for world, r in results.items():
        fractions = (r.recall_at_1, r.recall_at_1_opposite, r.recall_at_5)
        rows.append((world, *map(percent, fractions), r.queries, r.queries_opposite))
    return f'**{name}**\n\n' + markdown_table(COLUMNS, rows)


def _add_options(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add(
        '--worlds',
        nargs='+',
        metavar='WORLD',
        help='worlds to evaluate (default: every world under --data)',
    )
    add(
        '--drives',
        default='*',
        metavar='PATTERN',
        help="drives to evaluate, for example '*_hdl64' (default: all)",
    )
    add_radius_option(parser, 5.0)
    add_yaw_options(parser, 'random')


def _run(args: Namespace, method: 'Method') -> Report:
    worlds = open_worlds(args.data, args.worlds, args.drives)
    return evaluate(method, worlds, radius_m=args.radius, yaw_seed=yaw_seed(args))


PROTOCOL = Protocol(
    'converted or simulated worlds, every drive against the others of its world',
    _add_options,
    _run,
)
