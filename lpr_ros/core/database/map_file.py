"""Map files: written atomically, fully validated on reading, tied to one checkpoint.

    magic, version, header size | header, JSON | SHA-256 of everything so far
    batches of keyframes: descriptors, records, cloud sizes and steps, cloud points
    SHA-256 of everything before it

Reading and writing go batch by batch, so memory does not grow with the map. All numbers are
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

from lpr_ros.core.database.cloud_store import BYTES_PER_POINT, MAX_CELL, QuantizedCloud
from lpr_ros.core.database.session_names import MAX_SESSIONS, check_session_name
from lpr_ros.core.errors import LprError, MapError, short_repr
from lpr_ros.core.files import atomic_file, open_regular
from lpr_ros.core.geometry.se3 import is_pose
from lpr_ros.core.timing import MAX_STAMP_NS

MAGIC = b'lpr_ros map\n'
VERSION = 1
PREFIX = struct.Struct('<12sIQ')  # magic, version, bytes of the header
DIGEST_BYTES = hashlib.sha256().digest_size
MAX_HEADER_BYTES = 4 * 2**20  # MAX_SESSIONS of the longest names, escaped, fit
BATCH_KEYFRAMES = 512
CHUNK_BYTES = 2**20
MAX_CLOUD_RADIUS_M = 1e30  # finite in float32, and in float64 when squared and summed
KEYFRAME_RECORD = np.dtype(
    [
        ('session', '<i8'),  # index into Header.sessions
        ('order', '<i8'),  # position in the session
        ('stamp_ns', '<i8'),
        ('traveled_m', '<f8'),
        ('T_odom_sensor', '<f8', (4, 4)),  # NaN without odometry
    ]
)
CLOUD_RECORD = np.dtype([('points', '<u4'), ('step_m', '<f8')])


@dataclass(frozen=True)
class Header:
    """Contents of a map; determines the size of the file."""

    fingerprint: str  # of the checkpoint
    dim: int
    keyframes: int
    sessions: tuple[str, ...]
    points: int  # of all clouds

    @property
    def batch_bytes(self) -> int:
        """Bytes of all batches together."""
        per_keyframe = 4 * self.dim + KEYFRAME_RECORD.itemsize + CLOUD_RECORD.itemsize
        return self.keyframes * per_keyframe + self.points * BYTES_PER_POINT


@dataclass(frozen=True, eq=False)
class Batch:
    """Consecutive keyframes as stored in the file."""

    descriptors: NDArray[np.float32]  # (N, D)
    keyframes: NDArray[np.void]  # (N,) of KEYFRAME_RECORD
    clouds: list[QuantizedCloud]


def write_map(path: Path, header: Header, batches: Iterator[Batch]) -> None:
    """Write a map atomically; MapError leaves an existing file unchanged."""
    try:
        with atomic_file(path) as partial, partial.open('wb') as stream:
            digest = hashlib.sha256()
            for data in _chunks(header, batches):
                digest.update(data)
                stream.write(data)
            stream.write(digest.digest())
    except OSError as error:
        raise MapError(
            f'{path}: cannot write the map: {error}; an existing file is unchanged'
        ) from error


def _chunks(header: Header, batches: Iterator[Batch]) -> Iterator[bytes]:
    text = json.dumps(asdict(header), sort_keys=True).encode()
    start = PREFIX.pack(MAGIC, VERSION, len(text)) + text
    yield start + hashlib.sha256(start).digest()
    for batch in batches:
        yield batch.descriptors.astype('<f4', copy=False).tobytes()
        yield batch.keyframes.tobytes()
        sizes = [(len(cloud.cells), cloud.step_m) for cloud in batch.clouds]
        yield np.array(sizes, dtype=CLOUD_RECORD).tobytes()
        for cloud in batch.clouds:
            yield cloud.cells.astype('<i2', copy=False).tobytes()


class MapReader:
    """An open map file of this version and checkpoint, with verified checksums."""

    def __init__(self, path: Path, fingerprint: str):
        self._path = path
        try:
            self._stream: io.BufferedReader = open_regular(path)
        except OSError as error:
            raise MapError(f'{path}: cannot be read, expected a map file: {error}') from error
        try:
            self.header = self._read_header()
            self._batches_at = self._stream.tell()
            self._check_size_and_digest()
            if self.header.fingerprint != fingerprint:
                raise self._error(
                    f'made with checkpoint {short_repr(self.header.fingerprint)}, expected '
                    f'{fingerprint!r}: descriptors of different checkpoints are not comparable'
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
            keyframes = self._array(KEYFRAME_RECORD, count)
            sizes = self._array(CLOUD_RECORD, count)
            self._check_values(start, descriptors, keyframes, sizes)
            clouds = [
                QuantizedCloud(float(row['step_m']), self._cells(int(row['points'])))
                for row in sizes
            ]
            yield Batch(descriptors.reshape(count, self.header.dim), keyframes, clouds)
        read = self._stream.tell() - self._batches_at
        if read != self.header.batch_bytes:
            raise self._error(f'{read} bytes of keyframes, expected {self.header.batch_bytes}')

    def _check_values(
        self,
        first: int,
        descriptors: NDArray[np.float32],
        keyframes: NDArray[np.void],
        sizes: NDArray[np.void],
    ) -> None:
        """Reject values that no database writes: a crafted file can have a valid checksum."""
        T, steps, session = keyframes['T_odom_sensor'], sizes['step_m'], keyframes['session']
        stamps, traveled_m = keyframes['stamp_ns'], keyframes['traveled_m']
        has_pose = np.isfinite(T).all(axis=(1, 2)) & is_pose(T)
        checks = {
            'finite descriptors': np.isfinite(descriptors).reshape(len(T), -1).all(axis=1),
            'a session of the header': (session >= 0) & (session < len(self.header.sessions)),
            'a stamp that ROS can represent': (stamps >= -MAX_STAMP_NS) & (stamps <= MAX_STAMP_NS),
            'a finite traveled distance': np.isfinite(traveled_m) & (traveled_m >= 0.0),
            'a valid pose, or none': has_pose | np.isnan(T).all(axis=(1, 2)),
            'a bounded cloud': (steps >= 0.0) & (steps * MAX_CELL < MAX_CLOUD_RADIUS_M),
        }
        for expected, is_valid in checks.items():
            if not is_valid.all():
                bad = first + int(np.argmin(is_valid))
                raise self._error(f'keyframe {bad}: expected {expected}')

    def _cells(self, count: int) -> NDArray[np.int16]:
        return self._array(np.dtype('<i2'), 3 * count).reshape(count, 3)

    def _array(self, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        return np.frombuffer(self._read(dtype.itemsize * count), dtype=dtype)

    def _read(self, size: int) -> bytes:
        try:
            left = os.fstat(self._stream.fileno()).st_size - self._stream.tell()
            data = self._stream.read(min(size, left))  # sizes in a damaged file are arbitrary
        except OSError as error:
            raise self._error(f'cannot be read: {error}') from error
        if len(data) != size:
            raise self._error(f'truncated: {len(data)} bytes left, expected {size}')
        return data

    def _read_header(self) -> Header:
        prefix = self._read(PREFIX.size)
        magic, version, size = PREFIX.unpack(prefix)
        if magic != MAGIC:
            raise self._error(f'starts with {magic!r}, expected a map file, {MAGIC!r}')
        if version != VERSION:
            raise self._error(f'version {version}, expected {VERSION}')
        if size > MAX_HEADER_BYTES:
            raise self._error(f'header of {size} bytes, expected at most {MAX_HEADER_BYTES}')
        text = self._read(size)
        self._check_digest(hashlib.sha256(prefix + text).digest(), self._read(DIGEST_BYTES))
        try:
            return _parse_header(json.loads(text))
        except LprError as error:
            raise self._error(f'invalid header: {error}') from error
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise self._error(f'invalid header {text[:200]!r}: {error!r}') from error

    def _check_size_and_digest(self) -> None:
        size = os.fstat(self._stream.fileno()).st_size
        expected = self._batches_at + self.header.batch_bytes + DIGEST_BYTES
        if size != expected:
            raise self._error(f'truncated or damaged: {size} bytes, expected {expected}')
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
    sizes = {key: data[key] for key in ('dim', 'keyframes', 'points')}
    for key, value in sizes.items():
        if type(value) is not int or value < (key == 'dim'):
            raise MapError(f'{key} is {short_repr(value)}, expected a number of {key}')
    fingerprint, sessions = data['fingerprint'], data['sessions']
    if not (isinstance(fingerprint, str) and isinstance(sessions, list)):
        raise MapError(f'fingerprint and sessions are {short_repr((fingerprint, sessions))}')
    if len(sessions) > MAX_SESSIONS:
        raise MapError(f'{len(sessions)} sessions, expected at most {MAX_SESSIONS}')
    for name in sessions:
        check_session_name(name)
    if len(set(sessions)) != len(sessions):
        raise MapError(f'{len(sessions)} sessions, expected unique names')
    return Header(fingerprint=fingerprint, sessions=tuple(sessions), **sizes)
