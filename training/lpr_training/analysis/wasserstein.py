"""2-Wasserstein distances between Voronoi cells, exact or of fitted Gaussians."""

from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist


def exact_w2(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """Return W2 between two samples (N, C) of equal size and uniform weight.

    W2^2 is the minimum mean squared distance over all one-to-one assignments.
    """
    if len(a) != len(b):
        raise ValueError(f'expected samples of equal size, got {len(a)} and {len(b)}')
    cost = cdist(a, b, 'sqeuclidean')
    return float(np.sqrt(cost[linear_sum_assignment(cost)].mean()))


def gaussian_w2(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """Return W2 between Gaussians with the means and covariances of the samples.

    W2^2 = ||m1 - m2||^2 + Tr(S1 + S2 - 2 (S1^(1/2) S2 S1^(1/2))^(1/2)).
    """
    first, second = (np.atleast_2d(np.cov(x, rowvar=False, bias=True)) for x in (a, b))
    root = _root(first)
    cross = np.sqrt(np.linalg.eigvalsh(root @ second @ root).clip(0.0)).sum()
    means = np.square(a.mean(axis=0) - b.mean(axis=0)).sum()
    return float(np.sqrt(max(means + np.trace(first) + np.trace(second) - 2.0 * cross, 0.0)))


def between_cells(vectors: NDArray[np.floating], gaussian: bool = False) -> NDArray[np.float64]:
    """Return W2 between all cells, (N, M, C) of N clouds -> symmetric (M, M)."""
    distance = gaussian_w2 if gaussian else exact_w2
    cells = np.asarray(vectors, dtype=np.float64).transpose(1, 0, 2)
    matrix = np.zeros((len(cells), len(cells)))
    for i, j in combinations(range(len(cells)), 2):
        matrix[i, j] = matrix[j, i] = distance(cells[i], cells[j])
    return matrix


def _root(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the symmetric square root of a covariance."""
    eigenvalues, vectors = np.linalg.eigh(covariance)
    return (vectors * np.sqrt(eigenvalues.clip(0.0))) @ vectors.T
