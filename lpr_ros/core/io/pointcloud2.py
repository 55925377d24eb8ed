"""sensor_msgs/PointCloud2 to and from NumPy arrays, without ROS and without per-point loops.

A message is any object with the attributes of PointCloud2: a ROS 2 message or one decoded from a
ROS 1 or ROS 2 bag. `is_dense` is ignored because drivers set it wrongly: points with a non-finite
coordinate are always removed, with one mask for all fields.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import CloudError
from lpr_ros.core.geometry.points import finite_rows
from lpr_ros.core.timing import NS_PER_S, stamp_ns

# sensor_msgs/PointField datatype -> NumPy kind and size; the byte order comes from the message.
FIELD_TYPES = {1: 'i1', 2: 'u1', 3: 'i2', 4: 'u2', 5: 'i4', 6: 'u4', 7: 'f4', 8: 'f8'}
FIELD_CODES = {name: code for code, name in FIELD_TYPES.items()}
# Plausibility limits: fifty times the largest spinning sensor, a kilobyte for each of 12 fields.
MAX_POINTS = 20_000_000
MAX_POINT_STEP = 12 * 1024
# Field names of Velodyne, Ouster, Hesai / Robosense and Livox drivers.
INTENSITY_NAMES = ('intensity', 'reflectivity', 'i', 'intensities')
RING_NAMES = ('ring', 'line', 'channel', 'laser_id')
TIME_NAMES = ('time', 't', 'timestamp', 'time_stamp', 'offset_time')
EPOCH_S = 1e8  # larger times are absolute, not relative to the header stamp
PACKED_TYPE = np.dtype(
    {
        'names': ['x', 'y', 'z', 'intensity', 'ring', 'time'],
        'formats': ['<f4', '<f4', '<f4', '<f4', '<u2', '<f4'],
        'offsets': [0, 4, 8, 16, 20, 24],  # PCL aligns xyz to 16 bytes
        'itemsize': 32,
    }
)


@dataclass(frozen=True, eq=False)
class Cloud:
    """The points of one message in its frame; all arrays have the same length."""

    points: NDArray[np.float32]  # (N, 3), meters, finite, N >= 1
    intensity: NDArray[np.float32] | None = None
    ring: NDArray[np.uint16] | None = None
    time_s: NDArray[np.float32] | None = None  # seconds after the header stamp


@dataclass(frozen=True)
class PointCloud2Layout:
    """Fields and data of an unorganized (height 1) PointCloud2, made by `pack_cloud`."""

    fields: tuple[tuple[str, int, int], ...]  # name, offset, datatype; count is 1
    point_step: int
    width: int
    data: bytes


def read_cloud(message: Any) -> Cloud:
    """Return the finite points of a PointCloud2, with intensity, ring and time if present."""
    view = structured_view(message)
    points = _xyz(view)
    keep: Any = finite_rows(points)
    if not keep.any():
        raise CloudError(f'expected a finite point, got none among {len(points)}')
    if keep.all():
        keep = slice(None)
    return Cloud(
        points[keep],
        _optional(view, INTENSITY_NAMES, np.float32, keep),
        _optional(view, RING_NAMES, np.uint16, keep),
        _time_s(view, message, keep),
    )


def structured_view(message: Any) -> NDArray[Any]:
    """Return the points as a structured array (N,), a view of the data if rows are contiguous."""
    height, width, point_step = int(message.height), int(message.width), int(message.point_step)
    order = '>' if message.is_bigendian else '<'
    if not 0 < point_step <= MAX_POINT_STEP:
        raise CloudError(f'expected a point_step of 1 to {MAX_POINT_STEP}, got {point_step}')
    dtype = _point_type(message.fields, point_step, order)
    if height < 1 or width < 1 or height * width > MAX_POINTS:
        raise CloudError(f'expected 1 to {MAX_POINTS} points, got height {height} x width {width}')
    # Irrelevant with a single row, and some drivers leave it 0.
    row_step = int(message.row_step) if height > 1 else width * point_step
    if row_step < width * point_step:
        raise CloudError(
            f'expected row_step >= width {width} x point_step {point_step} = '
            f'{width * point_step}, got {row_step}'
        )
    data = np.frombuffer(message.data, dtype=np.uint8)
    if len(data) < height * row_step:
        raise CloudError(
            f'expected {height * row_step} bytes of data (height {height} x row_step '
            f'{row_step}), got {len(data)}'
        )
    rows: NDArray[Any] = np.ndarray(
        (height, width), dtype=dtype, buffer=data, strides=(row_step, point_step)
    )
    return rows.reshape(-1)


def pack_cloud(
    points: NDArray[np.float32],
    intensity: NDArray[np.float32] | None = None,
    ring: NDArray[np.uint16] | None = None,
    time_s: NDArray[np.float32] | None = None,
) -> PointCloud2Layout:
    """Pack points as common drivers do: x y z intensity ring time, little endian, 32 bytes.

    Fields that are None are omitted; the offsets of the others do not change.
    """
    packed = np.zeros(len(points), dtype=PACKED_TYPE)
    columns = {
        'x': points[:, 0],
        'y': points[:, 1],
        'z': points[:, 2],
        'intensity': intensity,
        'ring': ring,
        'time': time_s,
    }
    fields: list[tuple[str, int, int]] = []
    for name, values in columns.items():
        if values is not None and PACKED_TYPE.fields is not None:
            packed[name] = values
            kind, offset = PACKED_TYPE.fields[name][:2]
            fields.append((name, offset, FIELD_CODES[kind.str[1:]]))
    return PointCloud2Layout(tuple(fields), PACKED_TYPE.itemsize, len(points), packed.tobytes())


def _point_type(fields: Any, point_step: int, order: str) -> np.dtype[Any]:
    """Return the dtype of one point; adjacent x, y and z become one sub-array `xyz`."""
    known: dict[str, tuple[str, int]] = {}
    for field in fields:
        if int(field.datatype) not in FIELD_TYPES:
            raise CloudError(f'field {field.name!r}: unknown datatype {field.datatype}')
        kind = order + FIELD_TYPES[int(field.datatype)]
        end = int(field.offset) + np.dtype(kind).itemsize
        if int(field.offset) < 0 or end > point_step:
            raise CloudError(
                f'field {field.name!r} ends at byte {end}, beyond point_step {point_step}'
            )
        known.setdefault(str(field.name), (kind, int(field.offset)))
    missing = [name for name in 'xyz' if name not in known]
    if missing:
        raise CloudError(f'expected fields x, y and z, got {sorted(known)}: no {missing[0]!r}')
    for name in 'xyz':
        if known[name][0][1:] not in ('f4', 'f8'):
            raise CloudError(f'field {name!r}: expected float32 or float64, got {known[name][0]}')
    known.pop('xyz', None)  # a driver's own field would clash with the sub-array
    kind, start = known['x']
    size = np.dtype(kind).itemsize
    if [known[n] for n in 'yz'] == [(kind, start + size), (kind, start + 2 * size)]:
        for name in 'xyz':
            del known[name]
        known['xyz'] = (f'(3,){kind}', start)
    return np.dtype(
        {
            'names': list(known),
            'formats': [kind for kind, _ in known.values()],
            'offsets': [offset for _, offset in known.values()],
            'itemsize': point_step,
        }
    )


def _xyz(view: NDArray[Any]) -> NDArray[np.float32]:
    """Return (N, 3) float32 coordinates; float64 values beyond float32 become infinite."""
    with np.errstate(over='ignore', invalid='ignore'):
        if 'xyz' in (view.dtype.names or ()):
            return np.asarray(view['xyz'], dtype=np.float32, order='C')
        points = np.empty((len(view), 3), dtype=np.float32)
        for column, name in enumerate('xyz'):
            points[:, column] = view[name]
    return points


def _optional(view: NDArray[Any], names: tuple[str, ...], dtype: Any, keep: Any) -> Any:
    for name in names:
        if name in (view.dtype.names or ()):
            with np.errstate(over='ignore', invalid='ignore'):
                return np.ascontiguousarray(view[name][keep].astype(dtype))
    return None


def _time_s(view: NDArray[Any], message: Any, keep: Any) -> NDArray[np.float32] | None:
    """Return seconds after the header stamp.

    Integer fields are in ns (Ouster `t`, Livox `offset_time`), float fields in s (Velodyne `time`,
    Hesai `timestamp`) or, if they are too large for that, in ns since 1970 (Livox `timestamp`).
    Times since 1970 become relative to the stamp; others are relative to it already.
    """
    name = next((n for n in TIME_NAMES if n in (view.dtype.names or ())), None)
    if name is None:
        return None
    raw = view[name][keep]
    is_ns = raw.dtype.kind in 'iu' or raw[0] > EPOCH_S * NS_PER_S
    if raw[0] > (EPOCH_S * NS_PER_S if is_ns else EPOCH_S):
        # From the first point on, before the conversion: float64 holds only 256 ns of 1970.
        since_first = (raw.astype(np.int64) - np.int64(raw[0])) if is_ns else raw - raw[0]
        first_ns = int(raw[0]) if is_ns else round(float(raw[0]) * NS_PER_S)
        offset_s = (first_ns - stamp_ns(message.header)) / NS_PER_S
        raw = since_first / (NS_PER_S if is_ns else 1.0) + offset_s
    elif is_ns:
        raw = raw / NS_PER_S
    return np.ascontiguousarray(raw, dtype=np.float32)
