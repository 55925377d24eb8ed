"""Datasets packed into one .npz per run: found by name, opened when first asked for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
import zipfile

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_training.datasets.base import describe_folder


class NpzFile:
    """The arrays of one .npz; each is unpacked once, when first used."""

    def __init__(self, path: Path, expected: Sequence[str]):
        self.path = path
        self._arrays: dict[str, NDArray[Any]] = {}
        try:
            with np.load(path, allow_pickle=False) as file:
                names = list(file.files)
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise DatasetError(f'{path}: expected an npz file: {error}') from error
        missing = [name for name in expected if name not in names]
        if missing:
            raise DatasetError(f'{path}: expected arrays {list(expected)}, got {names}')

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._arrays:
            try:
                with np.load(self.path, allow_pickle=False) as file:
                    self._arrays[name] = file[name]
            except (OSError, ValueError, zipfile.BadZipFile) as error:
                raise DatasetError(f'{self.path}: array {name!r} is damaged: {error}') from error
        return self._arrays[name]


def find_npz(root: Path, prefix: str, runs: Sequence[str] | None) -> dict[str, Path]:
    """Return run -> ROOT/<prefix><run>.npz, of the given runs or of all; ROOT may be one file."""
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
