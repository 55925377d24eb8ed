"""Small recordings with known contents, for the tests of readers and writers."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from lpr_ros.core.geometry import pose_from_euler
from lpr_training.datasets.records import Place, RecordedScan

SHARED_DATA = Path(__file__).resolve().parents[2] / 'shared' / 'data'
START_NS = 1_700_000_000_123_456_000
FIELD_CODES = {'i1': 1, 'u1': 2, 'i2': 3, 'u2': 4, 'i4': 5, 'u4': 6, 'f4': 7, 'f8': 8}


def make_pose(index: int) -> np.ndarray:
    """A pose on a gentle curve, 1 m on and 5 degrees further for each index."""
    return pose_from_euler([index, 0.1 * index**2, 0.2], [0.01, 0.02, np.deg2rad(5 * index)])


def make_scans(count: int = 5, points: int = 200, seed: int = 0) -> Iterator[RecordedScan]:
    """Scans 0.1 s and about 1 m apart; odometry and truth differ by a constant shift."""
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


def make_places(count: int = 4, points: int = 4096, seed: int = 0) -> Iterator[Place]:
    """Places with points in [-1, 1], at whole microseconds."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        cloud = rng.uniform(-1.0, 1.0, size=(points, 3)).astype(np.float32)
        T = np.eye(4)
        T[:3, 3] = 620000.25 + i, 5735000.5 - i, 0.0
        yield Place(cloud, T, START_NS + i * 1_000_000_000, 'run', str(i))


def assert_same_places(dataset, places, *, atol=1e-9, rotation=True):
    """What was written is what is read: points to the bit, poses, stamps."""
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
    """A stand-in for PointCloud2 from (name, offset, type, values) rows; `step` pads points."""
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
