"""Real scans packed into one .npz as int16 centimetres, with stamps and odometry."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.npz_file import NpzFile

ARRAYS = ('points_cm', 'offsets', 'stamps_ns', 'T_odom_sensor')
M_PER_CM = np.float32(0.01)


class ScanArchive:
    """The scans of one drive."""

    def __init__(self, path: Path):
        self._file = NpzFile(path, ARRAYS)

    @property
    def stamps_ns(self) -> NDArray[np.int64]:
        """Stamps, (N,)."""
        return self._file['stamps_ns']

    @property
    def T_odom_sensor(self) -> NDArray[np.float64]:
        """Poses, (N, 4, 4)."""
        return self._file['T_odom_sensor']

    def points(self, index: int) -> NDArray[np.float32]:
        """Unpack one scan, (n, 3), metres."""
        start, end = self._file['offsets'][index:][:2]
        points: NDArray[np.float32] = self._file['points_cm'][start:end] * M_PER_CM
        return points
