"""How honest predicted probabilities are: reliability diagram and expected calibration error."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BINS = 10
DRAWS = 100


@dataclass(frozen=True, eq=False)
class Reliability:
    """Predictions in BINS intervals of equal width; a bin without predictions is NaN."""

    counts: NDArray[np.int64]  # (BINS,)
    predicted: NDArray[np.float64]  # (BINS,), mean probability
    observed: NDArray[np.float64]  # (BINS,), fraction that came true

    @property
    def error(self) -> float:
        """The expected calibration error (ECE), NaN without predictions."""
        if not self.counts.sum():
            return float('nan')
        gaps = np.abs(self.predicted - self.observed)
        return float(np.nansum(self.counts * gaps) / self.counts.sum())


def reliability(probability: NDArray[np.floating], is_true: NDArray[np.bool_]) -> Reliability:
    """Compare predicted probabilities (N,) in [0, 1] with what happened (N,)."""
    bins = np.minimum((probability * BINS).astype(np.int64), BINS - 1)
    counts = np.bincount(bins, minlength=BINS)
    predicted = np.bincount(bins, weights=probability, minlength=BINS)
    observed = np.bincount(bins, weights=is_true.astype(np.float64), minlength=BINS)
    empty = np.full(BINS, np.nan)
    return Reliability(
        counts,
        np.divide(predicted, counts, out=empty.copy(), where=counts > 0),
        np.divide(observed, counts, out=empty.copy(), where=counts > 0),
    )


def error_of_honest(probability: NDArray[np.floating], seed: int = 0) -> float:
    """Return the mean ECE if these probabilities were exact: what so few predictions can show."""
    rng = np.random.default_rng(seed)
    drawn = [rng.random(len(probability)) < probability for _ in range(DRAWS)]
    return float(np.mean([reliability(probability, is_true).error for is_true in drawn]))
