"""The dataset interface: a table of places, and points that are read on demand."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError

# Kinds of points: in meters, scaled to [-1, 1], or stacked bird's-eye counts.
METERS, UNIT_CUBE, COLUMNS = 'meters', 'unit cube', 'columns'


@dataclass(frozen=True, eq=False)
class PlaceSample:
    """One place of a dataset: a cloud, its pose and its name."""

    points: NDArray[np.float32]  # (N, 3), sensor frame; unit given by PlaceDataset.clouds
    T_world_sensor: NDArray[np.float64]  # (4, 4)
    stamp_ns: int
    run: str
    name: str


@dataclass(frozen=True, eq=False)
class RecordedScan:
    """One scan with per-point fields, odometry and ground truth."""

    points: NDArray[np.float32]  # (N, 3), meters, sensor frame
    intensity: NDArray[np.float32]  # (N,), 0..1
    ring: NDArray[np.uint16]  # (N,), beam index
    time_s: NDArray[np.float32]  # (N,), seconds after stamp_ns
    stamp_ns: int
    T_odom_sensor: NDArray[np.float64]  # (4, 4), drifting odometry
    T_world_sensor: NDArray[np.float64]  # (4, 4), ground truth


class PosedCloud(Protocol):
    """What writers need of a cloud; PlaceSample and RecordedScan provide it."""

    @property
    def points(self) -> NDArray[np.float32]:
        """Points (N, 3) in the sensor frame."""

    @property
    def stamp_ns(self) -> int:
        """Stamp of the cloud."""

    @property
    def T_world_sensor(self) -> NDArray[np.float64]:
        """Pose (4, 4) of the sensor."""


def world_of(run: str) -> str:
    """Return the world of a run: its name up to the first slash."""
    return run.partition('/')[0]


def apart_by_world(
    positions_xy: NDArray[np.float64], runs: tuple[str, ...]
) -> NDArray[np.float64]:
    """Return positions with the worlds shifted so far apart that places never overlap.

    Runs with equal names up to the first slash share a world: `city_3/day_1`, `city_3/day_2`.
    """
    worlds = np.unique([world_of(run) for run in runs], return_inverse=True)[1]
    span = float(np.ptp(positions_xy, axis=0).max()) if len(positions_xy) else 0.0
    return positions_xy + np.stack([worlds * (2.0 * span + 1e4), np.zeros(len(worlds))], axis=1)


@dataclass(frozen=True, eq=False)
class DatasetTable:
    """Poses, stamps, runs and names of N places."""

    T_world_sensor: NDArray[np.float64]  # (N, 4, 4)
    stamps_ns: NDArray[np.int64]  # (N,)
    runs: tuple[str, ...]  # (N,)
    names: tuple[str, ...]  # (N,), unique within a run

    def __post_init__(self) -> None:
        lengths = {
            'T_world_sensor': len(self.T_world_sensor),
            'stamps_ns': len(self.stamps_ns),
            'runs': len(self.runs),
            'names': len(self.names),
        }
        if len(set(lengths.values())) != 1:
            raise DatasetError(f'expected columns of equal length, got {lengths}')

    @classmethod
    def join(cls, tables: Sequence['DatasetTable']) -> 'DatasetTable':
        """Concatenate tables."""
        return cls(
            np.concatenate([t.T_world_sensor for t in tables]).reshape(-1, 4, 4),
            np.concatenate([t.stamps_ns for t in tables]),
            tuple(run for t in tables for run in t.runs),
            tuple(name for t in tables for name in t.names),
        )


class PlaceDataset(ABC):
    """N places, ordered by run and by time within a run.

    The table is read when the dataset is opened, the points of a place by `dataset[i]`.
    """

    clouds: str = METERS

    def __init__(self, table: DatasetTable):
        self.T_world_sensor = table.T_world_sensor
        self.stamps_ns = table.stamps_ns
        self.runs = table.runs
        self.names = table.names

    @property
    def positions(self) -> NDArray[np.float64]:
        """Positions (N, 3) in the world, in meters."""
        return self.T_world_sensor[:, :3, 3]

    @abstractmethod
    def points(self, index: int) -> NDArray[np.float32]:
        """Read the points (n, 3) of one place; DatasetError names an unreadable file."""

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> PlaceSample:
        if not -len(self) <= index < len(self):
            raise IndexError(f'place {index} is out of range for {len(self)} places')
        index %= len(self)
        return PlaceSample(
            self.points(index),
            self.T_world_sensor[index],
            int(self.stamps_ns[index]),
            self.runs[index],
            self.names[index],
        )

    def indices_of(self, run: str) -> NDArray[np.int64]:
        """Return the indices of the places of a run, in order."""
        return np.flatnonzero(np.array(self.runs) == run)


class Subset(PlaceDataset):
    """Some places of another dataset, in the given order."""

    def __init__(self, dataset: PlaceDataset, indices: NDArray[np.int64]):
        super().__init__(
            DatasetTable(
                dataset.T_world_sensor[indices],
                dataset.stamps_ns[indices],
                tuple(dataset.runs[i] for i in indices),
                tuple(dataset.names[i] for i in indices),
            )
        )
        self.clouds = dataset.clouds
        self._dataset = dataset
        self._indices = indices

    def points(self, index: int) -> NDArray[np.float32]:
        """Read the points from the underlying dataset."""
        return self._dataset.points(int(self._indices[index]))


class Joined(PlaceDataset):
    """Several datasets, concatenated."""

    def __init__(self, datasets: Sequence[PlaceDataset]):
        kinds = {d.clouds for d in datasets}
        if len(kinds) != 1:
            raise DatasetError(
                f'expected datasets with the same kind of points, got {sorted(kinds)}'
            )
        self.clouds = kinds.pop()
        super().__init__(
            DatasetTable.join(
                [DatasetTable(d.T_world_sensor, d.stamps_ns, d.runs, d.names) for d in datasets]
            )
        )
        self._datasets = list(datasets)
        self._starts = np.cumsum([0, *(len(d) for d in datasets)])

    def points(self, index: int) -> NDArray[np.float32]:
        """Read the points from the dataset of the place."""
        which = int(np.searchsorted(self._starts, index, side='right')) - 1
        return self._datasets[which].points(index - int(self._starts[which]))


def describe_folder(folder: Path, limit: int = 6) -> str:
    """Return a summary of the content of a folder, for error messages."""
    if not folder.exists():
        parent = folder.parent
        return f'no {folder}' if parent.exists() else describe_folder(parent)
    if not folder.is_dir():
        return f'the file {folder}'
    names = sorted(p.name for p in folder.iterdir())
    more = f' and {len(names) - limit} more' if len(names) > limit else ''
    return f'{", ".join(names[:limit])}{more} in {folder}' if names else f'nothing in {folder}'
