"""Protocols `oxford` and `wild_places_inter`: every run is searched with every other run.

Oxford RobotCar and the In-house sets use a radius of 25 m (PointNetVLAD), Wild-Places 3 m.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.markdown import markdown_table
from lpr_training.datasets import wild_places
from lpr_training.datasets.base import PlaceDataset, describe_folder
from lpr_training.datasets.splits import oxford as oxford_splits
from lpr_training.datasets.splits import wild_places as wild_places_splits
from lpr_training.evaluation.metrics import (
    mean_average_precision_curve,
    mean_reciprocal_rank,
    one_percent_cutoff,
    recall_at,
    recall_curve,
)
from lpr_training.evaluation.protocol import Protocol, add_sets_option
from lpr_training.evaluation.report import Report, Result, percent
from lpr_training.evaluation.retrieval import Search, nearest, true_hits

if TYPE_CHECKING:
    from lpr_training.evaluation.methods import Method

OXFORD_RADIUS_M = 25.0
WILD_PLACES_RADIUS_M = 3.0
CANDIDATES = 25
MAP_DEPTH = 10
# Set -> its column in the paper's table.
OXFORD_NAMES = {
    'oxford': 'Oxford',
    'university': 'U.S.',
    'residential': 'R.A.',
    'business': 'B.D.',
}
SITES = tuple(wild_places.SITES.values())
COLUMNS = ('R@1', 'R@1%', 'MRR', 'MRR official', 'MAP@10', 'pairs', 'queries')


@dataclass(frozen=True, eq=False)
class Run:
    """One drive: every place is in the database, the marked ones are also queries."""

    name: str
    descriptors: NDArray[np.floating]  # (N, D), or any array that the search accepts
    positions: NDArray[np.floating]  # (N, 2 or more), meters, in a frame shared by all runs
    is_query: NDArray[np.bool_]  # (N,)

    def __post_init__(self) -> None:
        lengths = len(self.descriptors), len(self.positions), len(self.is_query)
        if len(set(lengths)) != 1:
            raise DatasetError(
                f'run {self.name}: expected as many descriptors, positions and query flags, '
                f'got {lengths}'
            )


@dataclass(frozen=True, eq=False)
class PairResult(Result):
    """One ordered pair of runs, over the queries that have a true neighbor."""

    database: str
    query: str
    queries: int
    queries_skipped: int
    recall: NDArray[np.float64]  # recall@1..25
    recall_at_one_percent: float
    mrr: float  # a miss counts 0
    mrr_official: float  # without the misses, as the Wild-Places script
    map_curve: NDArray[np.float64]  # MAP@1..10


@dataclass(frozen=True, eq=False)
class RunsResult(Result):
    """Unweighted means over the ordered pairs that have at least one evaluated query."""

    recall_at_1: float
    recall_at_one_percent: float
    mrr: float
    mrr_official: float
    recall: NDArray[np.float64]
    map_curve: NDArray[np.float64]
    pairs: int
    pairs_skipped: int
    queries: int
    details: tuple[PairResult, ...]


def evaluate_oxford(runs: Sequence[Run]) -> RunsResult:
    """Evaluate the runs of Oxford (506 ordered pairs) or of one In-house area (20)."""
    return evaluate_runs(runs, OXFORD_RADIUS_M)


def evaluate_wild_places_inter(runs: Sequence[Run]) -> RunsResult:
    """Evaluate the four runs of one Wild-Places site (12 ordered pairs)."""
    return evaluate_runs(runs, WILD_PLACES_RADIUS_M)


def evaluate_runs(runs: Sequence[Run], radius_m: float, search: Search = nearest) -> RunsResult:
    """Search every run with the queries of every other run and average over the pairs."""
    if len(runs) < 2:
        raise DatasetError(f'expected at least two runs, got {[run.name for run in runs]}')
    results = [evaluate_pair(a, b, radius_m, search) for a, b in permutations(runs, 2)]
    used = [result for result in results if result.queries > 0]
    if not used:
        raise DatasetError(f'no query has a true neighbor within {radius_m} m in another run')
    official = np.array([result.mrr_official for result in used])
    recall = np.mean([result.recall for result in used], axis=0)
    return RunsResult(
        recall_at_1=float(recall[0]),
        recall_at_one_percent=float(np.mean([r.recall_at_one_percent for r in used])),
        mrr=float(np.mean([result.mrr for result in used])),
        # Undefined for a pair whose queries all miss; such a pair is omitted like the misses.
        mrr_official=float(np.nanmean(official)) if not np.isnan(official).all() else np.nan,
        recall=recall,
        map_curve=np.mean([result.map_curve for result in used], axis=0),
        pairs=len(used),
        pairs_skipped=len(results) - len(used),
        queries=sum(result.queries for result in used),
        details=tuple(results),
    )


def evaluate_pair(
    database: Run, query: Run, radius_m: float, search: Search = nearest
) -> PairResult:
    """Search one run with the queries of another."""
    ranked, _ = search(query.descriptors[query.is_query], database.descriptors, CANDIDATES)
    query_xy = query.positions[query.is_query]
    hits, true_counts = true_hits(ranked, query_xy, database.positions, radius_m)
    known = true_counts > 0
    # A database of fewer than CANDIDATES places returns fewer columns; the rest are misses.
    hits = np.pad(hits[known], ((0, 0), (0, CANDIDATES - hits.shape[1])))
    return PairResult(
        database=database.name,
        query=query.name,
        queries=int(known.sum()),
        queries_skipped=int((~known).sum()),
        recall=recall_curve(hits),
        recall_at_one_percent=recall_at(
            hits, one_percent_cutoff(len(database.descriptors), CANDIDATES)
        ),
        mrr=mean_reciprocal_rank(hits),
        mrr_official=mean_reciprocal_rank(hits, omit_misses=True),
        map_curve=mean_average_precision_curve(hits, true_counts[known], MAP_DEPTH),
    )


@dataclass(frozen=True, eq=False)
class Part:
    """The runs of one area or site, and which of their places are queries."""

    name: str
    places: PlaceDataset
    is_query: NDArray[np.bool_]


def oxford_parts(root: Path, sets: Sequence[str] | None = None) -> list[Part]:
    """Open the named sets under a root, by default all of them; names as in the paper."""
    available = oxford_splits.present(root)
    if not available:
        expected = 'oxford/<run> or inhouse_datasets/<run>'
        raise DatasetError(f'{root}: expected {expected}, found {describe_folder(Path(root))}')
    parts = []
    for name in [n for n in OXFORD_NAMES if n in (sets or available)]:
        places = oxford_splits.evaluation_dataset(root, name)
        is_query = oxford_splits.is_test_place(name, places.positions[:, :2])
        parts.append(Part(OXFORD_NAMES[name], places, is_query))
    return parts


def wild_places_parts(root: Path, sets: Sequence[str] | None = None) -> list[Part]:
    """Open the named sites under a root, by default all of them."""
    available = {wild_places.SITES[s[0]] for s in wild_places.present(root)}
    if not available:
        expected = 'V-01 or Venman/V-01'
        raise DatasetError(f'{root}: expected {expected}, found {describe_folder(Path(root))}')
    parts = []
    for site in [s for s in SITES if s in (sets or available)]:
        places = wild_places_splits.inter_dataset(root, site)
        split = wild_places_splits.split_of(site, places.positions[:, :2])
        parts.append(Part(site, places, split == wild_places_splits.TEST))
    return parts


def evaluate(method: 'Method', part: Part, radius_m: float) -> RunsResult:
    """Describe every place of a part and search every run with every other one."""
    method.check(part.places)
    descriptors = method.describe(part.places, np.arange(len(part.places)))
    runs = list(_split_runs(part.places, descriptors, part.is_query))
    return evaluate_runs(runs, radius_m, method.nearest)


def _split_runs(
    places: PlaceDataset, descriptors: NDArray[np.float32], is_query: NDArray[np.bool_]
) -> Iterator[Run]:
    for run in dict.fromkeys(places.runs):
        rows = places.indices_of(run)
        yield Run(run, descriptors[rows], places.positions[rows, :2], is_query[rows])


def evaluate_all(
    protocol: str, method: 'Method', parts: Sequence[Part], radius_m: float
) -> Report:
    """Evaluate every part and average the results."""
    results = {part.name: evaluate(method, part, radius_m) for part in parts}
    places = parts[0].places
    values = {
        'protocol': protocol,
        'method': method.name,
        'recall_at_1': float(np.mean([r.recall_at_1 for r in results.values()])),
        'recall_at_one_percent': float(
            np.mean([r.recall_at_one_percent for r in results.values()])
        ),
        'mrr': float(np.mean([r.mrr for r in results.values()])),
        'mrr_official': float(np.mean([r.mrr_official for r in results.values()])),
        'queries': sum(r.queries for r in results.values()),
        'ms_per_scan': method.ms_per_scan(places, np.arange(len(places))),
        'sets': {name: result.to_dict() for name, result in results.items()},
    }
    from lpr_training.figures import plot_map_at_k

    figure = plot_map_at_k({name: {method.name: r.map_curve} for name, r in results.items()})
    return Report(values, _markdown(method.name, results), {'map_at_k': figure})


def _markdown(name: str, results: Mapping[str, RunsResult]) -> str:
    rows = []
    for title, r in results.items():
        fractions = (
            r.recall_at_1,
            r.recall_at_one_percent,
            r.mrr,
            r.mrr_official,
            r.map_curve[-1],
        )
        rows.append((title, *map(percent, fractions), r.pairs, r.queries))
    return f'**{name}**\n\n' + markdown_table(('set', *COLUMNS), rows)


def _add_oxford_options(parser: ArgumentParser) -> None:
    add_sets_option(parser, tuple(OXFORD_NAMES))


def _run_oxford(args: Namespace, method: 'Method') -> Report:
    return evaluate_all('oxford', method, oxford_parts(args.data, args.sets), OXFORD_RADIUS_M)


def _add_wild_places_options(parser: ArgumentParser) -> None:
    add_sets_option(parser, SITES)


def _run_wild_places(args: Namespace, method: 'Method') -> Report:
    parts = wild_places_parts(args.data, args.sets)
    return evaluate_all('wild_places_inter', method, parts, WILD_PLACES_RADIUS_M)


OXFORD = Protocol(
    'Oxford RobotCar and the In-house sets, all pairs of runs',
    _add_oxford_options,
    _run_oxford,
    metric_clouds=False,
)
WILD_PLACES_INTER = Protocol(
    'Wild-Places between the sequences of each site', _add_wild_places_options, _run_wild_places
)
