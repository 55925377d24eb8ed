"""Drift of the odometry between two keyframes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lpr_ros.core.config import Config, option


@dataclass(frozen=True)
class OdometryNoiseConfig(Config):
    """Drift of the robot's odometry, as standard deviations.

    The defaults fit LiDAR odometry; wheel odometry with a gyroscope drifts about twice as much.
    Values that are too small reject correct loop closures. Values that are too large accept wrong
    ones: at twice the defaults, adjacent identical houses can be confused.
    """

    position_fraction: float = option(
        0.01,
        'Position drift of the odometry as a fraction of the traveled distance, one standard '
        'deviation; values that are too small reject correct loop closures',
        low=0.0,
        high=1.0,
    )
    heading_deg: float = option(
        0.5,
        'Heading drift of the odometry per 100 m, one standard deviation',
        unit='deg',
        low=0.0,
        high=90.0,
    )
    tilt_deg: float = option(
        0.2,
        'Roll and pitch drift of the odometry per 100 m, one standard deviation',
        unit='deg',
        low=0.0,
        high=90.0,
    )
    min_sigma_m: float = option(
        0.02,
        'Position standard deviation of the odometry over arbitrarily short distances',
        unit='m',
        low=1e-6,
    )
    min_sigma_deg: float = option(
        0.05,
        'Rotation standard deviation of the odometry over arbitrarily short distances',
        unit='deg',
        low=1e-6,
    )


def horizontal_sigma_m(traveled_m: ArrayLike, config: OdometryNoiseConfig) -> NDArray[np.float64]:
    """Return the standard deviation of x and of y after this traveled distance.

    A heading error also displaces the position, by half the distance times the angle.
    """
    distance_m = np.asarray(traveled_m, dtype=np.float64)
    heading = np.radians(config.heading_deg) * distance_m / 100.0
    variance = np.square(config.position_fraction * distance_m) + config.min_sigma_m**2
    sigma: NDArray[np.float64] = np.sqrt(variance + np.square(0.5 * distance_m * heading))
    return sigma


def drift_covariance(traveled_m: ArrayLike, config: OdometryNoiseConfig) -> NDArray[np.float64]:
    """Return the covariance (..., 6, 6) of x y z roll pitch yaw after this traveled distance.

    A heading or tilt error also displaces the position, by half the distance times the angle.
    """
    distance_m = np.asarray(traveled_m, dtype=np.float64)
    hundreds = distance_m / 100.0
    heading = np.radians(config.heading_deg * hundreds)
    tilt = np.radians(config.tilt_deg * hundreds)
    variance = np.zeros((*distance_m.shape, 6))
    variance[..., :2] = np.square(horizontal_sigma_m(distance_m, config))[..., None]
    variance[..., 2] = np.square(config.position_fraction * distance_m) + config.min_sigma_m**2
    variance[..., 2] += np.square(0.5 * distance_m * tilt)
    variance[..., 3:] = np.radians(config.min_sigma_deg) ** 2
    variance[..., 3:5] += np.square(tilt)[..., None]
    variance[..., 5] += np.square(heading)
    covariance: NDArray[np.float64] = variance[..., None] * np.eye(6)
    return covariance
