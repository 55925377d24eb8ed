"""Statistics that are NaN, not an error, for empty data."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def mean_of(values: NDArray[Any]) -> float:
    """Return the mean."""
    return float(np.mean(values)) if len(values) else float('nan')


def median_of(values: NDArray[np.float64]) -> float:
    """Return the median."""
    return percentile_of(values, 50.0)


def percentile_of(values: NDArray[np.float64], percent: float) -> float:
    """Return a percentile."""
    return float(np.percentile(values, percent)) if len(values) else float('nan')


def fraction_of(part: int, whole: int) -> float:
    """Return part / whole."""
    return part / whole if whole else float('nan')
