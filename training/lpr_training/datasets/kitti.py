"""The KITTI odometry format.

ROOT/sequences/<seq>/velodyne/000000.bin (float32 x y z intensity), calib.txt, times.txt, and
ROOT/poses/<seq>.txt. Pose files contain the left camera (x right, y down, z forward) relative to
its first pose. The world frame here is the LiDAR frame at that pose: x forward, y left, z up.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.files import atomic_folder
from lpr_ros.core.geometry.se3 import invert
from lpr_ros.core.io.pose_files import kitti_pose_line, seconds_from_ns
from lpr_ros.core.io.raw_clouds import write_raw
from lpr_ros.core.recordings.base import RecordingOptions
from lpr_ros.core.recordings.kitti import T_CAMERA_LIDAR, KittiRecording
from lpr_training.datasets.base import DatasetTable, PlaceDataset, PosedCloud, describe_folder


class KittiDataset(PlaceDataset):
    """Sequences of a KITTI odometry folder, one run each."""

    def __init__(self, root: Path, *, sequences: Sequence[str] | None = None):
        self._root = Path(root)
        found = sorted(
            p.parent.name for p in self._root.glob('sequences/*/velodyne') if p.is_dir()
        )
        if sequences is None:
            # The test sequences 11 to 21 have no published poses.
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
        self._recordings = {sequence: self._open(sequence) for sequence in chosen}
        self._first: dict[str, int] = {}
        tables: list[DatasetTable] = []
        for sequence, recording in self._recordings.items():
            self._first[sequence] = sum(len(table.names) for table in tables)
            names = tuple(path.stem for path in recording.files)
            runs = (sequence,) * len(names)
            tables.append(DatasetTable(recording.T_world_sensor, recording.stamps_ns, runs, names))
        super().__init__(DatasetTable.join(tables))

    def _open(self, sequence: str) -> KittiRecording:
        poses = self._root / 'poses' / f'{sequence}.txt'
        options = RecordingOptions(poses=poses, truth=str(poses))
        return KittiRecording(self._root / 'sequences' / sequence, options)

    def points(self, index: int) -> NDArray[np.float32]:
        """Read one scan in meters."""
        run = self.runs[index]
        return self._recordings[run].points(index - self._first[run])


def write_kitti(root: Path, sequence: str, clouds: Iterable[PosedCloud]) -> None:
    """Write one sequence in the world frame of the clouds; a missing intensity is written as 0.

    The pose file is moved into place before the sequence, so that no sequence lacks poses.
    """
    T_lidar_camera = invert(T_CAMERA_LIDAR)
    pose_path = Path(root) / 'poses' / f'{sequence}.txt'
    with atomic_folder(Path(root) / 'sequences' / sequence) as folder:
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
