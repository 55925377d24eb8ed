"""Detection of revisits by a threshold on distance: counts, precision, recall, as fractions."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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


def _ratio(
    numerator: NDArray[np.integer], denominator: NDArray[np.integer], empty: float
) -> NDArray[np.float64]:
    out = np.full(len(numerator), empty)
    np.divide(numerator, denominator, out=out, where=denominator > 0)
    return out
