"""Storage of keyframe clouds at six bytes per point, on disk beyond a memory limit."""

from dataclasses import dataclass
import logging
from mmap import MAP_PRIVATE, mmap
import os
from pathlib import Path
import tempfile
from typing import IO

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import CloudError
from lpr_ros.core.geometry.points import check_points, points_in_range, voxel_downsample

logger = logging.getLogger(__name__)

STEP_M = 0.01
MAX_CELL = 2**15 - 1
BYTES_PER_POINT = 6
OVERHEAD_BYTES = 256  # Python objects per cloud, in memory or on disk
BLOCK_POINTS = 700_000  # 4 MB
RETRY_GROWTH = 1.1


@dataclass(frozen=True, eq=False, slots=True)
class QuantizedCloud:
    """Points in multiples of a step: 1 cm, or more if points lie beyond 327 m."""

    step_m: float
    cells: NDArray[np.int16]  # (N, 3)

    @property
    def points(self) -> NDArray[np.float32]:
        """Return (N, 3), meters."""
        return (self.cells * self.step_m).astype(np.float32)


@dataclass(frozen=True, slots=True)
class _Spilled:
    step_m: float
    offset: int
    count: int


def pack(points: NDArray[np.float32], voxel_m: float, max_points: int) -> QuantizedCloud:
    """Downsample (N, 3) points to one per voxel and at most max_points, and quantize them.

    Points out of range are left out: the farthest one determines the resolution of the others.
    """
    check_points(points)
    kept = voxel_downsample(points_in_range(points), voxel_m)
    if len(kept) > max_points:  # evenly over the scan
        kept = kept[np.linspace(0, len(kept) - 1, max_points).astype(np.int64)]
    radius_m = float(np.abs(kept).max(initial=0.0))
    step_m = max(STEP_M, radius_m / MAX_CELL)
    return QuantizedCloud(step_m, np.rint(kept / step_m).astype(np.int16))


class CloudStore:
    """Clouds numbered from 0; above a memory limit the oldest move to an unnamed file."""

    def __init__(self, memory_limit_bytes: int, folder: Path | None = None):
        self._limit = memory_limit_bytes  # 0: no limit
        self._folder = folder
        self._clouds: list[QuantizedCloud | _Spilled] = []
        self._block: NDArray[np.int16] = np.empty(
            (0, 3), dtype=np.int16
        )  # free part of the newest block
        self._first_in_memory = 0
        self._file: IO[bytes] | None = None
        self._cells_bytes = 0
        self.disk_bytes = 0

    def __len__(self) -> int:
        return len(self._clouds)

    @property
    def memory_bytes(self) -> int:
        """Bytes in memory, without clouds on disk and unused ends of blocks."""
        return self._cells_bytes + OVERHEAD_BYTES * len(self)

    def take(self, cloud: QuantizedCloud) -> QuantizedCloud:
        """Copy a cloud into memory of the store, for `append`; OSError if out of memory."""
        return QuantizedCloud(cloud.step_m, self._allocate(cloud.cells))

    def append(self, cloud: QuantizedCloud) -> None:
        """Append a cloud returned by `take`; above the limit, move the oldest clouds to disk."""
        self._clouds.append(cloud)
        self._cells_bytes += cloud.cells.nbytes
        try:
            while self._limit and self._cells_bytes > self._limit:
                self._spill_oldest()
        except OSError as error:
            logger.warning(
                'cannot move clouds to disk, memory use exceeds the limit of %d bytes: %s',
                self._limit,
                error,
            )
            self._limit = int(self._cells_bytes * RETRY_GROWTH)

    def __getitem__(self, index: int) -> QuantizedCloud:
        cloud = self._clouds[index]
        if isinstance(cloud, QuantizedCloud):
            return cloud
        if self._file is None:
            raise CloudError(f'cloud {index} was on disk, and the store is closed')
        data = os.pread(self._file.fileno(), cloud.count * BYTES_PER_POINT, cloud.offset)
        return QuantizedCloud(cloud.step_m, np.frombuffer(data, np.int16).reshape(-1, 3))

    def point_count(self, clouds: int) -> int:
        """Return the total number of points of the first `clouds` clouds."""
        return sum(
            len(cloud.cells) if isinstance(cloud, QuantizedCloud) else cloud.count
            for cloud in self._clouds[:clouds]
        )

    def close(self) -> None:
        """Delete the clouds on disk; the file has no name, so a killed process leaves none."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _allocate(self, cells: NDArray[np.int16]) -> NDArray[np.int16]:
        """Copy the cells of a cloud into a block shared by many clouds.

        Separate allocations would fragment the heap between the large buffers of scans that come
        and go. A block returns to the system with its last cloud.
        """
        if len(cells) > len(self._block):
            block_bytes = BYTES_PER_POINT * max(BLOCK_POINTS, len(cells))
            self._block = np.frombuffer(mmap(-1, block_bytes, MAP_PRIVATE), np.int16).reshape(
                -1, 3
            )
        stored, self._block = np.split(self._block, [len(cells)])
        stored[:] = cells
        return stored

    def _spill_oldest(self) -> None:
        cloud = self._clouds[self._first_in_memory]
        if not isinstance(cloud, QuantizedCloud):
            raise CloudError(f'cloud {self._first_in_memory} is on disk already')
        if self._file is None:
            self._file = tempfile.TemporaryFile(  # noqa: SIM115 - lives as long as the store
                dir=self._folder, buffering=0
            )
        data = cloud.cells.tobytes()
        done = 0
        while done < len(data):
            done += os.pwrite(self._file.fileno(), data[done:], self.disk_bytes + done)
        # One assignment: a thread that is saving sees either the old or the new entry.
        spilled = _Spilled(cloud.step_m, self.disk_bytes, len(cloud.cells))
        self._clouds[self._first_in_memory] = spilled
        self._first_in_memory += 1
        self._cells_bytes -= len(data)
        self.disk_bytes += len(data)
