"""Small recordings with known contents for tests of readers and writers."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from rosbags.rosbag2 import StoragePlugin, Writer

from lpr_ros.core.geometry.se3 import pose_from_euler, quaternion_from_pose
from lpr_training.datasets.bag_writer import Messages
from lpr_training.datasets.base import PlaceSample, RecordedScan

SHARED_DATA = Path(__file__).resolve().parents[2] / 'shared' / 'data'
START_NS = 1_700_000_000_123_456_000
FIELD_CODES = {'i1': 1, 'u1': 2, 'i2': 3, 'u2': 4, 'i4': 5, 'u4': 6, 'f4': 7, 'f8': 8}


def make_pose(index: int) -> np.ndarray:
    """Return a pose on a curve, with 1 m and 5 degrees between indices."""
    return pose_from_euler([index, 0.1 * index**2, 0.2], [0.01, 0.02, np.deg2rad(5 * index)])


def make_scans(count: int = 5, points: int = 200, seed: int = 0) -> Iterator[RecordedScan]:
    """Yield scans 0.1 s and about 1 m apart; odometry and truth differ by a constant shift."""
    rng = np.random.default_rng(seed)
    shift = np.eye(4)
    shift[:3, 3] = 100.0, -50.0, 3.0
    for i in range(count):
        yield RecordedScan(
            rng.normal(scale=10.0, size=(points, 3)).astype(np.float32),
            rng.random(points).astype(np.float32),
            (np.arange(points) % 16).astype(np.uint16),
            np.linspace(0.0, 0.1, points, dtype=np.float32),
            START_NS + i * 100_000_000,
            make_pose(i),
            shift @ make_pose(i),
        )


def make_places(count: int = 4, points: int = 4096, seed: int = 0) -> Iterator[PlaceSample]:
    """Yield places with points in [-1, 1] and stamps in whole microseconds."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        cloud = rng.uniform(-1.0, 1.0, size=(points, 3)).astype(np.float32)
        T = np.eye(4)
        T[:3, 3] = 620000.25 + i, 5735000.5 - i, 0.0
        yield PlaceSample(cloud, T, START_NS + i * 1_000_000_000, 'run', str(i))


def assert_same_places(dataset, places, *, atol=1e-9, rotation=True):
    """Assert that a dataset has these places: identical points and stamps, equal poses."""
    places = list(places)
    assert len(dataset) == len(places)
    for i, expected in enumerate(places):
        got = dataset[i]
        np.testing.assert_array_equal(got.points, expected.points)
        assert got.points.dtype == np.float32
        assert got.stamp_ns == expected.stamp_ns
        rows = slice(None) if rotation else slice(3, 4)
        np.testing.assert_allclose(
            got.T_world_sensor[:, rows], expected.T_world_sensor[:, rows], atol=atol, rtol=0
        )


def cloud_message(columns, *, order='<', step=None, height=1, row_padding=0, stamp=(5, 250)):
    """Return a mock PointCloud2 from (name, offset, type, values) rows; `step` pads points."""
    ends = [offset + np.dtype(kind).itemsize for _, offset, kind, _ in columns]
    step = step or max(ends)
    count = len(columns[0][3])
    width = count // height
    dtype = np.dtype(
        {
            'names': [c[0] for c in columns],
            'formats': [order + c[2] for c in columns],
            'offsets': [c[1] for c in columns],
            'itemsize': step,
        }
    )
    table = np.frombuffer(b'\xa5' * (count * step), dtype=dtype).copy()
    for name, _, _, values in columns:
        table[name] = values
    row_bytes = width * step
    rows = np.full((height, row_bytes + row_padding), 0x5A, dtype=np.uint8)
    rows[:, :row_bytes] = table.view(np.uint8).reshape(height, row_bytes)
    return SimpleNamespace(
        header=SimpleNamespace(
            stamp=SimpleNamespace(sec=stamp[0], nanosec=stamp[1]), frame_id='lidar'
        ),
        height=height,
        width=width,
        fields=[
            SimpleNamespace(name=n, offset=o, datatype=FIELD_CODES[k], count=1)
            for n, o, k, _ in columns
        ],
        is_bigendian=order == '>',
        point_step=step,
        row_step=row_bytes + row_padding,
        data=rows.tobytes(),
        is_dense=True,
    )


MESSAGES = Messages()


def write_messages(path, rows):
    """Write a bag of (topic, time, message) rows; a message may also be (type, bytes)."""
    with Writer(path, version=8, storage_plugin=StoragePlugin.MCAP) as writer:
        connections = {}
        for topic, stamp, message in rows:
            kind, data = message if isinstance(message, tuple) else (message.__msgtype__, None)
            if topic not in connections:
                connections[topic] = writer.add_connection(topic, kind, typestore=MESSAGES.store)
            data = data if data is not None else MESSAGES.serialize(message)
            writer.write(connections[topic], stamp, data)
    return path


def static_transforms(*links):
    """Return a TFMessage from (parent, child, T_parent_child) rows."""
    kinds, g = MESSAGES.store.types, 'geometry_msgs/msg/'
    return kinds['tf2_msgs/msg/TFMessage'](
        [
            kinds[g + 'TransformStamped'](
                MESSAGES._header(0, parent),
                child,
                kinds[g + 'Transform'](
                    kinds[g + 'Vector3'](*T[:3, 3]),
                    kinds[g + 'Quaternion'](*quaternion_from_pose(T)),
                ),
            )
            for parent, child, T in links
        ]
    )


def bad_rows():
    """Return five clouds; the second lacks z, the fourth is truncated."""
    good = [MESSAGES.cloud(scan) for scan in make_scans(5)]
    good[1].fields = [f for f in good[1].fields if f.name != 'z']
    raw = bytes(MESSAGES.serialize(good[3]))[:200]
    rows = [('/points', s.stamp_ns, m) for s, m in zip(make_scans(5), good, strict=True)]
    rows[3] = ('/points', rows[3][1], ('sensor_msgs/msg/PointCloud2', raw))
    return rows
