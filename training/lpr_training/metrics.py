"""Retrieval and detection metrics: pure functions of arrays, as fractions in [0, 1].

`hits` is (Q, K) bool: is the r-th nearest candidate of query q a true one? A mean over no
queries is NaN, on purpose: it is undefined, and 0 would look like a bad result.
"""

from dataclasses import dataclass
import math

import numpy as np
from numpy.typing import NDArray


def recall_at(hits: NDArray[np.bool_], k: int) -> float:
    """Return the share of queries with a true candidate among their first k."""
    if len(hits) == 0:
        return math.nan
    return float(hits[:, :k].any(axis=1).mean())


def recall_curve(hits: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return recall@1..K as (K,)."""
    if len(hits) == 0:
        return np.full(hits.shape[1], math.nan)
    return np.logical_or.accumulate(hits, axis=1).mean(axis=0)


def one_percent_cutoff(database_size: int, limit: int = 25) -> int:
    """Return k of recall@1 %: max(round(size / 100), 1), half to even, at most `limit`."""
    return min(max(round(database_size / 100), 1), limit)


def mean_reciprocal_rank(hits: NDArray[np.bool_], omit_misses: bool = False) -> float:
    """Return the mean of 1 / rank of the first true candidate.

    A query without one counts 0; `omit_misses` leaves it out as the Wild-Places script does,
    which flatters: for ranks (2, 1, miss) it says 0.75 instead of 0.5.
    """
    found = hits.any(axis=1)
    reciprocal = np.where(found, 1.0 / (hits.argmax(axis=1) + 1), 0.0)
    counted = reciprocal[found] if omit_misses else reciprocal
    return float(counted.mean()) if len(counted) else math.nan


def average_precision_at(
    hits: NDArray[np.bool_], true_counts: NDArray[np.integer], k: int
) -> NDArray[np.float64]:
    """Return AP@k of each query, (1 / min(k, R)) sum_{r<=k} precision(r) rel(r), as (Q,).

    R is the number of true candidates in the database; a query with R = 0 is NaN.
    """
    relevant = hits[:, :k].astype(np.float64)
    precision = relevant.cumsum(axis=1) / np.arange(1, relevant.shape[1] + 1)
    total = (precision * relevant).sum(axis=1)
    best = np.minimum(true_counts, k)
    return np.divide(total, best, out=np.full(len(total), math.nan), where=best > 0)


def mean_average_precision_curve(
    hits: NDArray[np.bool_], true_counts: NDArray[np.integer], k_max: int = 10
) -> NDArray[np.float64]:
    """Return MAP@1..k_max over the queries with a true candidate, as (k_max,)."""
    known = true_counts > 0
    if not known.any():
        return np.full(k_max, math.nan)
    curve = [average_precision_at(hits[known], true_counts[known], k) for k in range(1, k_max + 1)]
    return np.array([values.mean() for values in curve])


@dataclass(frozen=True, eq=False)
class Detections:
    """Counts of the four outcomes at each threshold: what every detection curve is made of."""

    thresholds: NDArray[np.float64]  # (T,)
    tp: NDArray[np.int64]
    fp: NDArray[np.int64]
    fn: NDArray[np.int64]
    tn: NDArray[np.int64]

    def precision(self) -> NDArray[np.float64]:
        """Return TP / (TP + FP); 1 where nothing is claimed, as nothing claimed is wrong."""
        return _ratio(self.tp, self.tp + self.fp, empty=1.0)

    def recall(self) -> NDArray[np.float64]:
        """Return TP / (TP + FN), which is also the true positive rate; 0 where undefined."""
        return _ratio(self.tp, self.tp + self.fn, empty=0.0)

    def false_positive_rate(self) -> NDArray[np.float64]:
        """Return FP / (FP + TN); 0 where undefined."""
        return _ratio(self.fp, self.fp + self.tn, empty=0.0)

    def f1_max(self) -> float:
        """Return the largest F1 over thresholds with TP > 0, else 0."""
        f1 = _ratio(2 * self.tp, 2 * self.tp + self.fp + self.fn, empty=0.0)
        return float(f1.max(initial=0.0))

    def recall_at_full_precision(self) -> float:
        """Return the largest recall at which no detection is wrong, 0 if there is none."""
        return float(self.recall()[self.fp == 0].max(initial=0.0))

    def roc_area(self) -> float:
        """Return the area under the ROC curve between its own end points."""
        fpr, tpr = self.false_positive_rate(), self.recall()
        order = np.lexsort((tpr, fpr))
        fpr, tpr = fpr[order], tpr[order]
        return float(np.sum(np.diff(fpr) * (tpr[1:] + tpr[:-1]) / 2))


def count_detections(
    distances: NDArray[np.floating],
    is_correct: NDArray[np.bool_],
    is_revisit: NDArray[np.bool_],
    thresholds: NDArray[np.floating],
) -> Detections:
    """Count as Wild-Places does, one top-1 match (Q,) per query, claimed iff distance < threshold.

    Claimed: TP if right, else FP, also at a revisit. Not claimed: FN at a revisit, else TN.
    """
    below = [
        np.searchsorted(np.sort(distances[mask]), thresholds, side='left')
        for mask in (is_correct, ~is_correct, is_revisit, ~is_revisit)
    ]
    tp, fp, claimed_revisits, claimed_others = below
    fn = int(is_revisit.sum()) - claimed_revisits
    tn = int((~is_revisit).sum()) - claimed_others
    return Detections(np.asarray(thresholds, dtype=np.float64), tp, fp, fn, tn)


def sweep_detections(
    distances: NDArray[np.floating], is_correct: NDArray[np.bool_], is_revisit: NDArray[np.bool_]
) -> Detections:
    """Count at every threshold that changes anything; a wrong match at a revisit is missed too.

    So TP + FN is the number of revisits at every threshold and recall is a share of it. The
    wrong match at a revisit is in FP and in FN; TN are queries of new places not claimed.
    """
    finite = np.unique(distances[np.isfinite(distances)].astype(np.float64))
    # One threshold above the largest distance claims every match (finite, so JSON can hold it).
    thresholds = np.append(finite, np.nextafter(finite[-1:], np.inf))
    counts = count_detections(distances, is_correct, is_revisit, thresholds)
    fn = int(is_revisit.sum()) - counts.tp
    return Detections(thresholds, counts.tp, counts.fp, fn, counts.tn)


def expected_calibration_error(
    probabilities: NDArray[np.floating], outcomes: NDArray[np.bool_], bins: int = 10
) -> float:
    """Return the mean gap between claimed probability and observed share, weighted by bin."""
    if len(probabilities) == 0:
        return math.nan
    index = np.minimum((np.asarray(probabilities) * bins).astype(np.int64), bins - 1)
    claimed = np.bincount(index, weights=probabilities, minlength=bins)
    observed = np.bincount(index, weights=outcomes, minlength=bins)
    return float(np.abs(claimed - observed).sum() / len(probabilities))


def _ratio(
    numerator: NDArray[np.integer], denominator: NDArray[np.integer], empty: float
) -> NDArray[np.float64]:
    out = np.full(len(numerator), empty)
    return np.divide(numerator, denominator, out=out, where=denominator > 0)
