"""Check that the input settings of a model fit the clouds of a dataset."""

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import ConfigError
from lpr_ros.core.model.config import InputConfig
from lpr_ros.core.model.quantize import lifted
from lpr_training.datasets.base import COLUMNS, UNIT_CUBE, PlaceDataset

# Separates cells for clouds scaled to [-1, 1] (0.01) from cells in meters (0.1 to 1).
MIN_METRIC_CELL_M = 0.05


def input_for(places: PlaceDataset, config: InputConfig) -> InputConfig:
    """Return the quantization of a dataset for a model; ConfigError if they do not fit."""
    takes = f'the model expects {_cells_text(config)}'
    if places.clouds == COLUMNS:
        if config.quantizer != 'bev':
            raise ConfigError(
                f"{takes}; the dataset has bird's-eye counts, which need the quantizer 'bev'"
            )
        return lifted(config)
    is_fine = max(config.step) < MIN_METRIC_CELL_M
    if places.clouds == UNIT_CUBE:
        if config.align_yaw or config.above_ground_m:
            raise ConfigError(
                f'{takes}, align_yaw {config.align_yaw} and above_ground_m '
                f'{config.above_ground_m:g}; the clouds of the dataset are scaled to [-1, 1], '
                'which needs false and 0'
            )
        if config.quantizer == 'points' or (config.quantizer == 'cartesian' and is_fine):
            return config
        raise ConfigError(
            f'{takes}; the clouds of the dataset are scaled to [-1, 1], which needs cartesian '
            f"cells finer than {MIN_METRIC_CELL_M}, or 'points'"
        )
    if config.quantizer == 'cartesian' and is_fine:
        raise ConfigError(
            f'{takes}, which suits clouds scaled to [-1, 1]; the clouds of the dataset are in '
            f'meters and need cells of at least {MIN_METRIC_CELL_M} m'
        )
    return config


def crop_to_range(
    points: NDArray[np.float32], config: InputConfig, margin_m: float
) -> NDArray[np.float32]:
    """Remove points that a shift of `margin_m` cannot bring into the range of the model.

    Augmentation removes a fraction of the cloud, which should be a fraction of the visible part.
    """
    if config.max_range_m == 0.0:
        return points
    range_m = config.max_range_m + margin_m
    if config.quantizer == 'bev':  # the corners of the square grid
        range_m *= np.sqrt(2.0)
    return points[np.hypot(points[:, 0], points[:, 1]) <= range_m]


def _cells_text(config: InputConfig) -> str:
    if config.quantizer == 'points':
        return 'raw points'
    return f'{config.quantizer} cells of {" x ".join(f"{s:g}" for s in config.step)}'
