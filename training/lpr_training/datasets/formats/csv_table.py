"""CSV tables with a header; errors name the line and column."""

from collections.abc import Iterable, Sequence
import csv
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.files import atomic_file, wrap_read_errors
from lpr_ros.core.geometry.se3 import pose_from_quaternion, quaternion_from_pose
from lpr_ros.core.io.pose_files import exact_ns

POSE_COLUMNS = ('x', 'y', 'z', 'qx', 'qy', 'qz', 'qw')


class Table:
    """A CSV file; columns are accessed by name and validated on access."""

    def __init__(self, path: Path, columns: Sequence[str]):
        self.path = path
        with (
            wrap_read_errors(path, f'a csv with columns {list(columns)}'),
            path.open(newline='', encoding='utf-8-sig') as stream,
        ):
            rows = [
                (number, row)
                for number, row in enumerate(csv.reader(stream, skipinitialspace=True), 1)
                if any(cell.strip() for cell in row)
            ]
        header = [cell.strip() for cell in rows[0][1]] if rows else []
        missing = [name for name in columns if name not in header]
        if missing:
            raise DatasetError(
                f'{path}, line 1: expected columns {list(columns)}, got {header}: '
                f'{missing[0]!r} is missing'
            )
        self._header = header
        self._rows = rows[1:]
        for number, row in self._rows:
            if len(row) < len(header):
                raise DatasetError(
                    f'{path}, line {number}: expected {len(header)} values, got {len(row)}'
                )

    def __len__(self) -> int:
        return len(self._rows)

    def has(self, column: str) -> bool:
        """Return whether the file has a column."""
        return column in self._header

    def line(self, row: int) -> int:
        """Return the line number of a row."""
        return self._rows[row][0]

    def text(self, column: str) -> list[str]:
        """Return the cells of a column as text."""
        position = self._header.index(column)
        return [row[position].strip() for _, row in self._rows]

    def numbers(self, columns: Sequence[str]) -> NDArray[np.float64]:
        """Return (N, len(columns)) finite numbers."""
        table = np.empty((len(self), len(columns)))
        for k, column in enumerate(columns):
            for i, cell in enumerate(self.text(column)):
                table[i, k] = self._number(i, column, cell)
        return table

    def stamps_ns(self, column: str, unit_ns: int) -> NDArray[np.int64]:
        """Return a column of decimal times in the given unit as integer nanoseconds."""
        stamps = np.empty(len(self), dtype=np.int64)
        for i, cell in enumerate(self.text(column)):
            try:
                stamps[i] = exact_ns(cell, unit_ns)
            except DatasetError as error:
                raise DatasetError(f'{self._cell(i, column)}: {error}') from error
        return stamps

    def _number(self, index: int, column: str, cell: str) -> float:
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise DatasetError(
                f'{self._cell(index, column)}: expected a finite number, got {cell!r}'
            )
        return value

    def _cell(self, index: int, column: str) -> str:
        return f'{self.path}, line {self.line(index)}, column {column!r}'


def read_poses(table: Table) -> NDArray[np.float64]:
    """Return the poses (N, 4, 4) of a table with `POSE_COLUMNS`."""
    values = table.numbers(POSE_COLUMNS)
    zero = np.flatnonzero(np.linalg.norm(values[:, 3:], axis=1) < 1e-6)
    if len(zero):
        raise DatasetError(
            f'{table.path}, line {table.line(int(zero[0]))}: expected a unit quaternion, got zeros'
        )
    return pose_from_quaternion(values[:, :3], values[:, 3:])


def pose_cells(T: NDArray[np.float64]) -> list[str]:
    """Return a pose as cells of `POSE_COLUMNS`, in full precision."""
    return [repr(float(v)) for v in (*T[:3, 3], *quaternion_from_pose(T))]


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a CSV file for `Table`."""
    with atomic_file(path) as partial, partial.open('w', encoding='utf-8') as stream:
        stream.write(','.join(columns) + '\n')
        for row in rows:
            stream.write(','.join(row) + '\n')
