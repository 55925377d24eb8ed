"""Detection of revisits by a distance threshold: counts, precision and recall."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Detections:
    """Counts of the four outcomes at each threshold."""

    thresholds: NDArray[np.float64]  # (T,)
    tp: NDArray[np.int64]
    fp: NDArray[np.int64]
    fn: NDArray[np.int64]
    tn: NDArray[np.int64]

    def precision(self) -> NDArray[np.float64]:
        """Return TP / (TP + FP); 1 without detections."""
        return _ratio(self.tp, self.tp + self.fp, empty=1.0)

    def recall(self) -> NDArray[np.float64]:
        """Return TP / (TP + FN), the true positive rate; 0 if undefined."""
        return _ratio(self.tp, self.tp + self.fn, empty=0.0)

    def false_positive_rate(self) -> NDArray[np.float64]:
        """Return FP / (FP + TN); 0 if undefined."""
        return _ratio(self.fp, self.fp + self.tn, empty=0.0)

    def f1_max(self) -> float:
        """Return the maximum F1 score over all thresholds."""
        f1 = _ratio(2 * self.tp, 2 * self.tp + self.fp + self.fn, empty=0.0)
        return float(f1.max(initial=0.0))

    def recall_at_full_precision(self) -> float:
        """Return the maximum recall at 100 % precision, 0 if there is none."""
        return float(self.recall()[self.fp == 0].max(initial=0.0))

    def roc_area(self) -> float:
        """Return the area under the ROC curve between its first and last point."""
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
    """Count as Wild-Places does: one top-1 match per query, detected iff distance < threshold.

    A detection is a TP if the match is correct, else an FP, even at a revisit. A query without a
    detection is an FN at a revisit, else a TN. Arrays are (Q,).
    """
    below = [
        np.searchsorted(np.sort(distances[mask]), thresholds, side='left')
        for mask in (is_correct, ~is_correct, is_revisit, ~is_revisit)
    ]
    tp, fp, detected_revisits, detected_others = below
    fn = int(is_revisit.sum()) - detected_revisits
    tn = int((~is_revisit).sum()) - detected_others
    return Detections(np.asarray(thresholds, dtype=np.float64), tp, fp, fn, tn)


def sweep_detections(
    distances: NDArray[np.floating], is_correct: NDArray[np.bool_], is_revisit: NDArray[np.bool_]
) -> Detections:
    """Count at every distinct threshold; a wrong match at a revisit is both an FP and an FN.

    TP + FN is then the number of revisits at every threshold.
    """
    finite = np.unique(distances[np.isfinite(distances)].astype(np.float64))
    # One threshold above the largest distance detects every match; finite for the sake of JSON.
    thresholds = np.append(finite, np.nextafter(finite[-1:], np.inf))
    counts = count_detections(distances, is_correct, is_revisit, thresholds)
    fn = int(is_revisit.sum()) - counts.tp
    return Detections(thresholds, counts.tp, counts.fp, fn, counts.tn)


def _ratio(
    numerator: NDArray[np.integer], denominator: NDArray[np.integer], empty: float
) -> NDArray[np.float64]:
    out = np.full(len(numerator), empty)
    np.divide(numerator, denominator, out=out, where=denominator > 0)
    return out
