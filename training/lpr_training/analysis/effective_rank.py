"""Rank and effective rank of covariance matrices (Roy and Vetterli, 2007)."""

import numpy as np
from numpy.typing import NDArray

# Eigenvalues up to here are noise: the jitter that the whitening adds.
SMALLEST = 1e-5


def rank(covariances: NDArray[np.floating], smallest: float = SMALLEST) -> NDArray[np.int64]:
    """Return the number of eigenvalues above `smallest`, (N, C, C) -> (N,)."""
    return (np.linalg.eigvalsh(covariances.astype(np.float64)) > smallest).sum(axis=-1)


def effective_rank(
    covariances: NDArray[np.floating], smallest: float = SMALLEST
) -> NDArray[np.float64]:
    """Return exp(-sum p ln p) of the normalised eigenvalues clipped below, (N, C, C) -> (N,)."""
    eigenvalues = np.linalg.eigvalsh(covariances.astype(np.float64)).clip(smallest)
    p = eigenvalues / eigenvalues.sum(axis=-1, keepdims=True)
    return np.exp(-(p * np.log(p)).sum(axis=-1))
