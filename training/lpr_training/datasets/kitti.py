"""The KITTI odometry layout: see core/kitti.py."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.files import whole_folder
from lpr_ros.core.geometry import invert
from lpr_ros.core.kitti import T_CAMERA_LIDAR, KittiSequence
from lpr_ros.core.poses import kitti_pose_line, seconds_from_ns
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
        self._sequences = {s: KittiSequence.read(self._root, s) for s in chosen}
        self._first: dict[str, int] = {}
        tables: list[PlaceTable] = []
        for name, sequence in self._sequences.items():
            self._first[name] = sum(len(t.names) for t in tables)
            runs = (name,) * len(sequence.names)
            tables.append(
                PlaceTable(sequence.T_world_sensor, sequence.stamps_ns, runs, sequence.names)
            )
        super().__init__(PlaceTable.join(tables))

    def points(self, index: int) -> NDArray[np.float32]:
        """Read one scan, metres."""
        run = self.runs[index]
        return self._sequences[run].points(index - self._first[run])


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
