"""Scans packed as int16 centimeters, scans_<run>.npz."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.files import atomic_file
from lpr_ros.core.recordings.packed import PREFIX, PackedRecording
from lpr_training.datasets.base import DatasetTable, PlaceDataset, describe_folder


def find_npz(root: Path, prefix: str, runs: Sequence[str] | None) -> dict[str, Path]:
    """Return run -> ROOT/<prefix><run>.npz of the given or all runs; ROOT may be a file."""
    root = Path(root)
    paths = [root] if root.is_file() else sorted(root.glob(f'{prefix}*.npz'))
    found = {path.stem.removeprefix(prefix): path for path in paths}
    missing = sorted(set(runs or ()) - set(found))
    if not found or missing:
        raise DatasetError(
            f'expected {root}/{prefix}{missing[0] if missing else "<run>"}.npz, '
            f'found {describe_folder(root)}'
        )
    return found if runs is None else {run: found[run] for run in runs}


class ScansDataset(PlaceDataset):
    """Packed scans, one run per file; the world is the odometry frame of the run."""

    def __init__(self, root: Path, *, runs: Sequence[str] | None = None):
        found = find_npz(root, PREFIX, runs)
        self._sources = {run: PackedRecording(path) for run, path in found.items()}
        self._first: dict[str, int] = {}
        tables: list[DatasetTable] = []
        for run, source in self._sources.items():
            self._first[run] = sum(len(t.names) for t in tables)
            names = tuple(f'{i:06d}' for i in range(len(source)))
            tables.append(
                DatasetTable(source.T_odom_sensor, source.stamps_ns, (run,) * len(source), names)
            )
        super().__init__(DatasetTable.join(tables))

    def points(self, index: int) -> NDArray[np.float32]:
        """Return one scan in meters."""
        run = self.runs[index]
        return self._sources[run].points(index - self._first[run])


def write_packed(
    path: Path,
    clouds: Iterable[NDArray[np.float32]],
    stamps_ns: NDArray[np.int64],
    T_odom_sensor: NDArray[np.float64],
) -> None:
    """Write scans as int16 centimeters to a scans_<run>.npz file."""
    packed = [np.round(points * 100.0).astype(np.int16) for points in clouds]
    offsets = np.concatenate([[0], np.cumsum([len(points) for points in packed])])
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as partial, partial.open('wb') as stream:
        np.savez(
            stream,
            points_cm=np.concatenate(packed),
            offsets=offsets,
            stamps_ns=stamps_ns,
            T_odom_sensor=T_odom_sensor,
        )
