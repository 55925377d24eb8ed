"""Lazy, checked access to the arrays of a .npz file."""

from collections.abc import Mapping
from pathlib import Path
import sys
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError, short_repr
from lpr_ros.core.files import wrap_read_errors


class Expected(NamedTuple):
    """Required dtype kinds and shape of an array; None allows any length."""

    kinds: str  # NumPy dtype kinds: i, u, f, U
    shape: tuple[int | None, ...]

    def fits(self, array: NDArray[Any]) -> bool:
        """Return whether an array has this kind and shape, finite floats and valid characters."""
        return (
            array.dtype.kind in self.kinds
            and array.ndim == len(self.shape)
            and all(n in (None, m) for n, m in zip(self.shape, array.shape, strict=True))
            and (array.dtype.kind != 'f' or bool(np.isfinite(array).all()))
            and (array.dtype.kind != 'U' or _is_text(array))
        )


def _is_text(array: NDArray[Any]) -> bool:
    codes = np.ascontiguousarray(array).reshape(-1).view(f'{array.dtype.byteorder}u4')
    return bool((codes <= sys.maxunicode).all())


class NpzFile:
    """The arrays of one .npz; each is unpacked and checked on first use."""

    def __init__(self, path: Path, expected: Mapping[str, Expected]):
        self.path = path
        self._expected = expected
        self._arrays: dict[str, NDArray[Any]] = {}
        with wrap_read_errors(path, 'an npz file'), np.load(path, allow_pickle=False) as file:
            names = list(file.files)
        missing = [name for name in expected if name not in names]
        if missing:
            raise DatasetError(f'{path}: expected arrays {list(expected)}, got {names}')

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._arrays:
            undamaged = wrap_read_errors(self.path, f'array {name!r} undamaged')
            with undamaged, np.load(self.path, allow_pickle=False) as file:
                array = np.asarray(file[name])  # a member that is not an array comes as bytes
            if not self._expected[name].fits(array):
                raise DatasetError(
                    f'{self.path}: array {name!r}: expected finite {self._expected[name]}, got '
                    f'{array.dtype} {array.shape}'
                )
            self._arrays[name] = array
        return self._arrays[name]


def check_offsets(file: NpzFile, name: str, rows: int, length: int) -> None:
    """Raise DatasetError unless the offsets split an array of this length into rows."""
    offsets = file[name]
    ends = offsets[[0, -1]].tolist() if len(offsets) else []
    if len(offsets) != rows + 1 or ends != [0, length] or (np.diff(offsets) < 0).any():
        raise DatasetError(
            f'{file.path}: array {name!r}: expected {rows + 1} ascending offsets from 0 '
            f'to {length}, got {short_repr(offsets.tolist())}'
        )


def check_indices(file: NpzFile, what: str, indices: NDArray[Any], count: int) -> None:
    """Raise DatasetError unless all indices are in [0, count)."""
    wrong = indices[(indices < 0) | (indices >= count)]
    if len(wrong):
        raise DatasetError(f'{file.path}: {what}: expected 0 to {count - 1}, got {wrong[0]}')
