"""Read and write PCD files (ascii, binary, binary_compressed): the fields x, y and z."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.files import open_regular
from lpr_ros.core.geometry.points import finite_xyz

NUMPY_KINDS = {'F': 'f', 'I': 'i', 'U': 'u'}


def read_pcd(path: Path) -> NDArray[np.float32]:
    """Return the finite points (N, 3) of a PCD file."""
    try:
        with open_regular(path) as stream:
            data = stream.read()
    except OSError as error:
        raise DatasetError(f'{path}: cannot be read: {error.strerror}') from error
    header, body = _split(path, data)
    try:
        dtype, count = _point_type(header)
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise DatasetError(
            f'{path}: expected a PCD header with FIELDS, SIZE, TYPE and POINTS, got '
            f'{header}: {error}'
        ) from error
    scalars = [name for name in dtype.names or () if dtype[name].shape == ()]
    if not {'x', 'y', 'z'} <= set(scalars):
        raise DatasetError(f'{path}: expected scalar fields x, y and z, got {dtype}')
    readers = {'ascii': _ascii, 'binary': _binary, 'binary_compressed': _compressed}
    storage = ' '.join(header['DATA'])
    if storage not in readers:
        raise DatasetError(f'{path}: expected DATA to be one of {list(readers)}, got {storage!r}')
    cloud = readers[storage](path, body, dtype, count)
    return finite_xyz(path, np.column_stack([cloud['x'], cloud['y'], cloud['z']]))


def write_pcd(path: Path, points: NDArray[np.float32]) -> None:
    """Write a binary PCD file with x, y and z."""
    header = (
        '# .PCD v0.7 - Point Cloud Data file format\nVERSION 0.7\nFIELDS x y z\nSIZE 4 4 4\n'
        f'TYPE F F F\nCOUNT 1 1 1\nWIDTH {len(points)}\nHEIGHT 1\n'
        f'VIEWPOINT 0 0 0 1 0 0 0\nPOINTS {len(points)}\nDATA binary\n'
    )
    path.write_bytes(header.encode() + np.ascontiguousarray(points, dtype='<f4').tobytes())


def _split(path: Path, data: bytes) -> tuple[dict[str, list[str]], bytes]:
    """Return the header entries and the bytes after the DATA line."""
    header: dict[str, list[str]] = {}
    start = 0
    while 'DATA' not in header:
        end = data.find(b'\n', start)
        if end < 0:
            raise DatasetError(f'{path}: expected a PCD header ending with a DATA line')
        words = data[start:end].decode('ascii', errors='replace').split()
        if words and not words[0].startswith('#'):
            header[words[0]] = words[1:]
        start = end + 1
    return header, data[start:]


def _point_type(header: dict[str, list[str]]) -> tuple[np.dtype[Any], int]:
    names = header['FIELDS']
    counts = [int(c) for c in header.get('COUNT', ['1'] * len(names))]
    formats = []
    for kind, size, count in zip(header['TYPE'], header['SIZE'], counts, strict=True):
        scalar = f'<{NUMPY_KINDS[kind]}{int(size)}'
        formats.append((scalar, (count,)) if count != 1 else scalar)
    # PCL names every padding field "_", but NumPy needs unique names.
    unique = [name if name != '_' else f'_{i}' for i, name in enumerate(names)]
    dtype = np.dtype(list(zip(unique, formats, strict=True)))
    count = int(header['POINTS'][0])
    if count < 1:
        raise ValueError(f'expected at least one point, got {count}')
    return dtype, count


def _ascii(path: Path, body: bytes, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    try:
        values = np.array(body.split(), dtype=np.float64)
    except ValueError as error:
        raise DatasetError(f'{path}: expected numbers: {error}') from error
    widths = [int(np.prod(dtype[name].shape, dtype=int)) for name in dtype.names or ()]
    if len(values) != count * sum(widths):
        raise DatasetError(
            f'{path}: expected {count} points of {sum(widths)} numbers, got {len(values)} numbers'
        )
    cloud = np.zeros(count, dtype=dtype)
    starts = np.cumsum([0, *widths])
    for name, start in zip(dtype.names or (), starts, strict=False):
        if dtype[name].shape == ():
            cloud[name] = values.reshape(count, -1)[:, start]
    return cloud


def _binary(path: Path, body: bytes, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    if len(body) < count * dtype.itemsize:
        raise DatasetError(
            f'{path}: expected {count} points of {dtype.itemsize} bytes = '
            f'{count * dtype.itemsize} bytes, got {len(body)}'
        )
    return np.frombuffer(body[: count * dtype.itemsize], dtype=dtype)


def _compressed(path: Path, body: bytes, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """Decompress LZF data, which stores one field after the other."""
    from lpr_training.datasets.formats.lzf import lzf_decompress  # numba takes a while to import

    packed = int.from_bytes(body[:4], 'little')
    expected = count * dtype.itemsize
    if int.from_bytes(body[4:8], 'little') != expected or len(body) < 8 + packed:
        raise DatasetError(
            f'{path}: expected compressed data of {expected} bytes, got sizes {body[:8]!r} and '
            f'{len(body)} bytes'
        )
    try:
        raw = lzf_decompress(body[8 : 8 + packed], expected)
    except DatasetError as error:
        raise DatasetError(f'{path}: {error}') from error
    cloud = np.zeros(count, dtype=dtype)
    start = 0
    for name in dtype.names or ():
        end = start + count * dtype[name].itemsize
        cloud[name] = np.frombuffer(raw[start:end], dtype=dtype[name].base).reshape(
            cloud[name].shape
        )
        start = end
    return cloud
