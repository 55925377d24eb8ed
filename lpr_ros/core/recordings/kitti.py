"""One sequence in the KITTI layout: velodyne/*.bin, calib.txt, times.txt and a pose file.

KITTI pose files hold the left camera (x right, y down, z forward) relative to its first pose; the
world frame here is the LiDAR frame of that first pose (x forward, y left, z up).
"""

import logging
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.files import read_text
from lpr_ros.core.geometry.points import finite_xyz
from lpr_ros.core.geometry.se3 import invert
from lpr_ros.core.geometry.trajectory import Trajectory
from lpr_ros.core.io.pose_files import is_kitti_file, ns_from_seconds, read_pose_file
from lpr_ros.core.io.raw_clouds import read_raw
from lpr_ros.core.recordings.base import (
    DEFAULT_OPTIONS,
    DriveTable,
    Recording,
    RecordingOptions,
    no_odometry,
    odometry_at,
    poses_at,
    refuse_topics,
    unknown_poses,
)

logger = logging.getLogger(__name__)

SCAN_PERIOD_NS = 100_000_000  # 10 Hz, used without times.txt
T_CAMERA_LIDAR = np.array(  # axes only, used without calib.txt
    [[0.0, -1.0, 0.0, 0.0], [0.0, 0.0, -1.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
)


class KittiRecording(Recording):
    """The scans of ROOT/sequences/<seq>, or of any folder with velodyne/*.bin or *.bin.

    Ground truth is ROOT/poses/<seq>.txt; odometry is poses.txt in the folder of the sequence, or
    else the ground truth. The pose files of the options (TUM of the LiDAR, or KITTI of the
    camera) replace them.
    """

    description = 'a KITTI folder with velodyne/*.bin'

    def __init__(self, path: Path, options: RecordingOptions = DEFAULT_OPTIONS):
        folder = Path(path).resolve()
        refuse_topics(folder, options)
        self.files = scan_files(folder)
        if not self.files:
            raise DatasetError(f'{folder}: expected velodyne/*.bin or *.bin, found none')
        home = folder.parent if folder.name == 'velodyne' else folder
        stamps = read_times(home / 'times.txt', len(self.files))
        truth = Path(options.truth) if options.truth else None
        truth = truth or _existing(home.parent.parent / 'poses' / f'{home.name}.txt')
        poses = options.poses or _existing(home / 'poses.txt') or truth
        T_camera_lidar = read_calibration(home / 'calib.txt')
        odometry, T_world = no_odometry(len(stamps)), unknown_poses(len(stamps))
        if poses is not None:
            trajectory = lidar_trajectory(poses, stamps, T_camera_lidar)
            odometry = odometry_at(trajectory, stamps, options.max_step_m)
        if truth is not None:
            T_world = poses_at(lidar_trajectory(truth, stamps, T_camera_lidar), stamps)
        if options.T_base_sensor is not None:
            odometry = odometry @ options.T_base_sensor
        about = {
            'clouds': str(self.files[0].parent),
            'odometry': str(poses or ''),
            'truth': str(truth or ''),
        }
        table = DriveTable(stamps, odometry.T, T_world, about, odometry.segments)
        super().__init__(home.name, table)

    @classmethod
    def matches(cls, path: Path) -> bool:
        """Return whether a folder has velodyne/*.bin or *.bin."""
        return path.is_dir() and bool(scan_files(path))

    def points(self, index: int) -> NDArray[np.float32]:
        """Read one scan, meters."""
        return read_velodyne(self.files[index])


def scan_files(folder: Path) -> list[Path]:
    """Return the sorted scan files of a folder: velodyne/*.bin, or else *.bin."""
    return sorted((folder / 'velodyne').glob('*.bin')) or sorted(folder.glob('*.bin'))


def read_velodyne(path: Path) -> NDArray[np.float32]:
    """Read the points of a file of float32 x y z intensity, meters."""
    return finite_xyz(path, read_raw(path, '<f4', 4))


def lidar_trajectory(
    path: Path, stamps_ns: NDArray[np.int64], T_camera_lidar: NDArray[np.float64]
) -> Trajectory:
    """Read LiDAR poses from a KITTI file of the camera or a TUM file of the LiDAR."""
    trajectory = read_pose_file(path, stamps_ns)
    if not is_kitti_file(path):
        return trajectory
    T = lidar_from_camera_poses(trajectory.T, T_camera_lidar)
    return Trajectory(trajectory.stamps_ns, T)


def lidar_from_camera_poses(
    T_world_camera: NDArray[np.float64], T_camera_lidar: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Convert camera poses relative to the first camera to LiDAR poses relative to the first."""
    with np.errstate(over='ignore', invalid='ignore'):
        T: NDArray[np.float64] = invert(T_camera_lidar) @ T_world_camera @ T_camera_lidar
    if not np.isfinite(T).all():
        raise DatasetError('camera poses overflow; expected positions in meters')
    return T


def read_calibration(path: Path) -> NDArray[np.float64]:
    """Read T_camera_lidar from the line `Tr:` (or `Tr_velo_to_cam:`) of calib.txt."""
    if not path.exists():
        logger.warning('%s not found: assuming that LiDAR and camera share their origin', path)
        return T_CAMERA_LIDAR
    for number, line in enumerate(read_text(path, 'a calibration').splitlines(), start=1):
        key, _, values = line.partition(':')
        if key.strip() in ('Tr', 'Tr_velo_to_cam'):
            try:
                rows = np.array(values.split(), dtype=np.float64).reshape(3, 4)
            except ValueError as error:
                raise DatasetError(
                    f'{path}, line {number}: expected 12 numbers after {key}:, got {values!r}'
                ) from error
            R = rows[:, :3]
            if not np.isfinite(rows).all() or not np.allclose(R @ R.T, np.eye(3), atol=0.01):
                raise DatasetError(
                    f'{path}, line {number}: expected a rotation and a translation, got {values!r}'
                )
            return np.vstack([rows, [0.0, 0.0, 0.0, 1.0]])
    raise DatasetError(f'{path}: expected a line "Tr: <12 numbers>", found none')


def read_times(path: Path, count: int) -> NDArray[np.int64]:
    """Read one stamp per scan, nanoseconds; without the file assume 10 Hz."""
    if not path.exists():
        return np.arange(count, dtype=np.int64) * SCAN_PERIOD_NS
    lines = read_text(path, 'times in seconds').split()
    if len(lines) != count:
        raise DatasetError(f'{path}: expected {count} times, got {len(lines)}')
    try:
        return np.array([ns_from_seconds(line) for line in lines], dtype=np.int64)
    except DatasetError as error:
        raise DatasetError(f'{path}: {error}') from error


def _existing(path: Path) -> Path | None:
    return path if path.is_file() else None
