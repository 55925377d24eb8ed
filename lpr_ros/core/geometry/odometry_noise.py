"""How far odometry may be off between two keyframes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lpr_ros.core.config import Config, option


@dataclass(frozen=True)
class OdometryNoiseConfig(Config):
    """Drift of odometry, one standard deviation; it is the robot's, not this package's.

    The defaults are those of LiDAR odometry; wheels with a gyroscope have twice that. Set too
    small, true loops are refused; set too large, fewer of the wrong ones: with twice these, one
    house of a row may be taken for the next.
    """

    position_share: float = option(
        0.01, 'of the way travelled; set too small, true loops are refused or count for little',
        low=0.0, high=1.0,
    )  # fmt: skip
    heading_deg: float = option(
        0.5, 'turned wrongly per 100 m; the same goes for angles', unit='deg', low=0.0, high=90.0
    )
    tilt_deg: float = option(
        0.2, 'rolled or pitched wrongly per 100 m', unit='deg', low=0.0, high=90.0
    )
    least_m: float = option(0.02, 'however short the way', unit='m', low=1e-6)
    least_deg: float = option(0.05, 'however short the way', unit='deg', low=1e-6)
    jump_m: float = option(
        20.0, 'a longer step in a row is a jump, not a motion: a new session begins', unit='m',
        low=0.0,
    )  # fmt: skip


def drift_covariance(
    travelled_m: ArrayLike, config: OdometryNoiseConfig
) -> NDArray[np.float64]:
    """Covariance (..., 6, 6) of a motion along a way of that length, x y z roll pitch yaw.

    A wrong heading also carries the position away, by half the way times the angle.
    """
    way_m = np.asarray(travelled_m, dtype=np.float64)
    hundreds = way_m / 100.0
    heading = np.radians(config.heading_deg * hundreds)
    tilt = np.radians(config.tilt_deg * hundreds)
    variance = np.zeros((*way_m.shape, 6))
    variance[..., :3] = np.square(config.position_share * way_m)[..., None] + config.least_m**2
    variance[..., :2] += np.square(0.5 * way_m * heading)[..., None]
    variance[..., 2] += np.square(0.5 * way_m * tilt)
    variance[..., 3:] = np.radians(config.least_deg) ** 2
    variance[..., 3:5] += np.square(tilt)[..., None]
    variance[..., 5] += np.square(heading)
    covariance: NDArray[np.float64] = variance[..., None] * np.eye(6)
    return covariance
