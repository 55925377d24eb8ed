"""Scans packed as int16 centimetres into one scans_<run>.npz."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.npz_file import Expected, NpzFile
from lpr_ros.core.scan_source import (
    DriveTable,
    ScanSource,
    poses_at,
    read_pose_file,
    unknown_poses,
)

PREFIX = 'scans_'
ARRAYS = {
    'points_cm': Expected('i', (None, 3)),
    'offsets': Expected('iu', (None,)),
    'stamps_ns': Expected('i', (None,)),
    'T_odom_sensor': Expected('f', (None, 4, 4)),
}
M_PER_CM = np.float32(0.01)


class PackedSource(ScanSource):
    """The scans of one file, with its own odometry or that of a pose file."""

    def __init__(self, path: Path, *, poses: Path | None = None, truth: Path | None = None):
        self._file = NpzFile(path, ARRAYS)
        stamps, T_odom = self._file['stamps_ns'], self._file['T_odom_sensor']
        count = len(stamps)
        if len(T_odom) != count or len(self._file['offsets']) != count + 1:
            raise DatasetError(
                f'{path}: expected {count} poses and {count + 1} offsets for {count} stamps, got '
                f'{len(T_odom)} and {len(self._file["offsets"])}'
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
        centimetres = self._file['points_cm']
        if not 0 <= start <= end <= len(centimetres):
            raise DatasetError(
                f'{self._file.path}: scan {index}: expected a stretch of {len(centimetres)} '
                f'points, got {start} to {end}'
            )
        points: NDArray[np.float32] = centimetres[start:end] * M_PER_CM
        return points
