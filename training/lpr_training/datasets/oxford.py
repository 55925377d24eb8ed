"""The benchmark_datasets format of Oxford RobotCar and the three In-house sets (PointNetVLAD).

ROOT/oxford/<run>/pointcloud_20m/<timestamp>.bin and pointcloud_locations_20m.csv, likewise for the
other parts below. A cloud is 4096 x 3 float64 without ground, centered and scaled to [-1, 1], not
in meters. The table has timestamp, northing and easting but no orientation, so T_world_sensor is
a translation with x = easting and y = northing.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.files import atomic_folder
from lpr_ros.core.geometry.points import finite_xyz
from lpr_ros.core.io.raw_clouds import read_raw, write_raw
from lpr_training.datasets.base import (
    UNIT_CUBE,
    DatasetTable,
    PlaceDataset,
    PosedCloud,
    describe_folder,
)
from lpr_training.datasets.formats.csv_table import Table, write_table

POINTS = 4096
COLUMNS = ('timestamp', 'northing', 'easting')
NS_PER_US = 1000  # timestamps are in microseconds


@dataclass(frozen=True)
class Part:
    """Clouds folder and table of one part (training or evaluation) of a run."""

    clouds: str
    table: str


@dataclass(frozen=True)
class Layout:
    """Folder of the runs of one benchmark under the root, and their parts."""

    folder: str
    parts: dict[str, Part]


OXFORD = Layout(
    'oxford',
    {
        'training': Part('pointcloud_20m_10overlap', 'pointcloud_locations_20m_10overlap.csv'),
        'evaluation': Part('pointcloud_20m', 'pointcloud_locations_20m.csv'),
    },
)
INHOUSE = Layout(
    'inhouse_datasets',
    {
        'training': Part('pointcloud_25m_10', 'pointcloud_centroids_10.csv'),
        'evaluation': Part('pointcloud_25m_25', 'pointcloud_centroids_25.csv'),
    },
)


class BenchmarkDataset(PlaceDataset):
    """One part of the runs of a benchmark_datasets folder, in alphabetical order."""

    clouds = UNIT_CUBE
    layout: Layout

    def __init__(self, root: Path, *, part: str = 'evaluation', runs: Sequence[str] | None = None):
        self._folder = Path(root) / self.layout.folder
        if part not in self.layout.parts:
            raise DatasetError(f'part {part!r}: expected one of {sorted(self.layout.parts)}')
        self._part = self.layout.parts[part]
        found = list_runs(root, self.layout, part)
        unknown = sorted(set(runs or ()) - set(found))
        if not found or unknown:
            raise DatasetError(
                f'expected {self._folder}/{unknown[0] if unknown else "<run>"}/'
                f'{self._part.table} and {self._part.clouds}/*.bin, '
                f'found {describe_folder(self._folder)}'
            )
        chosen = found if runs is None else sorted(runs)
        super().__init__(DatasetTable.join([self._read_run(run) for run in chosen]))

    def _read_run(self, run: str) -> DatasetTable:
        table = Table(self._folder / run / self._part.table, COLUMNS)
        northing_easting = table.numbers(COLUMNS[1:])
        T = np.tile(np.eye(4), (len(table), 1, 1))
        T[:, :2, 3] = northing_easting[:, ::-1]
        return DatasetTable(
            T,
            table.stamps_ns('timestamp', NS_PER_US),
            (run,) * len(table),
            tuple(table.text('timestamp')),
        )

    def path(self, index: int) -> Path:
        """Return the file of one cloud."""
        return self._folder / self.runs[index] / self._part.clouds / f'{self.names[index]}.bin'

    def points(self, index: int) -> NDArray[np.float32]:
        """Read one cloud (4096, 3) in [-1, 1]."""
        path = self.path(index)
        return finite_xyz(path, read_raw(path, '<f8', 3, rows=POINTS))


class OxfordDataset(BenchmarkDataset):
    """Oxford RobotCar submaps published with PointNetVLAD."""

    layout = OXFORD


class InhouseDataset(BenchmarkDataset):
    """The In-house business, residential and university runs of PointNetVLAD."""

    layout = INHOUSE


def list_runs(root: Path, layout: Layout = OXFORD, part: str = 'evaluation') -> list[str]:
    """Return the runs with this part, in alphabetical order."""
    tables = (Path(root) / layout.folder).glob(f'*/{layout.parts[part].table}')
    return sorted(path.parent.name for path in tables)


def write_oxford(
    root: Path,
    run: str,
    clouds: Iterable[PosedCloud],
    *,
    part: str = 'evaluation',
    layout: Layout = OXFORD,
) -> None:
    """Write one part of a run; clouds are (4096, 3) in [-1, 1], see `oxford_submaps`."""
    target = layout.parts[part]
    folder = Path(root) / layout.folder / run

    def rows(clouds_folder: Path) -> Iterator[tuple[str, str, str]]:
        for cloud in clouds:
            name = str(cloud.stamp_ns // NS_PER_US)
            if cloud.points.shape != (POINTS, 3) or not (np.abs(cloud.points) <= 1).all():
                raise DatasetError(
                    f'{run} {name}: expected ({POINTS}, 3) points in [-1, 1], '
                    f'got {cloud.points.shape}'
                )
            write_raw(clouds_folder / f'{name}.bin', cloud.points, '<f8')
            easting, northing = cloud.T_world_sensor[:2, 3]
            yield name, f'{northing:.6f}', f'{easting:.6f}'

    with atomic_folder(folder / target.clouds) as partial:
        lines = list(rows(partial))
    write_table(folder / target.table, COLUMNS, lines)  # last: a run with a table is complete
