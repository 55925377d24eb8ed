"""The arrays of one .npz file, unpacked when first asked for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
import zipfile

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError


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
