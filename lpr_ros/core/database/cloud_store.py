"""The clouds of keyframes, packed to six bytes a point, and on disk when they are too many."""

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
from lpr_ros.core.keyframes import thin

logger = logging.getLogger(__name__)

STEP_M = 0.01
LARGEST_CELL = 2**15 - 1
BYTES_PER_POINT = 6
OVERHEAD_BYTES = 256  # of the objects around one cloud, in memory or on disk
BLOCK_POINTS = 700_000  # 4 MB
RETRY_GROWTH = 1.1


@dataclass(frozen=True, eq=False, slots=True)
class PackedCloud:
    """Points as multiples of a step: a centimetre, or more where points lie beyond 327 m."""

    step_m: float
    cells: NDArray[np.int16]  # (N, 3)

    @property
    def points(self) -> NDArray[np.float32]:
        """Return (N, 3), metres."""
        return (self.cells * self.step_m).astype(np.float32)


@dataclass(frozen=True, slots=True)
class _Spilled:
    step_m: float
    offset: int
    count: int


def pack(points: NDArray[np.float32], voxel_m: float, most_points: int) -> PackedCloud:
    """Thin (N, 3) points to one per voxel and at most so many, and pack them."""
    if points.ndim != 2 or points.shape[1] != 3:
        raise CloudError(f'cloud of shape {points.shape}, expected (N, 3)')
    if not np.isfinite(points).all():
        bad = int((~np.isfinite(points)).any(axis=1).sum())
        raise CloudError(f'{bad} of {len(points)} points are not finite, expected none')
    kept = thin(points, voxel_m)
    if len(kept) > most_points:  # evenly over the scan, whatever its order
        kept = kept[np.linspace(0, len(kept) - 1, most_points).astype(np.int64)]
    reach_m = float(np.abs(kept).max(initial=0.0))
    step_m = max(STEP_M, reach_m / LARGEST_CELL)
    return PackedCloud(step_m, np.rint(kept / step_m).astype(np.int16))


class CloudStore:
    """Clouds numbered from 0; the oldest go to a nameless file above a limit of memory."""

    def __init__(self, memory_limit_bytes: int, folder: Path | None = None):
        self._limit = memory_limit_bytes  # 0: none
        self._folder = folder
        self._clouds: list[PackedCloud | _Spilled] = []
        self._block: NDArray[np.int16] = np.empty((0, 3), dtype=np.int16)  # left of the newest
        self._first_in_memory = 0
        self._file: IO[bytes] | None = None
        self._cells_bytes = 0
        self.disk_bytes = 0

    def __len__(self) -> int:
        return len(self._clouds)

    @property
    def memory_bytes(self) -> int:
        """Bytes in memory, without those on disk; the ends of two blocks may be more."""
        return self._cells_bytes + OVERHEAD_BYTES * len(self)

    def take(self, cloud: PackedCloud) -> PackedCloud:
        """Copy a cloud into memory of the store, to be appended; OSError where there is none."""
        return PackedCloud(cloud.step_m, self._beside_others(cloud.cells))

    def append(self, cloud: PackedCloud) -> None:
        """Add a cloud that was taken; above the limit, move the oldest in memory to disk."""
        self._clouds.append(cloud)
        self._cells_bytes += cloud.cells.nbytes
        try:
            while self._limit and self._cells_bytes > self._limit:
                self._spill_oldest()
        except OSError as error:
            logger.warning(
                'clouds stay in memory above the limit of %d bytes: %s', self._limit, error
            )
            self._limit = int(self._cells_bytes * RETRY_GROWTH)

    def __getitem__(self, index: int) -> PackedCloud:
        cloud = self._clouds[index]
        if isinstance(cloud, PackedCloud):
            return cloud
        if self._file is None:
            raise CloudError(f'cloud {index} is on disk, and the store is closed')
        data = os.pread(self._file.fileno(), cloud.count * BYTES_PER_POINT, cloud.offset)
        return PackedCloud(cloud.step_m, np.frombuffer(data, np.int16).reshape(-1, 3))

    def point_count(self, clouds: int) -> int:
        """Return the number of points of the first so many clouds, without reading them."""
        return sum(
            len(cloud.cells) if isinstance(cloud, PackedCloud) else cloud.count
            for cloud in self._clouds[:clouds]
        )

    def close(self) -> None:
        """Drop the file of clouds on disk; it has no name, so a killed process leaves none."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _beside_others(self, cells: NDArray[np.int16]) -> NDArray[np.int16]:
        """Copy the cells of a cloud into a block shared by many.

        Each in memory of its own would pin the pages at both its ends, among the large buffers
        of scans that come and go. A block goes back to the system with its last cloud.
        """
        if len(cells) > len(self._block):
            room_bytes = BYTES_PER_POINT * max(BLOCK_POINTS, len(cells))
            self._block = np.frombuffer(mmap(-1, room_bytes, MAP_PRIVATE), np.int16).reshape(-1, 3)
        room, self._block = np.split(self._block, [len(cells)])
        room[:] = cells
        return room

    def _spill_oldest(self) -> None:
        cloud = self._clouds[self._first_in_memory]
        if not isinstance(cloud, PackedCloud):
            raise CloudError(f'cloud {self._first_in_memory} is on disk already')
        if self._file is None:
            self._file = tempfile.TemporaryFile(  # noqa: SIM115 - lives as long as the store
                dir=self._folder, buffering=0
            )
        data = cloud.cells.tobytes()
        done = 0
        while done < len(data):
            done += os.pwrite(self._file.fileno(), data[done:], self.disk_bytes + done)
        # Replaced in one step: a thread that saves meanwhile finds the one or the other.
        spilled = _Spilled(cloud.step_m, self.disk_bytes, len(cloud.cells))
        self._clouds[self._first_in_memory] = spilled
        self._first_in_memory += 1
        self._cells_bytes -= len(data)
        self.disk_bytes += len(data)
