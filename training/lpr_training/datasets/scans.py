"""Real scans packed as int16 centimetres: scans_<run>.npz."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_training.datasets.base import PlaceDataset, PlaceTable
from lpr_training.datasets.packed import Expected, NpzFile, find_npz

PREFIX = 'scans_'
ARRAYS = {
    'points_cm': Expected('i', (None, 3)),
    'offsets': Expected('iu', (None,)),
    'stamps_ns': Expected('i', (None,)),
    'T_odom_sensor': Expected('f', (None, 4, 4)),
}
M_PER_CM = np.float32(0.01)


class ScansDataset(PlaceDataset):
    """Packed scans, each file a run; the world is the odometry of the run, metres."""

    def __init__(self, root: Path, *, runs: Sequence[str] | None = None):
        self._files = {
            run: NpzFile(path, ARRAYS) for run, path in find_npz(root, PREFIX, runs).items()
        }
        self._first: dict[str, int] = {}
        tables: list[PlaceTable] = []
        for run, file in self._files.items():
            self._first[run] = sum(len(t.names) for t in tables)
            count = len(file['stamps_ns'])
            found = len(file['T_odom_sensor']), len(file['offsets']) - 1
            if found != (count, count):
                raise DatasetError(
                    f'{file.path}: expected {count} poses and clouds, got {found[0]} and '
                    f'{found[1]}'
                )
            names = tuple(f'{i:06d}' for i in range(count))
            tables.append(
                PlaceTable(file['T_odom_sensor'], file['stamps_ns'], (run,) * count, names)
            )
        super().__init__(PlaceTable.join(tables))

    def points(self, index: int) -> NDArray[np.float32]:
        """Unpack one scan, metres."""
        file = self._files[self.runs[index]]
        start, end = file['offsets'][index - self._first[self.runs[index]] :][:2]
        if not 0 <= start <= end <= len(file['points_cm']):
            raise DatasetError(
                f'{file.path}: scan {index}: expected a stretch of {len(file["points_cm"])} '
                f'points, got {start} to {end}'
            )
        return file['points_cm'][start:end] * M_PER_CM
