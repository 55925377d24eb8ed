"""Real scans packed as int16 centimetres: scans_<run>.npz."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.scan_archive import ScanArchive
from lpr_training.datasets.base import PlaceDataset, PlaceTable
from lpr_training.datasets.packed import find_npz

PREFIX = 'scans_'


class ScansDataset(PlaceDataset):
    """Packed scans, each file a run; the world is the odometry of the run, metres."""

    def __init__(self, root: Path, *, runs: Sequence[str] | None = None):
        self._archives = {
            run: ScanArchive(path) for run, path in find_npz(root, PREFIX, runs).items()
        }
        self._first: dict[str, int] = {}
        tables: list[PlaceTable] = []
        for run, archive in self._archives.items():
            self._first[run] = sum(len(t.names) for t in tables)
            count = len(archive.stamps_ns)
            names = tuple(f'{i:06d}' for i in range(count))
            tables.append(
                PlaceTable(archive.T_odom_sensor, archive.stamps_ns, (run,) * count, names)
            )
        super().__init__(PlaceTable.join(tables))

    def points(self, index: int) -> NDArray[np.float32]:
        """Unpack one scan, metres."""
        run = self.runs[index]
        return self._archives[run].points(index - self._first[run])
