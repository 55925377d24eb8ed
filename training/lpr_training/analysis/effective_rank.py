"""Rank and effective rank of covariance matrices (Roy and Vetterli, 2007)."""

import numpy as np
from numpy.typing import NDArray

MIN_EIGENVALUE = 1e-5  # the regularization that the whitening adds


def rank(
    covariances: NDArray[np.floating], min_eigenvalue: float = MIN_EIGENVALUE
) -> NDArray[np.int64]:
    """Return the number of eigenvalues above `min_eigenvalue`, (N, C, C) -> (N,)."""
    return (np.linalg.eigvalsh(covariances.astype(np.float64)) > min_eigenvalue).sum(axis=-1)


def effective_rank(
    covariances: NDArray[np.floating], min_eigenvalue: float = MIN_EIGENVALUE
) -> NDArray[np.float64]:
    """Return exp(-sum p ln p) of the clipped, normalized eigenvalues, (N, C, C) -> (N,)."""
    eigenvalues = np.linalg.eigvalsh(covariances.astype(np.float64)).clip(min_eigenvalue)
    p = eigenvalues / eigenvalues.sum(axis=-1, keepdims=True)
    return np.exp(-(p * np.log(p)).sum(axis=-1))
