"""The KITTI odometry layout.

ROOT/sequences/<seq>/velodyne/000000.bin (float32 x y z intensity), calib.txt, times.txt, and
ROOT/poses/<seq>.txt. Pose files hold the left camera (x right, y down, z forward) in the frame of
its first pose; here the world is the LiDAR frame of that first pose: x forward, y left, z up.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.files import whole_folder
from lpr_ros.core.geometry import invert
from lpr_ros.core.kitti_source import (
    T_CAMERA_LIDAR,
    of_lidar,
    read_calibration,
    read_times,
    read_velodyne,
)
from lpr_ros.core.poses import kitti_pose_line, read_kitti_poses, seconds_from_ns
from lpr_ros.core.raw_clouds import write_raw
from lpr_training.datasets.base import PlaceDataset, PlaceTable, describe_folder
from lpr_training.datasets.records import PosedCloud


class KittiDataset(PlaceDataset):
    """Sequences of a KITTI odometry folder, each a run."""

    def __init__(self, root: Path, *, sequences: Sequence[str] | None = None):
        self._root = Path(root)
        found = sorted(
            p.parent.name for p in self._root.glob('sequences/*/velodyne') if p.is_dir()
        )
        if sequences is None:
            # The benchmark publishes no poses for its test sequences 11 to 21.
            chosen = [s for s in found if (self._root / 'poses' / f'{s}.txt').exists()]
        else:
            chosen = list(sequences)
        missing = sorted(set(chosen) - set(found))
        if not chosen or missing:
            raise DatasetError(
                f'expected {self._root}/sequences/{missing[0] if missing else "<seq>"}/'
                f'velodyne/*.bin and poses/<seq>.txt, '
                f'found {describe_folder(self._root / "sequences")}'
            )
        super().__init__(PlaceTable.join([self._read_sequence(s) for s in chosen]))

    def _read_sequence(self, sequence: str) -> PlaceTable:
        folder = self._root / 'sequences' / sequence
        names = sorted(p.stem for p in (folder / 'velodyne').glob('*.bin'))
        pose_path = self._root / 'poses' / f'{sequence}.txt'
        T_world_camera = read_kitti_poses(pose_path)
        if len(T_world_camera) != len(names):
            raise DatasetError(
                f'{pose_path}: expected one pose for each of the {len(names)} clouds in '
                f'{folder / "velodyne"}, got {len(T_world_camera)}'
            )
        T_camera_lidar = read_calibration(folder / 'calib.txt')
        T = of_lidar(T_world_camera, T_camera_lidar)
        stamps = read_times(folder / 'times.txt', len(names))
        return PlaceTable(T, stamps, (sequence,) * len(names), tuple(names))

    def path(self, index: int) -> Path:
        """Return the file of one scan."""
        folder = self._root / 'sequences' / self.runs[index] / 'velodyne'
        return folder / f'{self.names[index]}.bin'

    def points(self, index: int) -> NDArray[np.float32]:
        """Read one scan, metres."""
        return read_velodyne(self.path(index))


def write_kitti(root: Path, sequence: str, clouds: Iterable[PosedCloud]) -> None:
    """Write one sequence; the world frame of the clouds is kept, intensity 0 where there is none.

    The poses file is put in place first and the sequence last, so no sequence lacks its poses.
    """
    T_lidar_camera = invert(T_CAMERA_LIDAR)
    pose_path = Path(root) / 'poses' / f'{sequence}.txt'
    with whole_folder(Path(root) / 'sequences' / sequence) as folder:
        (folder / 'velodyne').mkdir()
        poses, times = folder / 'poses.txt', folder / 'times.txt'
        with poses.open('w') as pose_stream, times.open('w') as time_stream:
            for index, cloud in enumerate(clouds):
                intensity = getattr(cloud, 'intensity', np.zeros(len(cloud.points), np.float32))
                table = np.column_stack([cloud.points, intensity])
                write_raw(folder / 'velodyne' / f'{index:06d}.bin', table, '<f4')
                T = T_CAMERA_LIDAR @ cloud.T_world_sensor @ T_lidar_camera
                pose_stream.write(kitti_pose_line(T))
                time_stream.write(seconds_from_ns(cloud.stamp_ns) + '\n')
        numbers = ' '.join(f'{v:.12e}' for v in T_CAMERA_LIDAR[:3].ravel())
        (folder / 'calib.txt').write_text(f'Tr: {numbers}\n', encoding='utf-8')
        pose_path.parent.mkdir(parents=True, exist_ok=True)
        poses.replace(pose_path)
