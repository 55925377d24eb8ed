"""The named values that stages hand to each other. Arrays are never modified in place."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Scan:
    """One LiDAR scan as it arrived, in the sensor frame."""

    points: NDArray[np.float32]  # (N, 3), metres, finite
    stamp_ns: int
    T_odom_sensor: NDArray[np.float64] | None = None  # (4, 4); None without odometry
