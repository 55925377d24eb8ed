"""The one interface of every dataset: a table of places, and points read when asked for."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_training.datasets.records import Place

# What the points of a dataset are: metres, scaled into [-1, 1], or lifted bird's-eye counts.
METRES, UNIT_CUBE, COLUMNS = 'metres', 'unit cube', 'columns'


@dataclass(frozen=True, eq=False)
class PlaceTable:
    """Everything about N places except their points."""

    T_world_sensor: NDArray[np.float64]  # (N, 4, 4)
    stamps_ns: NDArray[np.int64]  # (N,)
    runs: tuple[str, ...]  # (N,), the drive each place belongs to
    names: tuple[str, ...]  # (N,), unique within a run

    def __post_init__(self) -> None:
        lengths = {
            'T_world_sensor': len(self.T_world_sensor),
            'stamps_ns': len(self.stamps_ns),
            'runs': len(self.runs),
            'names': len(self.names),
        }
        if len(set(lengths.values())) != 1:
            raise DatasetError(f'the columns of a table must have one length, got {lengths}')

    @classmethod
    def join(cls, tables: Sequence['PlaceTable']) -> 'PlaceTable':
        """Put tables one after the other."""
        return cls(
            np.concatenate([t.T_world_sensor for t in tables]).reshape(-1, 4, 4),
            np.concatenate([t.stamps_ns for t in tables]),
            tuple(run for t in tables for run in t.runs),
            tuple(name for t in tables for name in t.names),
        )


class PlaceDataset(ABC):
    """N places in order: run by run, and in time within a run.

    The columns of the table are read on opening, the points of a place by `dataset[i]`.
    """

    clouds: str = METRES

    def __init__(self, table: PlaceTable):
        self.T_world_sensor = table.T_world_sensor
        self.stamps_ns = table.stamps_ns
        self.runs = table.runs
        self.names = table.names

    @property
    def positions(self) -> NDArray[np.float64]:
        """Positions in the world, (N, 3), metres."""
        return self.T_world_sensor[:, :3, 3]

    @abstractmethod
    def points(self, index: int) -> NDArray[np.float32]:
        """Read the points of one place, (n, 3); raise DatasetError naming a file it cannot."""

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Place:
        if not -len(self) <= index < len(self):
            raise IndexError(f'place {index} of {len(self)}')
        index %= len(self)
        return Place(
            self.points(index),
            self.T_world_sensor[index],
            int(self.stamps_ns[index]),
            self.runs[index],
            self.names[index],
        )

    def indices_of(self, run: str) -> NDArray[np.int64]:
        """Return the indices of the places of one run, in order."""
        return np.flatnonzero(np.array(self.runs) == run)


class Subset(PlaceDataset):
    """Some places of another dataset, in the given order."""

    def __init__(self, dataset: PlaceDataset, indices: NDArray[np.int64]):
        super().__init__(
            PlaceTable(
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
    """Several datasets one after the other."""

    def __init__(self, datasets: Sequence[PlaceDataset]):
        kinds = {d.clouds for d in datasets}
        if len(kinds) != 1:
            raise DatasetError(f'expected datasets of one kind of cloud, got {sorted(kinds)}')
        self.clouds = kinds.pop()
        super().__init__(
            PlaceTable.join(
                [PlaceTable(d.T_world_sensor, d.stamps_ns, d.runs, d.names) for d in datasets]
            )
        )
        self._datasets = list(datasets)
        self._starts = np.cumsum([0, *(len(d) for d in datasets)])

    def points(self, index: int) -> NDArray[np.float32]:
        """Read the points from the dataset this place came from."""
        which = int(np.searchsorted(self._starts, index, side='right')) - 1
        return self._datasets[which].points(index - int(self._starts[which]))


def describe_folder(folder: Path, limit: int = 6) -> str:
    """Say in words what is in a folder, for messages about what is missing."""
    if not folder.exists():
        parent = folder.parent
        return f'no {folder}' if parent.exists() else describe_folder(parent)
    if not folder.is_dir():
        return f'the file {folder}'
    names = sorted(p.name for p in folder.iterdir())
    more = f' and {len(names) - limit} more' if len(names) > limit else ''
    return f'{", ".join(names[:limit])}{more} in {folder}' if names else f'nothing in {folder}'
