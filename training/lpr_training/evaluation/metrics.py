"""Retrieval metrics as fractions in [0, 1].

`hits` is (Q, K) bool: whether the r-th nearest candidate of query q is a true neighbor. A mean
over no queries is NaN, because 0 would look like a bad result.
"""

import math

import numpy as np
from numpy.typing import NDArray


def recall_at(hits: NDArray[np.bool_], k: int) -> float:
    """Return the fraction of queries with a true neighbor among the first k candidates."""
    if len(hits) == 0:
        return math.nan
    return float(hits[:, :k].any(axis=1).mean())


def recall_curve(hits: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return recall@1 to recall@K as (K,)."""
    if len(hits) == 0:
        return np.full(hits.shape[1], math.nan)
    return np.logical_or.accumulate(hits, axis=1).mean(axis=0)


def one_percent_cutoff(database_size: int, limit: int = 25) -> int:
    """Return the k of recall@1%: 1 % of the database, at least 1 and at most `limit`."""
    return min(max(round(database_size / 100), 1), limit)


def mean_reciprocal_rank(hits: NDArray[np.bool_], omit_misses: bool = False) -> float:
    """Return the mean of 1 / rank of the first true neighbor; a miss counts as 0.

    `omit_misses` excludes misses from the mean like the Wild-Places script, which overstates the
    result: ranks (2, 1, miss) give 0.75 instead of 0.5.
    """
    found = hits.any(axis=1)
    reciprocal = np.where(found, 1.0 / (hits.argmax(axis=1) + 1), 0.0)
    counted = reciprocal[found] if omit_misses else reciprocal
    return float(counted.mean()) if len(counted) else math.nan


def average_precision_at(
    hits: NDArray[np.bool_], true_counts: NDArray[np.integer], k: int
) -> NDArray[np.float64]:
    """Return AP@k of each query, (1 / min(k, R)) sum_{r<=k} precision(r) rel(r), as (Q,).

    R is the number of true neighbors in the database; a query with R = 0 is NaN.
    """
    relevant = hits[:, :k].astype(np.float64)
    precision = relevant.cumsum(axis=1) / np.arange(1, relevant.shape[1] + 1)
    total = (precision * relevant).sum(axis=1)
    best = np.minimum(true_counts, k)
    return np.divide(total, best, out=np.full(len(total), math.nan), where=best > 0)


def mean_average_precision_curve(
    hits: NDArray[np.bool_], true_counts: NDArray[np.integer], k_max: int = 10
) -> NDArray[np.float64]:
    """Return MAP@1 to MAP@k_max over the queries with a true neighbor, as (k_max,)."""
    known = true_counts > 0
    if not known.any():
        return np.full(k_max, math.nan)
    curve = [average_precision_at(hits[known], true_counts[known], k) for k in range(1, k_max + 1)]
    return np.array([values.mean() for values in curve])
