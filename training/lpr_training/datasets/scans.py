"""Real scans packed as int16 centimetres: scans_<run>.npz."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.packed_source import PREFIX, PackedSource
from lpr_training.datasets.base import PlaceDataset, PlaceTable
from lpr_training.datasets.packed import find_npz


class ScansDataset(PlaceDataset):
    """Packed scans, each file a run; the world is the odometry of the run, metres."""

    def __init__(self, root: Path, *, runs: Sequence[str] | None = None):
        found = find_npz(root, PREFIX, runs)
        self._sources = {run: PackedSource(path) for run, path in found.items()}
        self._first: dict[str, int] = {}
        tables: list[PlaceTable] = []
        for run, source in self._sources.items():
            self._first[run] = sum(len(t.names) for t in tables)
            names = tuple(f'{i:06d}' for i in range(len(source)))
            tables.append(
                PlaceTable(source.T_odom_sensor, source.stamps_ns, (run,) * len(source), names)
            )
        super().__init__(PlaceTable.join(tables))

    def points(self, index: int) -> NDArray[np.float32]:
        """Unpack one scan, metres."""
        run = self.runs[index]
        return self._sources[run].points(index - self._first[run])
