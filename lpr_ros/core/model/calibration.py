"""What a descriptor distance means: the probability that two places are the same.

The table is fitted offline on validation pairs and travels with the checkpoint; this is the part
the node needs to turn a distance into a probability and a probability into a gate.
"""

from dataclasses import dataclass

import numpy as np

from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import ConfigError


@dataclass(frozen=True)
class Calibration(Config):
    """P(same place | distance) as a falling line through knots, and gates for given precisions."""

    distances: tuple[float, ...] = option((0.0,), 'knots, ascending', low=0.0)
    probabilities: tuple[float, ...] = option((0.5,), 'at the knots', low=0.0, high=1.0)
    distance_at_90_percent: float = option(0.0, 'matches up to here are 90 % right', low=0.0)
    distance_at_99_percent: float = option(0.0, 'matches up to here are 99 % right', low=0.0)
    distance_at_999_permille: float = option(0.0, 'matches up to here are 99.9 % right', low=0.0)
    radius_m: float = option(5.0, 'nearer than this is the same place', unit='m', low=0.0)
    pairs: int = option(0, 'validation pairs behind the table', low=0)
    same_pairs: int = option(0, 'of which the same place', low=0)

    def __post_init__(self) -> None:
        """Refuse a table that is not a falling function of distance."""
        super().__post_init__()
        if len(self.distances) != len(self.probabilities) or not self.distances:
            raise ConfigError(
                f'Calibration: {len(self.distances)} distances and {len(self.probabilities)} '
                'probabilities; expected equally many, at least one'
            )
        if np.any(np.diff(self.distances) < 0) or np.any(np.diff(self.probabilities) > 0):
            raise ConfigError(
                'Calibration: expected ascending distances and descending probabilities, got '
                f'{self.distances} and {self.probabilities}'
            )

    def probability(self, distance: float) -> float:
        """Return the probability that a match at this descriptor distance is the same place."""
        return float(np.interp(distance, self.distances, self.probabilities))
