"""Worlds driven through more than once: every drive is searched with every other of its world."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_training.protocols.results import Result
from lpr_training.protocols.retrieval import Search, ground_distance, nearest
from lpr_training.protocols.runs import PairResult, Run, evaluate_pair


@dataclass(frozen=True, eq=False)
class WorldResult(Result):
    """Means over all queries of all ordered pairs of drives; NaN without any."""

    recall_at_1: float
    recall_at_5: float
    recall_at_1_opposite: float  # queries that face the other way than the drive they search
    queries: int
    queries_opposite: int
    pairs: tuple[PairResult, ...]


def evaluate_world(
    drives: Sequence[Run],
    forward: Sequence[NDArray[np.floating]],
    radius_m: float,
    search: Search = nearest,
) -> WorldResult:
    """Search every drive with every other; `forward` (N, 2 or more) is where each place faces."""
    if len(drives) < 2:
        raise DatasetError(f'at least two drives are needed, got {[d.name for d in drives]}')
    every, opposite = [], []
    for a, b in permutations(range(len(drives)), 2):
        every.append(evaluate_pair(drives[a], drives[b], radius_m, search))
        faces = _faces_opposite(drives[a], forward[a], drives[b], forward[b])
        reversed_only = replace(drives[b], is_query=drives[b].is_query & faces)
        opposite.append(evaluate_pair(drives[a], reversed_only, radius_m, search))
    return WorldResult(
        recall_at_1=_mean_recall(every, 1),
        recall_at_5=_mean_recall(every, 5),
        recall_at_1_opposite=_mean_recall(opposite, 1),
        queries=sum(pair.queries for pair in every),
        queries_opposite=sum(pair.queries for pair in opposite),
        pairs=tuple(every),
    )


def _faces_opposite(
    database: Run,
    database_forward: NDArray[np.floating],
    query: Run,
    query_forward: NDArray[np.floating],
) -> NDArray[np.bool_]:
    """Mark queries whose nearest place in the database faces the other way."""
    apart = ground_distance(query.positions[:, None], database.positions[None])
    closest = database_forward[apart.argmin(axis=1)]
    facing: NDArray[np.bool_] = (query_forward[:, :2] * closest[:, :2]).sum(axis=1) < 0.0
    return facing


def _mean_recall(pairs: Sequence[PairResult], k: int) -> float:
    found = sum(pair.recall[k - 1] * pair.queries for pair in pairs if pair.queries)
    queries = sum(pair.queries for pair in pairs)
    return float(found / queries) if queries else float('nan')
