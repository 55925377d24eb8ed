"""Whether a model's input fits the clouds of a dataset, and how those are quantised for it."""

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import ConfigError
from lpr_ros.core.model.config import InputConfig
from lpr_ros.core.model.quantise import lifted
from lpr_training.datasets.base import COLUMNS, UNIT_CUBE, PlaceDataset

# Between the cells of clouds scaled to [-1, 1] (0.01) and those of clouds in metres (0.1 to 1).
FINEST_METRIC_CELL_M = 0.05


def input_for(places: PlaceDataset, config: InputConfig) -> InputConfig:
    """Return how the clouds of a dataset are quantised for a model; refuse what does not fit."""
    takes = f'the model takes {_in_words(config)}'
    if places.clouds == COLUMNS:
        if config.quantizer != 'bev':
            raise ConfigError(
                f"{takes}; these clouds are bird's-eye counts and need the quantizer 'bev'"
            )
        return lifted(config)
    is_fine = max(config.step) < FINEST_METRIC_CELL_M
    if places.clouds == UNIT_CUBE:
        if config.align_yaw or config.above_ground_m:
            raise ConfigError(
                f'{takes}, align_yaw {config.align_yaw} and above_ground_m '
                f'{config.above_ground_m:g}; these clouds are scaled to [-1, 1], expected false '
                'and 0'
            )
        if config.quantizer == 'points' or (config.quantizer == 'cartesian' and is_fine):
            return config
        raise ConfigError(
            f'{takes}; these clouds are scaled to [-1, 1] and need cartesian cells finer than '
            f"{FINEST_METRIC_CELL_M}, or 'points'"
        )
    if config.quantizer == 'cartesian' and is_fine:
        raise ConfigError(
            f'{takes}, as made for clouds scaled to [-1, 1]; these clouds are in metres and need '
            f'cells of at least {FINEST_METRIC_CELL_M} m'
        )
    return config


def in_reach(
    points: NDArray[np.float32], config: InputConfig, margin_m: float
) -> NDArray[np.float32]:
    """Leave out points that no move by `margin_m` brings into the range of the model.

    What augmentation removes is a share of the whole cloud: it must not be all that is seen.
    """
    if config.max_range_m == 0.0:
        return points
    reach = config.max_range_m + margin_m
    if config.quantizer == 'bev':  # a square, in any heading
        reach *= np.sqrt(2.0)
    return points[np.hypot(points[:, 0], points[:, 1]) <= reach]


def _in_words(config: InputConfig) -> str:
    if config.quantizer == 'points':
        return 'raw points'
    return f'{config.quantizer} cells of {" x ".join(f"{s:g}" for s in config.step)}'
