"""A map on disk: whole or not there, checked to the last byte, tied to its checkpoint.

    magic, version, size of the header | header, JSON | SHA-256 of all so far
    batches of keyframes: descriptors, places, sizes and steps of clouds, points of clouds
    SHA-256 of all before it

Both sides work batch by batch, so memory does not grow with the map. All numbers are
little-endian. Nothing is unpickled.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
import hashlib
import io
import json
import os
from pathlib import Path
import struct
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.cloud_store import BYTES_PER_POINT, LARGEST_CELL, PackedCloud
from lpr_ros.core.errors import MapError, shown
from lpr_ros.core.files import whole_file
from lpr_ros.core.place_table import PLACE_ROW

MAGIC = b'lpr_ros map\n'
VERSION = 1
PREFIX = struct.Struct('<12sIQ')  # magic, version, bytes of the header
DIGEST_BYTES = hashlib.sha256().digest_size
LARGEST_HEADER = 64 * 2**20
BATCH_KEYFRAMES = 512
CHUNK_BYTES = 2**20
LARGEST_REACH_M = 1e30  # of a cloud: finite in float32, also squared and summed in float64
CLOUD_ROW = np.dtype([('points', '<u4'), ('step_m', '<f8')])


@dataclass(frozen=True)
class Header:
    """What a map holds, from which the size of the file follows."""

    fingerprint: str  # of the checkpoint
    dim: int
    keyframes: int
    sessions: tuple[str, ...]
    points: int  # of all clouds

    @property
    def batch_bytes(self) -> int:
        """Bytes of all batches together."""
        per_keyframe = 4 * self.dim + PLACE_ROW.itemsize + CLOUD_ROW.itemsize
        return self.keyframes * per_keyframe + self.points * BYTES_PER_POINT


@dataclass(frozen=True, eq=False)
class Batch:
    """Consecutive keyframes as they are stored."""

    descriptors: NDArray[np.float32]  # (N, D)
    places: NDArray[np.void]  # (N,) of PLACE_ROW; sessions are numbers
    clouds: list[PackedCloud]


def write_map(path: Path, header: Header, batches: Iterator[Batch]) -> None:
    """Write a map aside and rename it into place; MapError leaves the file that was there."""
    try:
        with whole_file(path) as partial, partial.open('wb') as stream:
            digest = hashlib.sha256()
            for data in _pieces(header, batches):
                digest.update(data)
                stream.write(data)
            stream.write(digest.digest())
    except OSError as error:
        raise MapError(
            f'{path}: the map cannot be written: {error}; what was there before is untouched'
        ) from error


def _pieces(header: Header, batches: Iterator[Batch]) -> Iterator[bytes]:
    text = json.dumps(asdict(header), sort_keys=True).encode()
    start = PREFIX.pack(MAGIC, VERSION, len(text)) + text
    yield start + hashlib.sha256(start).digest()
    for batch in batches:
        yield batch.descriptors.astype('<f4', copy=False).tobytes()
        yield batch.places.tobytes()
        sizes = [(len(cloud.cells), cloud.step_m) for cloud in batch.clouds]
        yield np.array(sizes, dtype=CLOUD_ROW).tobytes()
        for cloud in batch.clouds:
            yield cloud.cells.astype('<i2', copy=False).tobytes()


class MapReader:
    """An open map file of this version and checkpoint, every byte of it checked."""

    def __init__(self, path: Path, fingerprint: str):
        self._path = path
        try:
            self._stream: io.BufferedReader = path.open('rb')
        except OSError as error:
            raise MapError(f'{path}: cannot be read, expected a map file: {error}') from error
        try:
            self.header = self._read_header()
            self._batches_at = self._stream.tell()
            self._check_size_and_digest()
            if self.header.fingerprint != fingerprint:
                raise self._error(
                    f'made with checkpoint {self.header.fingerprint!r}, expected '
                    f'{fingerprint!r}: descriptors of two checkpoints are not comparable'
                )
        except BaseException:
            self._stream.close()
            raise

    def __enter__(self) -> 'MapReader':
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.close()

    def batches(self) -> Iterator[Batch]:
        """Yield the keyframes in order of their ids."""
        self._stream.seek(self._batches_at)
        for start in range(0, self.header.keyframes, BATCH_KEYFRAMES):
            count = min(BATCH_KEYFRAMES, self.header.keyframes - start)
            descriptors = self._array(np.dtype('<f4'), count * self.header.dim)
            places = self._array(PLACE_ROW, count)
            sizes = self._array(CLOUD_ROW, count)
            self._check_values(start, descriptors, places, sizes)
            clouds = [
                PackedCloud(float(row['step_m']), self._cells(int(row['points']))) for row in sizes
            ]
            yield Batch(descriptors.reshape(count, self.header.dim), places, clouds)

    def _check_values(
        self,
        first: int,
        descriptors: NDArray[np.float32],
        places: NDArray[np.void],
        sizes: NDArray[np.void],
    ) -> None:
        """Refuse what no database writes; a checksum proves only that nothing changed since."""
        T, steps = places['T_odom_sensor'], sizes['step_m']
        known = np.isfinite(T).all(axis=(1, 2))
        right = {
            'finite descriptors': np.isfinite(descriptors).reshape(len(places), -1).all(axis=1),
            'known sessions': (places['session'] >= 0)
            & (places['session'] < len(self.header.sessions)),
            'a finite distance travelled': np.isfinite(places['travelled_m']),
            'whole poses or none': known | np.isnan(T).all(axis=(1, 2)),
            'clouds within reach': (steps >= 0.0) & (steps * LARGEST_CELL < LARGEST_REACH_M),
        }
        for what, holds in right.items():
            if not holds.all():
                raise self._error(f'keyframe {first + int(np.argmin(holds))}: expected {what}')

    def _cells(self, count: int) -> NDArray[np.int16]:
        return self._array(np.dtype('<i2'), 3 * count).reshape(count, 3)

    def _array(self, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        return np.frombuffer(self._read(dtype.itemsize * count), dtype=dtype)

    def _read(self, size: int) -> bytes:
        try:
            left = os.fstat(self._stream.fileno()).st_size - self._stream.tell()
            data = self._stream.read(min(size, left))  # a damaged size may ask for anything
        except OSError as error:
            raise self._error(f'cannot be read: {error}') from error
        if len(data) != size:
            raise self._error(f'cut short: {len(data)} bytes left, expected {size}')
        return data

    def _read_header(self) -> Header:
        prefix = self._read(PREFIX.size)
        magic, version, size = PREFIX.unpack(prefix)
        if magic != MAGIC:
            raise self._error(f'begins with {magic!r}, expected a map file, {MAGIC!r}')
        if version != VERSION:
            raise self._error(f'version {version}, expected {VERSION}')
        if size > LARGEST_HEADER:
            raise self._error(f'damaged: header of {size} bytes, most is {LARGEST_HEADER}')
        text = self._read(size)
        self._check_digest(hashlib.sha256(prefix + text).digest(), self._read(DIGEST_BYTES))
        try:
            return _parse_header(json.loads(text))
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise self._error(f'header {text[:200]!r} is not that of a map: {error!r}') from error

    def _check_size_and_digest(self) -> None:
        size = os.fstat(self._stream.fileno()).st_size
        expected = self._batches_at + self.header.batch_bytes + DIGEST_BYTES
        if size != expected:
            raise self._error(f'cut short or damaged: {size} bytes, expected {expected}')
        self._stream.seek(0)
        digest = hashlib.sha256()
        for start in range(0, expected - DIGEST_BYTES, CHUNK_BYTES):
            digest.update(self._read(min(CHUNK_BYTES, expected - DIGEST_BYTES - start)))
        self._check_digest(digest.digest(), self._read(DIGEST_BYTES))

    def _check_digest(self, found: bytes, expected: bytes) -> None:
        if found != expected:
            raise self._error(f'damaged: checksum {found.hex()}, expected {expected.hex()}')

    def _error(self, text: str) -> MapError:
        return MapError(f'{self._path}: {text}')


def _parse_header(data: Mapping[str, Any]) -> Header:
    header = Header(
        fingerprint=str(data['fingerprint']),
        dim=int(data['dim']),
        keyframes=int(data['keyframes']),
        sessions=tuple(str(name) for name in data['sessions']),
        points=int(data['points']),
    )
    sizes = (header.dim, header.keyframes, header.points)
    if header.dim < 1 or min(sizes) < 0:
        raise ValueError(f'dim, keyframes and points are {shown(sizes)}')
    return header
