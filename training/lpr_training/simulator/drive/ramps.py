"""Drives with heights of their own, for worlds with several floors."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import gaussian_filter1d
from scipy.spatial.transform import Rotation

from lpr_training.simulator.drive.drive import SPACING_M, Drive, timing
from lpr_training.simulator.geometry.ground import Ground
from lpr_training.simulator.geometry.polylines import arc_length, resample, smooth, yaw_of

CORNER_M = 2.5  # over which corners are rounded


@dataclass(frozen=True, eq=False)
class RampDrive(Drive):
    """A path with a height (M,) at each of its points."""

    z: NDArray[np.float64]

    def poses(self, ground: Ground, time_s: ArrayLike) -> NDArray[np.float64]:
        """Return T_world_base (N, 4, 4): x forward, on the path, whatever is below."""
        t = np.asarray(time_s, np.float64)
        slope = np.gradient(self.z, arc_length(self.xy))
        yaw, pitch, x, y, z = (
            np.interp(t, self.time_s, values)
            for values in (yaw_of(self.xy), -np.arctan(slope), *self.xy.T, self.z)
        )
        T_world_base = np.tile(np.eye(4), (len(t), 1, 1))
        angles = np.stack([yaw, pitch], axis=1)
        T_world_base[:, :3, :3] = Rotation.from_euler('ZY', angles).as_matrix()
        T_world_base[:, :3, 3] = np.stack([x, y, z], axis=1)
        return T_world_base


def drive_through(corners: NDArray[np.float64], *, speed_mps: float) -> RampDrive:
    """Return a drive along corners (N, 3), which are rounded."""
    line = resample(corners[:, :2], SPACING_M)
    z = np.interp(arc_length(line), arc_length(corners[:, :2]), corners[:, 2])
    xy = smooth(line, SPACING_M, CORNER_M)
    z = gaussian_filter1d(z, CORNER_M / SPACING_M, mode='nearest')
    return RampDrive(xy, timing(xy, speed_mps), z)
