"""Protocols between runs: every run is searched with the queries of every other run.

Oxford and In-house (25 m, PointNetVLAD) and Wild-Places inter-sequence (3 m) are the same rule.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_training.metrics import (
    mean_average_precision_curve,
    mean_reciprocal_rank,
    one_percent_cutoff,
    recall_at,
    recall_curve,
)
from lpr_training.protocols.results import Result
from lpr_training.protocols.retrieval import Search, nearest, true_hits

OXFORD_RADIUS_M = 25.0
WILD_PLACES_RADIUS_M = 3.0
CANDIDATES = 25
MAP_DEPTH = 10


@dataclass(frozen=True, eq=False)
class Run:
    """One drive: all of it is database, the marked part asks."""

    name: str
    descriptors: NDArray[np.floating]  # (N, D), or what the search takes
    positions: NDArray[np.floating]  # (N, 2 or more), metres, one frame for all runs
    is_query: NDArray[np.bool_]  # (N,)

    def __post_init__(self) -> None:
        lengths = len(self.descriptors), len(self.positions), len(self.is_query)
        if len(set(lengths)) != 1:
            raise DatasetError(
                f'run {self.name}: {lengths} descriptors, positions, query marks; expected equal'
            )


@dataclass(frozen=True, eq=False)
class PairResult(Result):
    """One ordered pair of runs, over the queries that have a true neighbour."""

    database: str
    query: str
    queries: int
    queries_skipped: int
    recall: NDArray[np.float64]  # recall@1..25
    recall_at_one_percent: float
    mrr: float  # a miss counts 0
    mrr_official: float  # misses left out, as the Wild-Places script does
    map_curve: NDArray[np.float64]  # MAP@1..10


@dataclass(frozen=True, eq=False)
class RunsResult(Result):
    """Unweighted means over the ordered pairs that have any evaluated query."""

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
    """Evaluate the runs of Oxford or of one In-house area: 506 or 20 ordered pairs, 25 m."""
    return evaluate_runs(runs, OXFORD_RADIUS_M)


def evaluate_wild_places_inter(runs: Sequence[Run]) -> RunsResult:
    """Evaluate the four runs of one Wild-Places site: 12 ordered pairs, 3 m."""
    return evaluate_runs(runs, WILD_PLACES_RADIUS_M)


def evaluate_runs(
    runs: Sequence[Run], radius_m: float, search: Search = nearest
) -> RunsResult:
    """Search every run with the queries of every other run and average over the pairs."""
    if len(runs) < 2:
        raise DatasetError(f'at least two runs are needed, got {[run.name for run in runs]}')
    results = [evaluate_pair(a, b, radius_m, search) for a, b in permutations(runs, 2)]
    used = [result for result in results if result.queries > 0]
    if not used:
        raise DatasetError(f'no query has a true neighbour within {radius_m} m in another run')
    official = np.array([result.mrr_official for result in used])
    recall = np.mean([result.recall for result in used], axis=0)
    return RunsResult(
        recall_at_1=float(recall[0]),
        recall_at_one_percent=float(np.mean([r.recall_at_one_percent for r in used])),
        mrr=float(np.mean([result.mrr for result in used])),
        # Undefined for a pair where every query misses: left out, like the misses themselves.
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
    # A database of fewer than 25 has fewer columns; what does not exist is not hit.
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
