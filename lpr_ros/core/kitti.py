"""One sequence in the KITTI odometry layout.

ROOT/sequences/<seq>/velodyne/000000.bin (float32 x y z intensity), calib.txt, times.txt, and
ROOT/poses/<seq>.txt. Pose files hold the left camera (x right, y down, z forward) in the frame of
its first pose; here the world is the LiDAR frame of that first pose: x forward, y left, z up.
"""

from dataclasses import dataclass
from decimal import InvalidOperation
import logging
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.geometry import invert
from lpr_ros.core.poses import ns_from_seconds, read_kitti_poses
from lpr_ros.core.raw_clouds import finite_xyz, read_raw

logger = logging.getLogger(__name__)

SCAN_PERIOD_NS = 100_000_000  # 10 Hz, where times.txt is absent
T_CAMERA_LIDAR = np.array(  # the axes alone, where calib.txt is absent
    [[0.0, -1.0, 0.0, 0.0], [0.0, 0.0, -1.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
)


@dataclass(frozen=True, eq=False)
class KittiSequence:
    """Scans with stamps and true poses; the clouds are read when asked for."""

    folder: Path
    names: tuple[str, ...]  # (N,)
    stamps_ns: NDArray[np.int64]  # (N,)
    T_world_sensor: NDArray[np.float64]  # (N, 4, 4)

    @classmethod
    def read(cls, root: Path, sequence: str) -> 'KittiSequence':
        """Read everything but the clouds."""
        folder = root / 'sequences' / sequence
        names = sorted(p.stem for p in (folder / 'velodyne').glob('*.bin'))
        pose_path = root / 'poses' / f'{sequence}.txt'
        T_world_camera = read_kitti_poses(pose_path)
        if len(T_world_camera) != len(names):
            raise DatasetError(
                f'{pose_path}: expected one pose for each of the {len(names)} clouds in '
                f'{folder / "velodyne"}, got {len(T_world_camera)}'
            )
        T_camera_lidar = read_calibration(folder / 'calib.txt')
        T = invert(T_camera_lidar) @ T_world_camera @ T_camera_lidar
        stamps = read_times(folder / 'times.txt', len(names))
        return cls(folder, tuple(names), stamps, T)

    def path(self, index: int) -> Path:
        """Return the file of one scan."""
        return self.folder / 'velodyne' / f'{self.names[index]}.bin'

    def points(self, index: int) -> NDArray[np.float32]:
        """Read the finite points of one scan, (n, 3), metres."""
        return finite_xyz(self.path(index), self.table(index))

    def table(self, index: int) -> NDArray[np.floating[Any]]:
        """Read one scan as recorded: x y z intensity, (n, 4)."""
        return read_raw(self.path(index), '<f4', 4)


def read_calibration(path: Path) -> NDArray[np.float64]:
    """Read T_camera_lidar, the line `Tr:` (or Tr_velo_to_cam) of calib.txt."""
    if not path.exists():
        logger.warning('%s is absent: the LiDAR is taken to sit in the camera', path)
        return T_CAMERA_LIDAR
    for number, line in enumerate(path.read_text(encoding='utf-8').splitlines(), start=1):
        key, _, values = line.partition(':')
        if key.strip() in ('Tr', 'Tr_velo_to_cam'):
            try:
                rows = np.array(values.split(), dtype=np.float64).reshape(3, 4)
            except ValueError as error:
                raise DatasetError(
                    f'{path}, line {number}: expected 12 numbers after {key}:, got {values!r}'
                ) from error
            return np.vstack([rows, [0.0, 0.0, 0.0, 1.0]])
    raise DatasetError(f'{path}: expected a line "Tr: <12 numbers>", found none')


def read_times(path: Path, count: int) -> NDArray[np.int64]:
    """Read the stamps in nanoseconds, one per scan; without the file scans come at 10 Hz."""
    if not path.exists():
        return np.arange(count, dtype=np.int64) * SCAN_PERIOD_NS
    lines = path.read_text(encoding='utf-8').split()
    if len(lines) != count:
        raise DatasetError(f'{path}: expected {count} times, got {len(lines)}')
    stamps = np.empty(count, dtype=np.int64)
    for i, line in enumerate(lines):
        try:
            stamps[i] = ns_from_seconds(line)
        except (InvalidOperation, OverflowError, ValueError) as error:
            raise DatasetError(f'{path}: expected a time, got {line!r}') from error
    return stamps
