"""Simulated odometry: accurate from scan to scan, drifting over a drive."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from lpr_ros.core.config import Config, option


@dataclass(frozen=True)
class OdometryConfig(Config):
    """Odometry error model; all sigmas are one standard deviation."""

    scale_sigma: float = option(0.006, 'Scale error of a whole drive', low=0.0, high=0.5)
    heading_bias_deg: float = option(
        0.15, 'Heading drift per 100 m, of one sign per drive', low=0.0
    )
    heading_walk_deg: float = option(
        0.25, 'Random walk of the heading after 100 m', unit='deg', low=0.0
    )
    tilt_walk_deg: float = option(
        0.05, 'Random walk of roll and pitch after 100 m', unit='deg', low=0.0
    )
    position_walk_m: float = option(
        0.15, 'Random walk of the position after 100 m', unit='m', low=0.0
    )
    jitter_m: float = option(0.005, 'Position noise of every pose', unit='m', low=0.0)
    slow_drift_fraction: float = option(
        0.0, 'Slowly varying position drift, as a fraction of the traveled distance', low=0.0
    )
    slow_heading_deg: float = option(
        0.0, 'Slowly varying heading drift per 100 m', unit='deg', low=0.0
    )
    slow_drift_m: float = option(
        100.0, 'Traveled distance over which the slowly varying drift changes', unit='m', low=1.0
    )


def drifting(
    T_world_sensor: NDArray[np.float64], config: OdometryConfig, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return T_odom_sensor (N, 4, 4) for true poses (N, 4, 4), starting at the identity."""
    T_a_b = np.linalg.inv(T_world_sensor[:-1]) @ T_world_sensor[1:]
    step = np.linalg.norm(T_a_b[:, :3, 3], axis=1)
    count = len(T_a_b)
    scale = 1.0 + config.scale_sigma * rng.standard_normal()
    bias = config.heading_bias_deg * rng.standard_normal() * step / 100.0
    root = np.sqrt(step / 100.0)[:, None]
    tilt = config.tilt_walk_deg
    turn_deg = root * rng.standard_normal((count, 3)) * (tilt, tilt, config.heading_walk_deg)
    turn_deg[:, 2] += bias
    shift_m = root * config.position_walk_m * rng.standard_normal((count, 3))
    jitter_m = config.jitter_m * rng.standard_normal((count, 3))
    # A child stream: what the caller draws next does not depend on it.
    slow = wandering(step, 4, config.slow_drift_m, rng.spawn(1)[0])
    shift_m += config.slow_drift_fraction * step[:, None] * slow[:, :3]
    turn_deg[:, 2] += config.slow_heading_deg * step / 100.0 * slow[:, 3]
    T_a_b[:, :3, 3] = scale * T_a_b[:, :3, 3] + shift_m
    T_a_b[:, :3, :3] = T_a_b[:, :3, :3] @ Rotation.from_rotvec(np.radians(turn_deg)).as_matrix()
    T_odom_sensor = np.tile(np.eye(4), (count + 1, 1, 1))
    for i in range(count):
        T_odom_sensor[i + 1] = T_odom_sensor[i] @ T_a_b[i]
    T_odom_sensor[1:, :3, 3] += jitter_m
    return T_odom_sensor


def wandering(
    steps_m: NDArray[np.float64], columns: int, memory_m: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return unit-variance values (N, columns), one row per step, that forget within memory_m."""
    values = rng.standard_normal((len(steps_m), columns))
    kept = np.exp(-steps_m / memory_m)
    for i in range(1, len(steps_m)):
        values[i] = kept[i] * values[i - 1] + np.sqrt(1.0 - kept[i] ** 2) * values[i]
    return values
