"""Headerless binary clouds: N rows of a fixed number of floats."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError


def read_raw(
    path: Path, dtype: str, columns: int, *, rows: int | None = None
) -> NDArray[np.floating[Any]]:
    """Read (N, columns) floats; a file of another size is damaged and is refused."""
    try:
        data = path.read_bytes()
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


def finite_xyz(path: Path, table: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Return the first three columns as float32 without the rows that are not finite."""
    with np.errstate(over='ignore'):
        points = np.ascontiguousarray(table[:, :3], dtype=np.float32)
    keep = np.isfinite(points[:, 0]) & np.isfinite(points[:, 1]) & np.isfinite(points[:, 2])
    if not keep.any():
        raise DatasetError(f'{path}: expected a finite point, got none among {len(points)}')
    return points if keep.all() else points[keep]


def write_raw(path: Path, table: NDArray[np.floating[Any]], dtype: str) -> None:
    """Write rows of floats that `read_raw` reads back, into a folder not yet in its place."""
    path.write_bytes(np.ascontiguousarray(table, dtype=dtype).tobytes())
