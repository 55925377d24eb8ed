"""KITTI odometry as bird's-eye counts (kitti_bev_<seq>.npz), read back as points.

`counts` (N, 151, 151) uint8 is the number of occupied 0.4 m voxels above each pixel. Their
heights are not stored, so the voxels are stacked from the ground up. `T_world_sensor` is
(N, 3, 4), z up.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.io.npz_reader import Expected, NpzFile
from lpr_ros.core.model.config import InputConfig
from lpr_training.datasets.base import COLUMNS, DatasetTable, PlaceDataset
from lpr_training.datasets.packed_scans import find_npz

PIXEL_M = 0.4
CENTER = 75  # pixel of the sensor; row 0 is forward, column 0 is left
SCAN_PERIOD_NS = 100_000_000
PREFIX = 'kitti_bev_'
SIDE = 2 * CENTER + 1
PUBLISHED = InputConfig(
    quantizer='bev', step=(PIXEL_M,) * 3, max_range_m=25.0, bev_counts='published'
)
ARRAYS = {
    'counts': Expected('u', (None, SIDE, SIDE)),
    'T_world_sensor': Expected('f', (None, 3, 4)),
}


class KittiBevDataset(PlaceDataset):
    """Sequences of bird's-eye counts, one run each; x forward, y left, meters."""

    clouds = COLUMNS

    def __init__(self, root: Path, *, sequences: Sequence[str] | None = None):
        self._files = {
            run: NpzFile(path, ARRAYS) for run, path in find_npz(root, PREFIX, sequences).items()
        }
        self._first: dict[str, int] = {}
        tables: list[DatasetTable] = []
        for run, file in self._files.items():
            self._first[run] = sum(len(t.names) for t in tables)
            rows = file['T_world_sensor']
            T = np.tile(np.eye(4), (len(rows), 1, 1))
            T[:, :3] = rows
            stamps = np.arange(len(rows), dtype=np.int64) * SCAN_PERIOD_NS
            names = tuple(f'{i:06d}' for i in range(len(rows)))
            tables.append(DatasetTable(T, stamps, (run,) * len(rows), names))
        super().__init__(DatasetTable.join(tables))

    def counts(self, index: int) -> NDArray[np.uint8]:
        """Return the counts of one scan (151, 151)."""
        run = self.runs[index]
        file, number = self._files[run], index - self._first[run]
        if number >= len(file['counts']):
            raise DatasetError(
                f'{file.path}: expected counts for {len(file["T_world_sensor"])} poses, got '
                f'{len(file["counts"])}'
            )
        return file['counts'][number]

    def points(self, index: int) -> NDArray[np.float32]:
        """Return the points of one scan: a pixel with count n becomes n points stacked in z."""
        return lift(self.counts(index))


def lift(counts: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return the centers (n, 3) of the voxels that the counts stand for."""
    rows, columns = np.nonzero(counts)
    heights = counts[rows, columns].astype(np.int64)
    level = np.arange(heights.sum()) - np.repeat(np.cumsum(heights) - heights, heights)
    cells = np.column_stack(
        [CENTER - np.repeat(rows, heights), CENTER - np.repeat(columns, heights), level]
    )
    return ((cells + 0.5) * PIXEL_M).astype(np.float32)


def count_image(points: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Return the count image of a cloud, the inverse of `lift` up to the heights."""
    from lpr_ros.core.model.quantize import quantize  # imports torch; readers do without

    cells = quantize(points, PUBLISHED)
    columns, counts = np.unique(cells[:, :2], axis=0, return_counts=True)
    image = np.zeros((SIDE, SIDE), np.uint8)
    image[CENTER - columns[:, 0], CENTER - columns[:, 1]] = counts
    return image
