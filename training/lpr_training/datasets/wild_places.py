"""Wild-Places, both released layouts.

v2: ROOT/{Venman,Karawatha}/<seq>/Clouds_downsampled/<stamp>.pcd, poses_aligned.csv with
timestamp,x,y,z,qx,qy,qz,qw. If the timestamps do not name the files, rows and files are matched
in time order. v3: ROOT/<seq>/Clouds_downsampled/<stamp>.bin (float32 x y z intensity),
submap_poses.csv with %time. The released scripts mix the layouts, so each sequence is read by the
files it has.
"""

from collections.abc import Iterable, Iterator, Sequence
import logging
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.files import atomic_folder
from lpr_ros.core.geometry.points import finite_xyz
from lpr_ros.core.io.pose_files import ns_from_seconds, seconds_from_ns
from lpr_ros.core.io.raw_clouds import read_raw, write_raw
from lpr_training.datasets.base import DatasetTable, PlaceDataset, PosedCloud, describe_folder
from lpr_training.datasets.formats.csv_table import (
    POSE_COLUMNS,
    Table,
    pose_cells,
    read_poses,
    write_table,
)
from lpr_training.datasets.formats.pcd import read_pcd, write_pcd

logger = logging.getLogger(__name__)

SITES = {'V': 'Venman', 'K': 'Karawatha'}
SEQUENCES = tuple(f'{letter}-{number:02d}' for letter in SITES for number in range(1, 5))
CLOUDS = 'Clouds_downsampled'
TABLES = {'v2': 'poses_aligned.csv', 'v3': 'submap_poses.csv'}
TIME_COLUMNS = {'v2': 'timestamp', 'v3': '%time'}


class WildPlacesDataset(PlaceDataset):
    """Submaps in meters of the given or all available sequences, one run each."""

    def __init__(
        self, root: Path, *, sequences: Sequence[str] | None = None, clouds: str = CLOUDS
    ):
        self._root = Path(root)
        self._clouds = clouds
        self._suffixes: dict[str, str] = {}
        chosen = [
            s
            for s in SEQUENCES
            if (sequences is None and self._folder(s).is_dir()) or s in (sequences or ())
        ]
        unknown = sorted(set(sequences or ()) - set(SEQUENCES))
        if unknown or not chosen:
            raise DatasetError(
                f'expected {self._root}/V-01/{clouds}/*.bin (v3) or {self._root}/Venman/V-01/'
                f'{clouds}/*.pcd (v2) for sequences among {list(SEQUENCES)}, got '
                f'{unknown or describe_folder(self._root)}'
            )
        super().__init__(DatasetTable.join([self._read_sequence(s) for s in chosen]))

    def _folder(self, sequence: str) -> Path:
        nested = self._root / SITES[sequence[0]] / sequence
        return nested if nested.is_dir() else self._root / sequence

    def _read_sequence(self, sequence: str) -> DatasetTable:
        folder = self._folder(sequence)
        path = next((folder / t for t in TABLES.values() if (folder / t).exists()), None)
        if path is None:
            raise DatasetError(
                f'expected {folder}/{TABLES["v3"]} or {TABLES["v2"]}, '
                f'found {describe_folder(folder)}'
            )
        table = Table(path, POSE_COLUMNS)
        names, self._suffixes[sequence] = self._cloud_names(sequence, table)
        return DatasetTable(
            read_poses(table),
            np.array([_stamp_ns(path, name) for name in names], dtype=np.int64),
            (sequence,) * len(names),
            tuple(names),
        )

    def _cloud_names(self, sequence: str, table: Table) -> tuple[list[str], str]:
        """Return the cloud name of each row, and the suffix of the clouds."""
        folder = self._folder(sequence) / self._clouds
        suffix = '.bin' if any(folder.glob('*.bin')) else '.pcd'
        files = {path.stem for path in folder.glob(f'*{suffix}')}
        if not files:
            raise DatasetError(
                f'expected {folder}/*.bin or *.pcd, found {describe_folder(folder)}'
            )
        column = next((c for c in TIME_COLUMNS.values() if table.has(c)), None)
        stamps = table.text(column) if column else []
        if len(set(stamps)) == len(table) and files.issuperset(stamps):
            return stamps, suffix
        if len(files) != len(table):
            missing = next((s for s in stamps if s not in files), 'a row')
            raise DatasetError(
                f'{table.path}: {missing} has no cloud, and {len(table)} rows cannot be matched '
                f'in order with the {len(files)} clouds of {folder}'
            )
        logger.warning(
            '%s: the stamps do not name the clouds; matching rows and clouds in time order',
            table.path,
        )
        return sorted(files, key=lambda name: _stamp_ns(folder, name)), suffix

    def path(self, index: int) -> Path:
        """Return the file of one submap."""
        run = self.runs[index]
        return self._folder(run) / self._clouds / f'{self.names[index]}{self._suffixes[run]}'

    def points(self, index: int) -> NDArray[np.float32]:
        """Read one submap in meters."""
        path = self.path(index)
        if path.suffix == '.pcd':
            return read_pcd(path)
        return finite_xyz(path, read_raw(path, '<f4', 4))


def _stamp_ns(path: Path, name: str) -> int:
    try:
        return ns_from_seconds(name)
    except DatasetError as error:
        raise DatasetError(f'{path}: expected clouds named by their stamp: {error}') from error


def present(root: Path) -> list[str]:
    """Return the sequences under the root, in either layout."""
    return [
        s
        for s in SEQUENCES
        if (Path(root) / SITES[s[0]] / s).is_dir() or (Path(root) / s).is_dir()
    ]


def write_wild_places(
    root: Path, layout: str, sequence: str, clouds: Iterable[PosedCloud]
) -> None:
    """Write one sequence ('V-01' to 'K-04') in the layout 'v2' or 'v3'."""
    if layout not in TABLES or sequence not in SEQUENCES:
        raise DatasetError(
            f'expected a layout among {list(TABLES)} and a sequence among {list(SEQUENCES)}, '
            f'got {layout!r} and {sequence!r}'
        )
    site = Path(root) / SITES[sequence[0]] if layout == 'v2' else Path(root)

    def rows(folder: Path) -> Iterator[list[str]]:
        for cloud in clouds:
            name = seconds_from_ns(cloud.stamp_ns)
            if layout == 'v2':
                write_pcd(folder / f'{name}.pcd', cloud.points)
            else:
                intensity = getattr(cloud, 'intensity', np.zeros(len(cloud.points)))
                table = np.column_stack([cloud.points, intensity])
                write_raw(folder / f'{name}.bin', table, '<f4')
            yield [name, *pose_cells(cloud.T_world_sensor)]

    with atomic_folder(site / sequence) as partial:
        (partial / CLOUDS).mkdir()
        columns = (TIME_COLUMNS[layout], *POSE_COLUMNS)
        write_table(partial / TABLES[layout], columns, rows(partial / CLOUDS))
