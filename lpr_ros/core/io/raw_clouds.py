"""Headerless binary clouds: N rows of a fixed number of floats."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.files import open_regular


def read_raw(
    path: Path, dtype: str, columns: int, *, rows: int | None = None
) -> NDArray[np.floating[Any]]:
    """Read (N, columns) floats; DatasetError if the file size does not fit."""
    try:
        with open_regular(path) as stream:
            data = stream.read()
    except OSError as error:
        raise DatasetError(f'{path}: cannot be read: {error.strerror}') from error
    row_bytes = np.dtype(dtype).itemsize * columns
    if rows is not None and len(data) != rows * row_bytes:
        raise DatasetError(
            f'{path}: expected {rows} points of {columns} {np.dtype(dtype).name} = '
            f'{rows * row_bytes} bytes, got {len(data)}'
        )
    if len(data) == 0 or len(data) % row_bytes:
        raise DatasetError(
            f'{path}: expected rows of {columns} {np.dtype(dtype).name} = {row_bytes} bytes, '
            f'got {len(data)} bytes ({len(data) / row_bytes:.2f} rows)'
        )
    return np.frombuffer(data, dtype=dtype).reshape(-1, columns)


def write_raw(path: Path, table: NDArray[np.floating[Any]], dtype: str) -> None:
    """Write rows of floats; not atomic, for files in a folder that is renamed when complete."""
    path.write_bytes(np.ascontiguousarray(table, dtype=dtype).tobytes())
