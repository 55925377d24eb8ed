"""Scans packed as int16 centimeters in one scans_<run>.npz file."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.io.npz_reader import Expected, NpzFile
from lpr_ros.core.io.pose_files import read_pose_file
from lpr_ros.core.recordings.base import (
    DEFAULT_OPTIONS,
    DriveTable,
    Recording,
    RecordingOptions,
    odometry_at,
    odometry_of_scans,
    poses_at,
    refuse_topics,
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


class PackedRecording(Recording):
    """The scans of one .npz file, with its odometry or that of a pose file."""

    description = 'a scans_*.npz file'

    def __init__(self, path: Path, options: RecordingOptions = DEFAULT_OPTIONS):
        refuse_topics(path, options)
        self._file = NpzFile(path, ARRAYS)
        stamps, T_odom = self._file['stamps_ns'], self._file['T_odom_sensor']
        count = len(stamps)
        if len(T_odom) != count or len(self._file['offsets']) != count + 1:
            raise DatasetError(
                f'{path}: expected {count} poses and {count + 1} offsets for {count} stamps, got '
                f'{len(T_odom)} and {len(self._file["offsets"])}'
            )
        if options.poses is None:
            odometry = odometry_of_scans(T_odom, stamps, options.max_step_m)
        else:
            trajectory = read_pose_file(options.poses, stamps)
            odometry = odometry_at(trajectory, stamps, options.max_step_m)
        if options.T_base_sensor is not None:
            odometry = odometry @ options.T_base_sensor
        T_world = unknown_poses(count)
        if options.truth:
            T_world = poses_at(read_pose_file(Path(options.truth), stamps), stamps)
        about = {
            'clouds': str(path),
            'odometry': str(options.poses or path),
            'truth': options.truth,
        }
        name = Path(path).stem.removeprefix(PREFIX)
        table = DriveTable(stamps, odometry.T, T_world, about, odometry.segments)
        super().__init__(name, table)

    @classmethod
    def matches(cls, path: Path) -> bool:
        """Return whether the path is named *.npz."""
        return path.suffix == '.npz'

    def points(self, index: int) -> NDArray[np.float32]:
        """Unpack one scan, meters."""
        start, end = self._file['offsets'][index : index + 2]
        centimeters = self._file['points_cm']
        if not 0 <= start <= end <= len(centimeters):
            raise DatasetError(
                f'{self._file.path}: scan {index}: expected offsets within '
                f'{len(centimeters)} points, got {start} to {end}'
            )
        points: NDArray[np.float32] = centimeters[start:end] * M_PER_CM
        return points
