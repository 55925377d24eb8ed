import time

import numpy as np
import pytest
from toy_recordings import cloud_message

from lpr_ros.core.errors import CloudError
from lpr_ros.core.io.pointcloud2 import pack_cloud, read_cloud, structured_view

N = 60
RNG = np.random.default_rng(3)
XYZ = RNG.normal(scale=20.0, size=(N, 3)).astype(np.float32)
INTENSITY = RNG.random(N).astype(np.float32)
RING = (np.arange(N) % 32).astype(np.uint16)
TIME_S = np.linspace(0.0, 0.1, N, dtype=np.float32)

LAYOUTS = {
    'tight': [('x', 0), ('y', 4), ('z', 8), ('intensity', 12), ('ring', 16), ('time', 18)],
    'pcl padding': [('x', 0), ('y', 4), ('z', 8), ('intensity', 16), ('ring', 20), ('time', 24)],
    'reversed': [('time', 0), ('ring', 4), ('intensity', 8), ('z', 16), ('y', 24), ('x', 32)],
    'odd offsets': [('ring', 1), ('y', 3), ('x', 11), ('z', 19), ('time', 27), ('intensity', 35)],
}
VALUES = {
    'x': XYZ[:, 0], 'y': XYZ[:, 1], 'z': XYZ[:, 2],
    'intensity': INTENSITY, 'ring': RING, 'time': TIME_S,
}  # fmt: skip


def columns(layout='pcl padding', xyz='f4'):
    kinds = {'x': xyz, 'y': xyz, 'z': xyz, 'intensity': 'f4', 'ring': 'u2', 'time': 'f4'}
    return [(name, offset, kinds[name], VALUES[name]) for name, offset in LAYOUTS[layout]]


@pytest.mark.parametrize('order', ['<', '>'])
@pytest.mark.parametrize('height', [1, 4])
@pytest.mark.parametrize('padding', [0, 7])
@pytest.mark.parametrize('layout', LAYOUTS)
def test_read_cloud_supports_any_layout(layout, order, height, padding):
    message = cloud_message(
        columns(layout), order=order, step=48, height=height, row_padding=padding
    )
    cloud = read_cloud(message)
    np.testing.assert_array_equal(cloud.points, XYZ)
    np.testing.assert_array_equal(cloud.intensity, INTENSITY)
    np.testing.assert_array_equal(cloud.ring, RING)
    np.testing.assert_array_equal(cloud.time_s, TIME_S)
    assert (cloud.points.dtype, cloud.ring.dtype) == (np.float32, np.uint16)
    assert cloud.points.dtype.isnative


@pytest.mark.parametrize('order', ['<', '>'])
@pytest.mark.parametrize('layout', ['reversed', 'odd offsets'])
def test_read_cloud_supports_float64_coordinates(layout, order):
    cloud = read_cloud(cloud_message(columns(layout, xyz='f8'), order=order, step=64))
    np.testing.assert_array_equal(cloud.points, XYZ)


@pytest.mark.parametrize('bad', [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize('axis', ['x', 'y', 'z'])
def test_nonfinite_points_are_removed_from_every_field_despite_is_dense(bad, axis):
    spoiled = VALUES[axis].copy()
    spoiled[[0, 7, N - 1]] = bad
    message = cloud_message(
        [(n, o, k, spoiled if n == axis else v) for n, o, k, v in columns()], step=32
    )
    assert message.is_dense
    keep = np.setdiff1d(np.arange(N), [0, 7, N - 1])
    cloud = read_cloud(message)
    np.testing.assert_array_equal(cloud.points, XYZ[keep])
    np.testing.assert_array_equal(cloud.intensity, INTENSITY[keep])
    np.testing.assert_array_equal(cloud.ring, RING[keep])
    np.testing.assert_array_equal(cloud.time_s, TIME_S[keep])


def test_float64_beyond_float32_is_removed():
    x = XYZ[:, 0].astype(np.float64)
    x[3] = 1e300
    fields = [('x', 0, 'f8', x), ('y', 8, 'f8', XYZ[:, 1]), ('z', 16, 'f8', XYZ[:, 2])]
    assert len(read_cloud(cloud_message(fields)).points) == N - 1


def test_optional_fields_are_found_by_the_names_of_common_drivers():
    xyz = [(n, o, 'f4', VALUES[n]) for n, o in (('x', 0), ('y', 4), ('z', 8))]
    bare = read_cloud(cloud_message(xyz))
    assert (bare.intensity, bare.ring, bare.time_s) == (None, None, None)
    ouster = [*xyz, ('t', 12, 'u4', (TIME_S * 1e9).astype(np.uint32)), ('ring', 16, 'u1', RING)]
    cloud = read_cloud(cloud_message(ouster))
    np.testing.assert_allclose(cloud.time_s, TIME_S, atol=1e-8)
    np.testing.assert_array_equal(cloud.ring, RING)
    hesai = [*xyz, ('timestamp', 12, 'f8', 1_700_000_000.0 + TIME_S.astype(np.float64))]
    cloud = read_cloud(cloud_message(hesai, stamp=(1_700_000_000, 0)))
    np.testing.assert_allclose(cloud.time_s, TIME_S, atol=1e-6)
    since_1970_ns = 1_700_000_000_000_000_000 + (TIME_S * 1e9).astype(np.int64)
    livox = [*xyz, ('timestamp', 16, 'f8', since_1970_ns)]
    cloud = read_cloud(cloud_message(livox, stamp=(1_700_000_000, 0)))
    np.testing.assert_allclose(cloud.time_s, TIME_S, atol=1e-6)


def test_packed_points_round_trip():
    packed = pack_cloud(XYZ, INTENSITY, RING, TIME_S)
    message = cloud_message(columns(), step=32)
    message.fields = [
        type(message.fields[0])(name=n, offset=o, datatype=d, count=1) for n, o, d in packed.fields
    ]
    message.data, message.width, message.point_step = packed.data, packed.width, packed.point_step
    cloud = read_cloud(message)
    np.testing.assert_array_equal(cloud.points, XYZ)
    np.testing.assert_array_equal(cloud.ring, RING)
    np.testing.assert_array_equal(cloud.time_s, TIME_S)


@pytest.mark.parametrize('kind', [bytes, bytearray, memoryview, 'array', 'numpy'])
def test_data_may_be_any_buffer(kind):
    import array

    message = cloud_message(columns(), step=32)
    raw = message.data
    convert = {'array': lambda b: array.array('B', b), 'numpy': lambda b: np.frombuffer(b, 'u1')}
    message.data = convert.get(kind, kind)(raw)
    np.testing.assert_array_equal(read_cloud(message).points, XYZ)


@pytest.mark.parametrize(
    ('change', 'expected'),
    [
        ({'width': N + 1}, f'expected {(N + 1) * 32} bytes .* got {N * 32}'),
        ({'width': 2**31, 'height': 2**31}, 'expected 1 to 20000000 points, got height'),
        ({'height': 4, 'width': 15, 'row_step': 3}, r'expected row_step >= .* = 480, got 3'),
        ({'point_step': 8}, "field 'z' ends at byte 12, beyond point_step 8"),
        ({'point_step': 0}, 'expected a point_step of 1 to 12288, got 0'),
        ({'data': b''}, f'expected {N * 32} bytes .* got 0'),
        ({'width': 0, 'data': b''}, 'points, got height 1 x width 0'),
    ],
)
def test_implausible_sizes_are_reported_with_both_numbers(change, expected):
    message = cloud_message(columns(), step=32)
    for name, value in change.items():
        setattr(message, name, value)
    with pytest.raises(CloudError, match=expected):
        read_cloud(message)


def test_missing_or_integer_coordinates_are_refused():
    with pytest.raises(CloudError, match=r"expected fields x, y and z, got .*: no 'z'"):
        read_cloud(cloud_message([c for c in columns() if c[0] != 'z'], step=32))
    integer = [(n, o, 'i4' if n == 'y' else k, v) for n, o, k, v in columns()]
    with pytest.raises(CloudError, match="field 'y': expected float32 or float64"):
        read_cloud(cloud_message(integer, step=32))
    message = cloud_message(columns(), step=32)
    message.fields[3].datatype = 77
    with pytest.raises(CloudError, match="'intensity': unknown datatype 77"):
        read_cloud(message)


def test_cloud_without_finite_points_is_refused():
    nothing = [(n, o, k, np.full(N, np.nan) if n == 'x' else v) for n, o, k, v in columns()]
    with pytest.raises(CloudError, match=f'got none among {N}'):
        read_cloud(cloud_message(nothing, step=32))


def test_row_step_is_ignored_for_a_single_row():
    message = cloud_message(columns(), step=32)
    message.row_step = 0
    np.testing.assert_array_equal(read_cloud(message).points, XYZ)


def test_structured_view_does_not_copy():
    message = cloud_message(columns(), step=32)
    message.data = np.frombuffer(message.data, dtype=np.uint8)
    assert np.shares_memory(structured_view(message), message.data)


def test_read_cloud_reads_a_ros_message():
    messages = pytest.importorskip('sensor_msgs.msg')
    message = messages.PointCloud2(height=1, width=N, point_step=32, row_step=32 * N)
    packed = pack_cloud(XYZ, INTENSITY, RING, TIME_S)
    message.fields = [
        messages.PointField(name=n, offset=o, datatype=d, count=1) for n, o, d in packed.fields
    ]
    message.data = packed.data
    np.testing.assert_array_equal(read_cloud(message).points, XYZ)


def test_full_scan_is_read_within_milliseconds():
    many = 130_000
    cloud = [(n, o, k, np.resize(v, many)) for n, o, k, v in columns()]
    message = cloud_message(cloud, step=32)
    best = np.inf
    for _ in range(20):
        start = time.perf_counter()
        read_cloud(message)
        best = min(best, time.perf_counter() - start)
    assert best < 0.004  # about 1 ms, with a margin for a busy machine
