"""What readers yield and writers take."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Place:
    """One described place of a dataset: what every reader yields."""

    points: NDArray[np.float32]  # (N, 3), in the sensor frame; metres unless the dataset says not
    T_world_sensor: NDArray[np.float64]  # (4, 4)
    stamp_ns: int
    run: str
    name: str


@dataclass(frozen=True, eq=False)
class RecordedScan:
    """One scan with everything a driver and an odometry publish, and the truth beside it."""

    points: NDArray[np.float32]  # (N, 3), metres, sensor frame
    intensity: NDArray[np.float32]  # (N,), 0..1
    ring: NDArray[np.uint16]  # (N,), beam index
    time_s: NDArray[np.float32]  # (N,), seconds after stamp_ns
    stamp_ns: int
    T_odom_sensor: NDArray[np.float64]  # (4, 4), drifting odometry
    T_world_sensor: NDArray[np.float64]  # (4, 4), ground truth


class PosedCloud(Protocol):
    """What writers of posed clouds need: a Place and a RecordedScan both have it."""

    @property
    def points(self) -> NDArray[np.float32]:
        """Points in the sensor frame, (N, 3)."""

    @property
    def stamp_ns(self) -> int:
        """Time of the cloud."""

    @property
    def T_world_sensor(self) -> NDArray[np.float64]:
        """Pose of the sensor, (4, 4)."""
