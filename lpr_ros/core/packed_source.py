"""Scans packed as int16 centimetres into one scans_<run>.npz."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.npz_file import NpzFile
from lpr_ros.core.scan_source import (
    DriveTable,
    ScanSource,
    poses_at,
    read_pose_file,
    unknown_poses,
)

PREFIX = 'scans_'
ARRAYS = ('points_cm', 'offsets', 'stamps_ns', 'T_odom_sensor')
M_PER_CM = np.float32(0.01)


class PackedSource(ScanSource):
    """The scans of one file, with its own odometry or that of a pose file."""

    def __init__(self, path: Path, *, poses: Path | None = None, truth: Path | None = None):
        self._file = NpzFile(path, ARRAYS)
        stamps, T_odom = self._file['stamps_ns'], self._file['T_odom_sensor']
        count = len(stamps)
        if T_odom.shape != (count, 4, 4) or self._file['offsets'].shape != (count + 1,):
            raise DatasetError(
                f'{path}: expected {count} poses of 4 x 4 and {count + 1} offsets for {count} '
                f'stamps, got {T_odom.shape} and {self._file["offsets"].shape}'
            )
        if poses is not None:
            T_odom = poses_at(read_pose_file(poses, stamps), stamps)
        T_world = unknown_poses(count)
        if truth is not None:
            T_world = poses_at(read_pose_file(truth, stamps), stamps)
        about = {'clouds': str(path), 'odometry': str(poses or path), 'truth': str(truth or '')}
        name = Path(path).stem.removeprefix(PREFIX)
        super().__init__(name, DriveTable(stamps, T_odom, T_world, about))

    def points(self, index: int) -> NDArray[np.float32]:
        """Unpack one scan, metres."""
        start, end = self._file['offsets'][index : index + 2]
        points: NDArray[np.float32] = self._file['points_cm'][start:end] * M_PER_CM
        return points
