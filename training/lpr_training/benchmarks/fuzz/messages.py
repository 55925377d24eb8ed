"""Fuzz target: PointCloud2 messages with inconsistent fields."""

from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np

from lpr_ros.core.io.pointcloud2 import FIELD_TYPES, pack_cloud, read_cloud
from lpr_training.benchmarks.fuzz.mutations import BINARY, EDGE_INTEGERS, damage
from lpr_training.benchmarks.fuzz.target import Target

POINTS = 24
LAYOUT = ('height', 'width', 'point_step', 'row_step')
NAMES = ('x', 'y', 'z', 'xyz', 'intensity', 'ring', 'time', 't', 'timestamp', '', 'rgb')


def pointcloud2(folder: Path) -> Target:
    """Return the target of the PointCloud2 conversion."""
    return Target('pointcloud2', _make, _read)


def _valid(random: Random) -> SimpleNamespace:
    rng = np.random.default_rng(random.getrandbits(32))
    packed = pack_cloud(
        rng.normal(scale=20.0, size=(POINTS, 3)).astype(np.float32),
        rng.random(POINTS).astype(np.float32),
        (np.arange(POINTS) % 16).astype(np.uint16),
        np.linspace(0.0, 0.1, POINTS, dtype=np.float32),
    )
    height = random.choice((1, 1, 2, 4))
    width = packed.width // height
    stamp = SimpleNamespace(sec=1_700_000_000, nanosec=5)
    return SimpleNamespace(
        header=SimpleNamespace(stamp=stamp, frame_id='lidar'),
        height=height,
        width=width,
        fields=[
            SimpleNamespace(name=name, offset=offset, datatype=code, count=1)
            for name, offset, code in packed.fields
        ],
        is_bigendian=random.random() < 0.2,
        point_step=packed.point_step,
        row_step=packed.point_step * width,
        data=packed.data,
        is_dense=True,
    )


def _make(random: Random) -> SimpleNamespace:
    message = _valid(random)
    for _ in range(random.choice((1, 1, 2, 3))):
        random.choice(CHANGES)(message, random)
    return message


def _layout(message: SimpleNamespace, random: Random) -> None:
    value = random.choice((random.choice(EDGE_INTEGERS), random.randrange(100)))
    setattr(message, random.choice(LAYOUT), value)


def _overflow(message: SimpleNamespace, random: Random) -> None:
    """Choose sizes whose product overflows."""
    message.height, message.width = random.choice(((2**31, 2**31), (2**32 - 1, 2), (3, 2**62)))
    message.row_step = random.choice((0, 2**31, 2**32 - 1))


def _data(message: SimpleNamespace, random: Random) -> None:
    message.data = damage([bytes(message.data)], random, BINARY)
    if random.random() < 0.3:
        message.data = np.frombuffer(message.data, dtype=np.uint8)  # as rosbags returns it


def _field(message: SimpleNamespace, random: Random) -> None:
    if not message.fields:
        return
    field = random.choice(message.fields)
    changes: dict[str, Any] = {
        'name': random.choice(NAMES),
        'offset': random.choice((*EDGE_INTEGERS, *range(32))),
        'datatype': random.choice((*FIELD_TYPES, 0, 9, 255, -1)),
        'count': random.choice(EDGE_INTEGERS),
    }
    name = random.choice(list(changes))
    setattr(field, name, changes[name])


def _fields(message: SimpleNamespace, random: Random) -> None:
    """Drop, repeat or reorder fields."""
    kept = [f for f in message.fields if random.random() < 0.9]
    message.fields = random.sample(kept, len(kept)) + kept[: random.choice((0, 0, 1))]


def _stamp(message: SimpleNamespace, random: Random) -> None:
    message.header.stamp.sec = random.choice(EDGE_INTEGERS)


CHANGES = (_layout, _layout, _overflow, _data, _data, _field, _field, _fields, _stamp)


def _read(message: SimpleNamespace) -> None:
    cloud = read_cloud(message)
    count = len(cloud.points)
    assert count >= 1
    assert cloud.points.dtype == np.float32
    assert np.isfinite(cloud.points).all()
    for column in (cloud.intensity, cloud.ring, cloud.time_s):
        assert column is None or column.shape == (count,)
