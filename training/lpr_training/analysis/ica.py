"""Independent component analysis by FastICA (Hyvarinen and Oja, 2000)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ITERATIONS = 200
TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Projection:
    """A linear map onto independent components of unit variance."""

    mean: NDArray[np.float64]  # (C,)
    matrix: NDArray[np.float64]  # (components, C)

    def apply(self, vectors: NDArray[np.floating]) -> NDArray[np.float64]:
        """Project vectors (..., C) to (..., components)."""
        return (vectors - self.mean) @ self.matrix.T


def fit_ica(
    vectors: NDArray[np.floating], components: int, rng: np.random.Generator
) -> Projection:
    """Fit independent components to vectors (N, C): whiten, then maximize non-Gaussianity.

    Symmetric decorrelation with the log cosh contrast. The largest weight of each component is
    made positive, because its sign is arbitrary.
    """
    x = np.asarray(vectors, dtype=np.float64)
    mean = x.mean(axis=0)
    _, scale, axes = np.linalg.svd(x - mean, full_matrices=False)
    if len(scale) < components or scale[components - 1] <= 1e-9 * max(scale[0], 1e-300):
        raise ValueError(f'expected vectors of rank {components} or more, got shape {x.shape}')
    whitening = axes[:components] / scale[:components, None] * np.sqrt(len(x))
    white = (x - mean) @ whitening.T
    rotation = _decorrelate(rng.standard_normal((components, components)))
    for _ in range(ITERATIONS):
        activity = np.tanh(white @ rotation.T)
        slope = (1.0 - np.square(activity)).mean(axis=0)
        updated = _decorrelate(activity.T @ white / len(x) - slope[:, None] * rotation)
        change = np.abs(np.abs((updated * rotation).sum(axis=1)) - 1.0).max()
        rotation = updated
        if change < TOLERANCE:
            break
    matrix = rotation @ whitening
    largest = np.take_along_axis(matrix, np.abs(matrix).argmax(axis=1)[:, None], axis=1)
    return Projection(mean, matrix * np.sign(largest))


def _decorrelate(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the nearest matrix with orthonormal rows, (W W')^(-1/2) W."""
    left, _, right = np.linalg.svd(rows)
    return left @ right
