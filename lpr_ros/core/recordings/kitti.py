"""One sequence in the KITTI layout: velodyne/*.bin, calib.txt, times.txt and a pose file.

Pose files hold the left camera (x right, y down, z forward) in the frame of its first pose; here
the world is the LiDAR frame of that first pose: x forward, y left, z up.
"""

import logging
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.files import read_text
from lpr_ros.core.geometry import invert
from lpr_ros.core.poses import ns_from_seconds
from lpr_ros.core.raw_clouds import finite_xyz, read_raw
from lpr_ros.core.scan_source import (
    DriveTable,
    ScanSource,
    is_kitti_file,
    poses_at,
    read_pose_file,
    unknown_poses,
)

logger = logging.getLogger(__name__)

SCAN_PERIOD_NS = 100_000_000  # 10 Hz, where times.txt is absent
T_CAMERA_LIDAR = np.array(  # the axes alone, where calib.txt is absent
    [[0.0, -1.0, 0.0, 0.0], [0.0, 0.0, -1.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
)


class KittiSource(ScanSource):
    """The scans of ROOT/sequences/<seq>, or of any folder that has velodyne/*.bin or *.bin.

    ROOT/poses/<seq>.txt is the truth, and the odometry too where nothing else is given;
    poses.txt beside the scans is the odometry. `poses` and `truth` are files that take their
    place: TUM of the LiDAR, or KITTI of the camera.
    """

    def __init__(self, folder: Path, *, poses: Path | None = None, truth: Path | None = None):
        folder = Path(folder).resolve()
        self.files = scan_files(folder)
        if not self.files:
            raise DatasetError(f'{folder}: expected velodyne/*.bin or *.bin, found none')
        home = folder.parent if folder.name == 'velodyne' else folder
        stamps = read_times(home / 'times.txt', len(self.files))
        truth = truth or _if_there(home.parent.parent / 'poses' / f'{home.name}.txt')
        poses = poses or _if_there(home / 'poses.txt') or truth
        T_camera_lidar = read_calibration(home / 'calib.txt')
        T_odom, T_world = (
            unknown_poses(len(stamps)) if p is None else lidar_poses(p, stamps, T_camera_lidar)
            for p in (poses, truth)
        )
        about = {
            'clouds': str(self.files[0].parent),
            'odometry': str(poses or ''),
            'truth': str(truth or ''),
        }
        super().__init__(home.name, DriveTable(stamps, T_odom, T_world, about))

    def points(self, index: int) -> NDArray[np.float32]:
        """Read one scan, metres."""
        return read_velodyne(self.files[index])


def scan_files(folder: Path) -> list[Path]:
    """Return the scans of a folder by name: velodyne/*.bin, or else *.bin."""
    return sorted((folder / 'velodyne').glob('*.bin')) or sorted(folder.glob('*.bin'))


def read_velodyne(path: Path) -> NDArray[np.float32]:
    """Read one scan of float32 x y z intensity, metres."""
    return finite_xyz(path, read_raw(path, '<f4', 4))


def lidar_poses(
    path: Path, stamps_ns: NDArray[np.int64], T_camera_lidar: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Read the poses of scans from a KITTI file of the camera or a TUM file of the LiDAR."""
    T = poses_at(read_pose_file(path, stamps_ns), stamps_ns)
    return of_lidar(T, T_camera_lidar) if is_kitti_file(path) else T


def of_lidar(
    T_world_camera: NDArray[np.float64], T_camera_lidar: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the poses of the LiDAR in its own first frame, from those of the camera in its."""
    with np.errstate(over='ignore', invalid='ignore'):
        T: NDArray[np.float64] = invert(T_camera_lidar) @ T_world_camera @ T_camera_lidar
    if not np.isfinite(T).all():
        raise DatasetError('poses of the camera beyond all numbers; expected metres')
    return T


def read_calibration(path: Path) -> NDArray[np.float64]:
    """Read T_camera_lidar, the line `Tr:` (or Tr_velo_to_cam) of calib.txt."""
    if not path.exists():
        logger.warning('%s is absent: the LiDAR is taken to sit in the camera', path)
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
                    f'{path}, line {number}: expected a rotation and a position, got {values!r}'
                )
            return np.vstack([rows, [0.0, 0.0, 0.0, 1.0]])
    raise DatasetError(f'{path}: expected a line "Tr: <12 numbers>", found none')


def read_times(path: Path, count: int) -> NDArray[np.int64]:
    """Read the stamps in nanoseconds, one per scan; without the file scans come at 10 Hz."""
    if not path.exists():
        return np.arange(count, dtype=np.int64) * SCAN_PERIOD_NS
    lines = read_text(path, 'times in seconds').split()
    if len(lines) != count:
        raise DatasetError(f'{path}: expected {count} times, got {len(lines)}')
    try:
        return np.array([ns_from_seconds(line) for line in lines], dtype=np.int64)
    except DatasetError as error:
        raise DatasetError(f'{path}: {error}') from error


def _if_there(path: Path) -> Path | None:
    return path if path.is_file() else None
