"""sensor_msgs/PointCloud2 as NumPy arrays, without ROS: one view, no loop over points.

A message is anything with the attributes of PointCloud2: a ROS 2 message, one read from a bag of
either ROS version, or a stand-in. `is_dense` is not believed: points with a NaN or an infinite
coordinate are removed, by one mask for every field.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.clock import NS_PER_S
from lpr_ros.core.errors import CloudError

# sensor_msgs/PointField datatype -> NumPy kind and size; the byte order comes from the message.
FIELD_TYPES = {1: 'i1', 2: 'u1', 3: 'i2', 4: 'u2', 5: 'i4', 6: 'u4', 7: 'f4', 8: 'f8'}
FIELD_CODES = {name: code for code, name in FIELD_TYPES.items()}

# Beyond these the header is damaged: fifty times the largest spinning sensor, and a kilobyte for
# each of its dozen fields.
MAX_POINTS = 20_000_000
MAX_POINT_STEP = 12 * 1024

# What drivers call the same thing: Velodyne, Ouster, Hesai / Robosense, Livox.
INTENSITY_NAMES = ('intensity', 'reflectivity', 'i', 'intensities')
RING_NAMES = ('ring', 'line', 'channel', 'laser_id')
TIME_NAMES = ('time', 't', 'timestamp', 'time_stamp', 'offset_time')
EPOCH_S = 1e8  # a float time beyond this is absolute, not relative to the header


@dataclass(frozen=True, eq=False)
class Cloud:
    """The points of one message, in its frame; the arrays have one length."""

    points: NDArray[np.float32]  # (N, 3), metres, finite, N >= 1
    intensity: NDArray[np.float32] | None = None
    ring: NDArray[np.uint16] | None = None
    time_s: NDArray[np.float32] | None = None  # seconds after the header stamp


@dataclass(frozen=True)
class PackedCloud:
    """The layout and bytes of a PointCloud2 with one row: what `pack_cloud` makes."""

    fields: tuple[tuple[str, int, int], ...]  # name, offset, datatype; every count is 1
    point_step: int
    width: int
    data: bytes


PACKED_TYPE = np.dtype(
    {
        'names': ['x', 'y', 'z', 'intensity', 'ring', 'time'],
        'formats': ['<f4', '<f4', '<f4', '<f4', '<u2', '<f4'],
        'offsets': [0, 4, 8, 16, 20, 24],  # the padding of common drivers: PCL aligns to 16
        'itemsize': 32,
    }
)


def read_cloud(message: Any) -> Cloud:
    """Read the finite points of a PointCloud2 and, where there are, intensity, ring and time."""
    view = structured_view(message)
    points = _xyz(view)
    keep = np.isfinite(points[:, 0]) & np.isfinite(points[:, 1]) & np.isfinite(points[:, 2])
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
    """Return the points as a structured array (N,), a view of the message where rows allow it."""
    height, width, point_step = int(message.height), int(message.width), int(message.point_step)
    order = '>' if message.is_bigendian else '<'
    if not 0 < point_step <= MAX_POINT_STEP:
        raise CloudError(f'expected a point_step of 1 to {MAX_POINT_STEP}, got {point_step}')
    dtype = _point_type(message.fields, point_step, order)
    if height < 1 or width < 1 or height * width > MAX_POINTS:
        raise CloudError(
            f'expected 1 to {MAX_POINTS} points, got height {height} x width {width}'
        )
    # With one row the row step says nothing, and some drivers leave it 0.
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
) -> PackedCloud:
    """Lay points out as drivers do: x y z intensity ring time, little endian, 32 bytes each.

    A field that is not given is left out; the others stay where they are.
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
    return PackedCloud(tuple(fields), PACKED_TYPE.itemsize, len(points), packed.tobytes())


def _point_type(fields: Any, point_step: int, order: str) -> np.dtype[Any]:
    """Describe one point; xyz becomes one sub-array where the three lie side by side."""
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
    known.pop('xyz', None)  # a driver's own, which the sub-array of that name would meet
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
    """Gather the coordinates; a float64 beyond float32 becomes infinite, so it is masked."""
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
    """Return seconds after the stamp: integers are nanoseconds, floats seconds."""
    name = next((n for n in TIME_NAMES if n in (view.dtype.names or ())), None)
    if name is None:
        return None
    raw = view[name][keep]
    if raw.dtype.kind in 'iu':
        raw = raw * np.float64(1e-9)
    elif raw[0] > EPOCH_S:
        raw = raw.astype(np.float64) - stamp_ns(message.header) * 1e-9
    return np.ascontiguousarray(raw, dtype=np.float32)


def stamp_ns(header: Any) -> int:
    """Return the stamp of a std_msgs/Header, of ROS 2 or ROS 1, in integer nanoseconds."""
    stamp = header.stamp
    seconds = stamp.sec if hasattr(stamp, 'sec') else stamp.secs
    part = stamp.nanosec if hasattr(stamp, 'nanosec') else stamp.nsecs
    return int(seconds) * NS_PER_S + int(part)
