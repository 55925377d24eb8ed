"""Calibrate descriptor distances: fit P(same place | distance) to held-out matches."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.model.calibration import Calibration
from lpr_ros.core.model.checkpoint import load_checkpoint, save_checkpoint
from lpr_ros.core.model.descriptor_extractor import NetworkDescriptorExtractor
from lpr_training.train.data import HeldOut
from lpr_training.train.validation import SAME_PLACE_M, match_held_out

MAX_BLOCKS = 16  # two knots each: a table of at most 32 rows


def calibrate(
    extractor: NetworkDescriptorExtractor,
    held_out: HeldOut,
    *,
    radius_m: float = SAME_PLACE_M,
    batch: int = 16,
    progress: bool = False,
) -> Calibration:
    """Fit P(same place | distance) to the matches of all held-out places."""
    matches = match_held_out(
        extractor, held_out, radius_m=radius_m, batch=batch, progress=progress
    )
    if not len(matches.distances):
        raise DatasetError(
            f'calibration needs held-out places with candidates at least {held_out.gap} places '
            'older, got none'
        )
    return fit_calibration(matches.distances, matches.is_same, radius_m)


def calibrate_weights(
    weights: Path,
    held_out: HeldOut,
    *,
    out: Path | None = None,
    device: str = 'auto',
    batch: int = 16,
    radius_m: float = SAME_PLACE_M,
    progress: bool = False,
) -> Calibration:
    """Calibrate a checkpoint and write it back, or to `out`."""
    checkpoint = load_checkpoint(weights)
    extractor = NetworkDescriptorExtractor(checkpoint.build(), device=device)
    fitted = calibrate(extractor, held_out, radius_m=radius_m, batch=batch, progress=progress)
    save_checkpoint(out or weights, replace(checkpoint, calibration=fitted.to_dict()))
    return fitted


@dataclass
class _Block:
    """Matches in an interval of distance, which share one probability."""

    low: float
    high: float
    same: float
    pairs: float

    @property
    def probability(self) -> float:
        """Return the fraction by Laplace's rule, which is never certain with few pairs."""
        return (self.same + 1.0) / (self.pairs + 2.0)

    def absorb(self, following: '_Block') -> None:
        """Merge with the next block."""
        self.high, self.same, self.pairs = (
            following.high,
            self.same + following.same,
            self.pairs + following.pairs,
        )


def fit_calibration(
    distances: NDArray[np.floating],
    is_same: NDArray[np.bool_],
    radius_m: float = SAME_PLACE_M,
) -> Calibration:
    """Fit a decreasing P(same place | distance) and the distances of given precision."""
    if len(distances) == 0 or len(distances) != len(is_same):
        raise DatasetError(
            f'calibration needs as many labels as distances, got {len(distances)} distances and '
            f'{len(is_same)} labels'
        )
    if not np.isfinite(distances).all():
        raise DatasetError('calibration needs finite distances, got NaN or infinity')
    isotonic = _pool(_by_distance(distances, is_same), lambda b: b.same / b.pairs)
    # Laplace's rule can break the order of two blocks with few pairs.
    blocks = _reduce(_pool(isotonic, lambda b: b.probability))
    ends = [(b.low, b.high) if b.high > b.low else (b.low,) for b in blocks]
    limits = [distance_at_precision(distances, is_same, p) for p in (0.9, 0.99, 0.999)]
    return Calibration(
        distances=tuple(float(d) for pair in ends for d in pair),
        probabilities=tuple(
            b.probability for b, pair in zip(blocks, ends, strict=True) for _ in pair
        ),
        distance_at_90_percent=limits[0],
        distance_at_99_percent=limits[1],
        distance_at_999_permille=limits[2],
        radius_m=radius_m,
        pairs=len(distances),
        same_pairs=int(np.sum(is_same)),
    )


def distance_at_precision(
    distances: NDArray[np.floating], is_same: NDArray[np.bool_], precision: float
) -> float:
    """Return the largest distance with at least this precision below it, 0 without any."""
    blocks = _by_distance(distances, is_same)
    correct = np.cumsum([block.same for block in blocks])
    total = np.cumsum([block.pairs for block in blocks])
    precise = np.flatnonzero(correct >= precision * total)
    return float(blocks[precise[-1]].high) if len(precise) else 0.0


def _by_distance(distances: NDArray[np.floating], is_same: NDArray[np.bool_]) -> list[_Block]:
    """Return one block per distinct distance, in ascending order."""
    values, index = np.unique(np.asarray(distances, dtype=np.float64), return_inverse=True)
    pairs = np.bincount(index)
    same = np.bincount(index, weights=np.asarray(is_same, dtype=np.float64))
    return [
        _Block(float(v), float(v), float(s), float(n))
        for v, s, n in zip(values, same, pairs, strict=True)
    ]


def _pool(blocks: list[_Block], value: Callable[[_Block], float]) -> list[_Block]:
    """Merge neighbors until the value decreases strictly (pool adjacent violators)."""
    pooled: list[_Block] = []
    for block in blocks:
        pooled.append(block)
        while len(pooled) > 1 and value(pooled[-1]) >= value(pooled[-2]):
            last = pooled.pop()
            pooled[-1].absorb(last)
    return pooled


def _reduce(blocks: list[_Block]) -> list[_Block]:
    """Merge the most similar neighbors until MAX_BLOCKS are left."""
    blocks = list(blocks)
    while len(blocks) > MAX_BLOCKS:
        costs = [
            a.pairs * b.pairs / (a.pairs + b.pairs) * (a.probability - b.probability) ** 2
            for a, b in pairwise(blocks)
        ]
        cheapest = int(np.argmin(costs))
        blocks[cheapest].absorb(blocks.pop(cheapest + 1))
    return blocks
