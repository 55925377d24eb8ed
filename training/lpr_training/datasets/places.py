"""The format `places` written by convert.py and simulate_suite.py.

ROOT/<run>/places.csv (stamp_ns,x,y,z,qx,qy,qz,qw: the pose of the sensor in the world) and
ROOT/<run>/clouds/<stamp_ns>.npy, float32 (N, 3), meters, sensor frame. A run may be nested:
ROOT/<world>/<day> is the run `<world>/<day>`, and the runs of a world share its frame.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.files import atomic_file, wrap_read_errors
from lpr_ros.core.geometry.points import finite_xyz
from lpr_training.datasets.base import DatasetTable, PlaceDataset, PosedCloud, describe_folder
from lpr_training.datasets.formats.csv_table import (
    POSE_COLUMNS,
    Table,
    pose_cells,
    read_poses,
    write_table,
)

TABLE = 'places.csv'
CLOUDS = 'clouds'
COLUMNS = ('stamp_ns', *POSE_COLUMNS)


class PlacesDataset(PlaceDataset):
    """Converted recordings, one run each."""

    def __init__(self, root: Path, *, runs: Sequence[str] | None = None):
        self._root = Path(root)
        tables = [*self._root.glob(f'*/{TABLE}'), *self._root.glob(f'*/*/{TABLE}')]
        found = sorted(path.parent.relative_to(self._root).as_posix() for path in tables)
        missing = sorted(set(runs or ()) - set(found))
        if not found or missing:
            raise DatasetError(
                f'expected {self._root}/{missing[0] if missing else "<run>"}/{TABLE} and '
                f'{CLOUDS}/*.npy, found {describe_folder(self._root)}'
            )
        super().__init__(DatasetTable.join([self._read_run(run) for run in runs or found]))

    def _read_run(self, run: str) -> DatasetTable:
        table = Table(self._root / run / TABLE, COLUMNS)
        return DatasetTable(
            read_poses(table),
            table.stamps_ns('stamp_ns', 1),
            (run,) * len(table),
            tuple(table.text('stamp_ns')),
        )

    def points(self, index: int) -> NDArray[np.float32]:
        """Read one cloud in meters."""
        path = cloud_path(self._root, self.runs[index], int(self.stamps_ns[index]))
        with wrap_read_errors(path, 'a .npy file'):
            points = np.load(path, allow_pickle=False)
        if points.ndim != 2 or points.shape[1] != 3 or points.dtype != np.float32:
            raise DatasetError(
                f'{path}: expected float32 (N, 3), got {points.dtype} {points.shape}'
            )
        return finite_xyz(path, points)


def cloud_path(root: Path, run: str, stamp_ns: int) -> Path:
    """Return the path of the cloud of one place."""
    return Path(root) / run / CLOUDS / f'{stamp_ns}.npy'


def write_cloud(root: Path, run: str, stamp_ns: int, points: NDArray[np.float32]) -> None:
    """Write the cloud of one place atomically."""
    with atomic_file(cloud_path(root, run, stamp_ns)) as partial, partial.open('wb') as stream:
        np.save(stream, np.ascontiguousarray(points, dtype=np.float32))


def write_poses(root: Path, run: str, rows: Iterable[tuple[int, NDArray[np.float64]]]) -> None:
    """Write the table (stamp_ns, T_world_sensor) that completes a run."""
    write_table(
        Path(root) / run / TABLE,
        COLUMNS,
        ([str(stamp_ns), *pose_cells(T)] for stamp_ns, T in rows),
    )


def write_places(root: Path, run: str, clouds: Iterable[PosedCloud]) -> None:
    """Write a run cloud by cloud."""
    rows = []
    for cloud in clouds:
        write_cloud(root, run, cloud.stamp_ns, cloud.points)
        rows.append((cloud.stamp_ns, cloud.T_world_sensor))
    write_poses(root, run, rows)
