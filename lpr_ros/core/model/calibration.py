"""Calibration of descriptor distances to the probability that two places are the same.

The table is fitted offline on validation pairs and stored in the checkpoint; the node uses it to
convert distances to probabilities.
"""

from dataclasses import dataclass

import numpy as np

from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import ConfigError


@dataclass(frozen=True)
class Calibration(Config):
    """P(same place | distance) as a decreasing piecewise linear function, and distance gates."""

    distances: tuple[float, ...] = option(
        (0.0,), 'Descriptor distances of the calibration table, ascending', low=0.0
    )
    probabilities: tuple[float, ...] = option(
        (0.5,), 'Probabilities of the same place at the distances of the table', low=0.0, high=1.0
    )
    distance_at_90_percent: float = option(
        0.0, 'Descriptor distance up to which 90 % of matches are correct', low=0.0
    )
    distance_at_99_percent: float = option(
        0.0, 'Descriptor distance up to which 99 % of matches are correct', low=0.0
    )
    distance_at_999_permille: float = option(
        0.0, 'Descriptor distance up to which 99.9 % of matches are correct', low=0.0
    )
    radius_m: float = option(
        5.0, 'Maximum distance of two scans of the same place', unit='m', low=0.0
    )
    pairs: int = option(0, 'Number of validation pairs', low=0)
    same_pairs: int = option(0, 'Number of validation pairs of the same place', low=0)

    def __post_init__(self) -> None:
        """Reject a table that is not a decreasing function of distance."""
        super().__post_init__()
        if len(self.distances) != len(self.probabilities) or not self.distances:
            raise ConfigError(
                f'Calibration: {len(self.distances)} distances and {len(self.probabilities)} '
                'probabilities; expected the same number, at least one'
            )
        if np.any(np.diff(self.distances) < 0) or np.any(np.diff(self.probabilities) > 0):
            raise ConfigError(
                'Calibration: expected ascending distances and descending probabilities, got '
                f'{self.distances} and {self.probabilities}'
            )

    def probability(self, distance: float) -> float:
        """Return the probability that a match at this descriptor distance is correct."""
        return float(np.interp(distance, self.distances, self.probabilities))
