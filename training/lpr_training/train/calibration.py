"""Fit what a descriptor distance means, from validation matches with known positions."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.calibration import Calibration
from lpr_ros.core.errors import DatasetError

SAME_PLACE_M = 5.0
# Two knots per block: a table of at most 32 rows.
MAX_BLOCKS = 16


@dataclass
class _Block:
    """Pairs that share one probability: a stretch of distance, and how many are the same place."""

    low: float
    high: float
    same: float
    pairs: float

    @property
    def probability(self) -> float:
        """Return the share by Laplace's rule, so that few pairs never claim certainty."""
        return (self.same + 1.0) / (self.pairs + 2.0)

    def absorb(self, after: '_Block') -> None:
        """Merge with the block of the next greater distances."""
        self.high, self.same, self.pairs = (
            after.high,
            self.same + after.same,
            self.pairs + after.pairs,
        )


def fit_calibration(
    distances: NDArray[np.floating],
    is_same: NDArray[np.bool_],
    radius_m: float = SAME_PLACE_M,
) -> Calibration:
    """Fit a falling P(same | distance) by pool-adjacent-violators, and the precision gates."""
    if len(distances) == 0 or len(distances) != len(is_same):
        raise DatasetError(f'{len(distances)} distances and {len(is_same)} labels to calibrate on')
    if not np.isfinite(distances).all():
        raise DatasetError('a distance to calibrate on is not finite')
    isotonic = _pool(_by_distance(distances, is_same), lambda b: b.same / b.pairs)
    # Laplace's rule can put two neighbours of few pairs in the wrong order: pool once more.
    blocks = _reduce(_pool(isotonic, lambda b: b.probability))
    ends = [(b.low, b.high) if b.high > b.low else (b.low,) for b in blocks]
    gates = [distance_at_precision(distances, is_same, p) for p in (0.9, 0.99, 0.999)]
    return Calibration(
        distances=tuple(float(d) for pair in ends for d in pair),
        probabilities=tuple(
            b.probability for b, pair in zip(blocks, ends, strict=True) for _ in pair
        ),
        distance_at_90_percent=gates[0],
        distance_at_99_percent=gates[1],
        distance_at_999_permille=gates[2],
        radius_m=radius_m,
        pairs=len(distances),
        same_pairs=int(np.sum(is_same)),
    )


def distance_at_precision(
    distances: NDArray[np.floating], is_same: NDArray[np.bool_], precision: float
) -> float:
    """Return the largest distance up to which at least this share of matches is right, else 0."""
    blocks = _by_distance(distances, is_same)
    right = np.cumsum([block.same for block in blocks])
    total = np.cumsum([block.pairs for block in blocks])
    good = np.flatnonzero(right >= precision * total)
    return float(blocks[good[-1]].high) if len(good) else 0.0


def _by_distance(distances: NDArray[np.floating], is_same: NDArray[np.bool_]) -> list[_Block]:
    """Return one block per distinct distance, ascending."""
    values, index = np.unique(np.asarray(distances, dtype=np.float64), return_inverse=True)
    pairs = np.bincount(index)
    same = np.bincount(index, weights=np.asarray(is_same, dtype=np.float64))
    return [
        _Block(float(v), float(v), float(s), float(n))
        for v, s, n in zip(values, same, pairs, strict=True)
    ]


def _pool(blocks: list[_Block], value: Callable[[_Block], float]) -> list[_Block]:
    """Merge neighbours until the value falls strictly with distance (pool adjacent violators)."""
    pooled: list[_Block] = []
    for block in blocks:
        pooled.append(block)
        while len(pooled) > 1 and value(pooled[-1]) >= value(pooled[-2]):
            last = pooled.pop()
            pooled[-1].absorb(last)
    return pooled


def _reduce(blocks: list[_Block]) -> list[_Block]:
    """Merge the neighbours that differ least, weighted by their pairs, until few are left."""
    blocks = list(blocks)
    while len(blocks) > MAX_BLOCKS:
        costs = [
            a.pairs * b.pairs / (a.pairs + b.pairs) * (a.probability - b.probability) ** 2
            for a, b in pairwise(blocks)
        ]
        cheapest = int(np.argmin(costs))
        blocks[cheapest].absorb(blocks.pop(cheapest + 1))
    return blocks
