"""Sparse convolutions against dense ones, and kernel maps against brute force."""

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
import torch
from torch import Tensor
import torch.nn.functional as F
from toy_clouds import random_cells, random_walk

from lpr_ros.core.errors import BackendError, CloudError
from lpr_ros.core.sparse import collate, kernel_map, load_backend, torch_layers
from lpr_ros.core.sparse.levels import Level, SparseTensor
from lpr_ros.core.sparse.torch_layers import Conv, ConvTranspose

SIDE = 16  # of the dense grid; the clouds of `random_cells` lie well inside it


@pytest.fixture(params=['merged', 'searched'], autouse=True, scope='module')
def map_builder(request):
    """Run every test with kernel maps from numba and from torch."""
    if request.param == 'merged':
        pytest.importorskip('numba')
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_map, 'kernel_map_numba', None)
        yield


def cells_of(level: Level, depth: int = 0) -> Tensor:
    """Unpack the (N, 4) cloud and coordinates of a level `depth` halvings above the voxels."""
    axis = (1 << kernel_map.AXIS_BITS) - 1
    bias = 1 << (kernel_map.AXIS_BITS - 1 - depth)
    fields = [level.keys >> shift * kernel_map.AXIS_BITS & axis for shift in (2, 1, 0)]
    return torch.stack([level.cloud_of_row, *(field - bias for field in fields)], dim=1)


def sparse_input(clouds: list[np.ndarray], channels: int) -> SparseTensor:
    level = Level.of(collate(clouds))
    return SparseTensor(torch.randn(len(level.keys), channels, dtype=torch.float64), level)


def to_grid(x: SparseTensor, depth: int = 0) -> Tensor:
    """Scatter features on a (clouds, C, side, side, side) grid."""
    cloud, *axes = cells_of(x.level, depth).unbind(1)
    side = SIDE >> depth
    grid = x.features.new_zeros(x.level.clouds, side, side, side, x.features.shape[1])
    index = (cloud, *(axis + side // 2 for axis in axes))
    return grid.index_put(index, x.features).permute(0, 4, 1, 2, 3)


def at_cells(grid: Tensor, level: Level, depth: int = 0) -> Tensor:
    cloud, *axes = cells_of(level, depth).unbind(1)
    side = SIDE >> depth
    return grid.permute(0, 2, 3, 4, 1)[(cloud, *(axis + side // 2 for axis in axes))]


def dense_kernel(kernel: Tensor, size: int) -> Tensor:
    """Convert (K^3, Cin, Cout), first axis fastest, to (Cout, Cin, x, y, z) of torch."""
    return kernel.view(size, size, size, *kernel.shape[-2:]).permute(4, 3, 2, 1, 0)


def dense_convolution(x: SparseTensor, kernel: Tensor, size: int) -> Tensor:
    grid = F.conv3d(to_grid(x), dense_kernel(kernel, size), padding=size // 2)
    return at_cells(grid, x.level)


def dense_strided(x: SparseTensor, kernel: Tensor, size: int) -> Tensor:
    grid = F.conv3d(to_grid(x), dense_kernel(kernel, size), stride=2)
    return at_cells(grid, x.level.coarser, 1)


def dense_transposed(x: SparseTensor, kernel: Tensor, size: int) -> Tensor:
    weight = dense_kernel(kernel, size).transpose(0, 1)
    return at_cells(F.conv_transpose3d(to_grid(x, 1), weight, stride=2), x.level.finer)


def batch_of(rng: np.random.Generator) -> list[np.ndarray]:
    return [random_cells(rng, count) for count in (200, 40, 1, 300)]


def layer_case(name: str, clouds: list[np.ndarray], channels: int = 3):
    """Return a layer, its input with gradient, and the same convolution on a dense grid."""
    x = sparse_input(clouds, channels)
    layer, dense, size = {
        'conv1': (Conv(channels, 4, 1), dense_convolution, 1),
        'conv3': (Conv(channels, 4, 3), dense_convolution, 3),
        'conv5': (Conv(channels, 4, 5), dense_convolution, 5),
        'conv7': (Conv(channels, 4, 7), dense_convolution, 7),
        'strided': (Conv(channels, 4, 2, stride=2), dense_strided, 2),
        'transposed': (ConvTranspose(channels, 4), dense_transposed, 2),
    }[name]
    if name == 'transposed':
        coarse = x.level.coarser
        x = SparseTensor(torch.randn(len(coarse.keys), channels, dtype=torch.float64), coarse)
    x.features.requires_grad_()
    return layer.double(), x, lambda: dense(x, layer.kernel, size)


LAYERS = ('conv1', 'conv3', 'conv5', 'conv7', 'strided', 'transposed')


@pytest.mark.parametrize('name', LAYERS)
@pytest.mark.parametrize('channels', [1, 3])
def test_layer_and_its_gradients_equal_the_dense_convolution(name, channels, rng):
    layer, x, dense = layer_case(name, batch_of(rng), channels)
    ours, expected = layer(x).features, dense()
    torch.testing.assert_close(ours, expected)
    upstream = torch.randn_like(expected)
    inputs = (x.features, layer.kernel)
    torch.testing.assert_close(
        torch.autograd.grad(ours, inputs, upstream),
        torch.autograd.grad(expected, inputs, upstream),
    )


@pytest.mark.parametrize('size', [3, 5])
def test_constant_input_of_one_channel_equals_the_dense_convolution(size, rng):
    """The input of the first layer is occupancy, with a code path of its own."""
    x = sparse_input(batch_of(rng), 1)
    layer = Conv(1, 6, size).double()
    ours, expected = layer(x).features, dense_convolution(x, layer.kernel, size)
    torch.testing.assert_close(ours, expected)
    upstream = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(ours, layer.kernel, upstream),
        torch.autograd.grad(expected, layer.kernel, upstream),
    )


@pytest.mark.parametrize('name', ['conv1', 'conv3', 'strided', 'transposed'])
def test_gradients_agree_with_finite_differences(name, rng):
    layer, x, _ = layer_case(name, [random_cells(rng, 8, 2), random_cells(rng, 4, 2)], 2)

    def convolve(features, kernel):
        return torch.func.functional_call(
            layer, {'kernel': kernel}, (SparseTensor(features, x.level),)
        ).features

    assert torch.autograd.gradcheck(convolve, (x.features, layer.kernel))


def convolve_cloud(layer: torch.nn.Module, clouds: list[np.ndarray]) -> dict[tuple, Tensor]:
    """Return output features by cell, with inputs that depend on the coordinates alone."""
    level = Level.of(collate(clouds))
    cells = cells_of(level)[:, 1:].double()
    features = torch.stack(
        [
            torch.sin(cells @ torch.tensor(w).double())
            for w in ([0.3, 1.1, -0.7], [2.0, -0.4, 0.9], [-1.3, 0.2, 0.5])
        ],
        1,
    )
    out = layer(SparseTensor(features, level))
    depth = 0 if out.level is level else 1
    rows = [tuple(row) for row in cells_of(out.level, depth).tolist()]
    return dict(zip(rows, out.features, strict=True))


SPATIAL_LAYERS = [Conv(3, 4, 3), Conv(3, 4, 5), Conv(3, 4, 2, stride=2)]


@pytest.mark.parametrize('layer', SPATIAL_LAYERS)
def test_clouds_of_a_batch_are_independent(layer, rng):
    clouds = batch_of(rng)
    together = convolve_cloud(layer.double(), clouds)
    for index, cloud in enumerate(clouds):
        for (_, *cell), alone in convolve_cloud(layer, [cloud]).items():
            torch.testing.assert_close(together[(index, *cell)], alone)


@pytest.mark.parametrize('layer', SPATIAL_LAYERS)
def test_order_and_duplicates_of_voxels_do_not_matter(layer, rng):
    cloud = random_cells(rng, 300)
    plain = convolve_cloud(layer.double(), [cloud])
    shuffled = convolve_cloud(layer, [rng.permutation(np.concatenate([cloud, cloud[:100]]))])
    assert plain.keys() == shuffled.keys()
    assert all(torch.equal(plain[cell], shuffled[cell]) for cell in plain)


@pytest.mark.parametrize('tile_rows', [1, 7, 64])
@pytest.mark.parametrize('channels', [1, 3])
def test_result_does_not_depend_on_the_tile_size(tile_rows, channels, rng, monkeypatch):
    clouds = [random_walk(rng, 200), random_walk(rng, 30)]
    layer = Conv(channels, 4, 3).double()
    x = sparse_input(clouds, channels)
    whole = layer(x).features
    gradient = torch.autograd.grad(whole.square().sum(), layer.kernel)[0]
    monkeypatch.setattr(kernel_map, 'TILE_ROWS', tile_rows)
    tiled = layer(SparseTensor(x.features, Level.of(collate(clouds)))).features
    torch.testing.assert_close(tiled, whole)
    torch.testing.assert_close(
        torch.autograd.grad(tiled.square().sum(), layer.kernel)[0], gradient
    )


def pair_table(layer: torch.nn.Module, level: Level) -> Tensor:
    """Read the whole kernel map out of one convolution.

    With one-hot features and weight k equal to (k + 1) I, entry (output, input) is k + 1 where
    that pair meets under weight k, a sum where several do, and 0 elsewhere.
    """
    rows = len(level.keys)
    identity = torch.eye(rows, dtype=torch.float64)
    weights = torch.arange(1, len(layer.kernel) + 1)[:, None, None] * identity
    with torch.no_grad():
        layer.kernel = torch.nn.Parameter(weights)
        return layer(SparseTensor(identity, level)).features


def brute_force_neighbors(cells: list[tuple[int, ...]], size: int) -> Tensor:
    radius = size // 2
    reach = range(-radius, radius + 1)
    offsets = [(x, y, z) for z in reach for y in reach for x in reach]  # first axis fastest
    rows = {cell: row for row, cell in enumerate(cells)}
    table = torch.zeros(len(cells), len(cells), dtype=torch.float64)
    for row, (cloud, x, y, z) in enumerate(cells):
        for k, (dx, dy, dz) in enumerate(offsets):
            neighbor = rows.get((cloud, x + dx, y + dy, z + dz))
            if neighbor is not None:
                table[row, neighbor] += k + 1
    return table


def brute_force_children(fine: list[tuple[int, ...]], coarse: list[tuple[int, ...]]) -> Tensor:
    table = torch.zeros(len(coarse), len(fine), dtype=torch.float64)
    for row, (cloud, x, y, z) in enumerate(fine):
        parent = coarse.index((cloud, x // 2, y // 2, z // 2))
        table[parent, row] += 1 + x % 2 + 2 * (y % 2) + 4 * (z % 2)
    return table


EDGE = st.sampled_from(
    [
        -kernel_map.LIMIT,
        -kernel_map.LIMIT + 1,
        -2,
        -1,
        0,
        1,
        kernel_map.LIMIT - 2,
        kernel_map.LIMIT - 1,
    ]
)
SMALL = st.integers(-3, 3)


def cloud_lists(axis: st.SearchStrategy[int]) -> st.SearchStrategy[list[np.ndarray]]:
    cell = st.tuples(axis, axis, axis)
    cloud = st.lists(cell, min_size=1, max_size=12).map(lambda rows: np.array(rows, np.int32))
    return st.lists(cloud, min_size=1, max_size=3)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(clouds=st.one_of(cloud_lists(SMALL), cloud_lists(EDGE)), size=st.sampled_from([3, 5]))
def test_kernel_map_is_the_brute_force_set_of_pairs(clouds, size):
    """In the middle and at the limits of the grid, where key overflow would add pairs."""
    level = Level.of(collate(clouds))
    cells = [tuple(row) for row in cells_of(level).tolist()]
    expected = {(i, *cell) for i, cloud in enumerate(clouds) for cell in cloud.tolist()}
    assert cells == sorted(expected)
    table = pair_table(Conv(1, 1, size), level)
    assert torch.equal(table, brute_force_neighbors(cells, size))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(clouds=st.one_of(cloud_lists(SMALL), cloud_lists(EDGE)))
def test_parent_map_floors_every_axis_by_two(clouds):
    level = Level.of(collate(clouds))
    for depth in range(5):
        coarse = level.coarser
        fine_cells = [tuple(row) for row in cells_of(level, depth).tolist()]
        coarse_cells = [tuple(row) for row in cells_of(coarse, depth + 1).tolist()]
        assert coarse_cells == sorted({(c, x // 2, y // 2, z // 2) for c, x, y, z in fine_cells})
        table = pair_table(Conv(1, 1, 2, stride=2), level)
        assert torch.equal(table, brute_force_children(fine_cells, coarse_cells))
        assert torch.equal(
            pair_table(Conv(1, 1, 3), coarse), brute_force_neighbors(coarse_cells, 3)
        )
        level = coarse


def test_two_layers_on_one_level_share_one_map(rng):
    x = sparse_input([random_cells(rng, 50)], 2)
    y = Conv(2, 2, 3).double()(x)
    assert y.level is x.level
    assert x.level.neighbors(3) is y.level.neighbors(3)
    assert x.level.neighbors(3) is not x.level.neighbors(5)
    down = Conv(2, 2, 2, stride=2).double()
    coarse = down(x)
    assert coarse.level is down(y).level
    assert ConvTranspose(2, 2).double()(coarse).level is x.level


def test_per_cloud_mean_and_scaling_equal_a_loop(rng):
    x = sparse_input(batch_of(rng), 3)
    parts = x.features.split(x.level.offsets.diff().tolist())
    torch.testing.assert_close(
        torch_layers.cloud_mean(x), torch.stack([part.mean(dim=0) for part in parts])
    )
    gates = torch.randn(len(parts), 3, dtype=torch.float64)
    torch.testing.assert_close(
        torch_layers.scale_clouds(x, gates).features,
        torch.cat([part * gate for part, gate in zip(parts, gates, strict=True)]),
    )


def test_largest_batch_keeps_its_clouds_separate():
    clouds = [
        np.array([[kernel_map.LIMIT - 1] * 3, [-kernel_map.LIMIT] * 3], np.int32)
    ] * kernel_map.MAX_CLOUDS
    level = Level.of(collate(clouds))
    assert torch.equal(level.offsets, 2 * torch.arange(kernel_map.MAX_CLOUDS + 1))
    with pytest.raises(CloudError, match=f'1 to {kernel_map.MAX_CLOUDS} clouds, got'):
        collate([*clouds, clouds[0]])


@pytest.mark.parametrize('axis', [0, 1, 2])
@pytest.mark.parametrize('value', [kernel_map.LIMIT, -kernel_map.LIMIT - 1, 2**31 - 1])
def test_voxel_outside_the_grid_is_reported(axis, value):
    bad = np.zeros((2, 3), np.int32)
    bad[1, axis] = value
    with pytest.raises(CloudError, match=rf'cloud 1: .*{value}.*\[-32768, 32768\)'):
        collate([np.zeros((1, 3), np.int32), bad])


@pytest.mark.parametrize('dtype', [np.int32, np.float32])
def test_empty_cloud_is_reported_with_its_index(dtype):
    with pytest.raises(CloudError, match='cloud 2: no voxels'):
        collate([np.zeros((1, 3), dtype), np.zeros((1, 3), dtype), np.zeros((0, 3), dtype)])


@pytest.mark.parametrize(
    ('clouds', 'message'),
    [
        ([], 'got 0'),
        ([np.zeros((4, 2), np.int32)], r'cloud 0: expected shape \(N, 3\), got \(4, 2\)'),
        ([np.zeros(3, np.int32)], r'cloud 0: expected shape'),
        ([np.full((1, 3), np.nan)], 'cloud 0: expected finite points'),
        ([np.zeros((1, 3)), np.zeros((1, 3), np.int32)], 'either integer voxels or float points'),
    ],
)
def test_bad_batch_is_refused(clouds, message):
    with pytest.raises(CloudError, match=message):
        collate(clouds)


@pytest.mark.parametrize(('size', 'stride'), [(2, 1), (3, 2), (4, 2), (4, 1)])
def test_unsupported_kernel_is_reported(size, stride):
    with pytest.raises(ValueError, match=f'kernel {size} with stride {stride}'):
        Conv(1, 1, size, stride)


def test_transposed_convolution_of_the_finest_level_is_refused(rng):
    with pytest.raises(ValueError, match='finest'):
        ConvTranspose(2, 2).double()(sparse_input([random_cells(rng, 5)], 2))


def test_unknown_backend_is_refused():
    with pytest.raises(BackendError, match='spconv'):
        load_backend('spconv')
    assert load_backend('auto') is load_backend('torch') is torch_layers


@pytest.mark.parametrize('size', [3, 5])
def test_occupancy_layer_is_the_convolution_of_ones(rng, size):
    batch = collate([random_cells(rng, 200), random_cells(rng, 50)])
    x = torch_layers.tensor(batch, torch.float64)
    plain = SparseTensor(x.features, x.level)
    layer = Conv(1, 3, size).double()
    torch.testing.assert_close(layer(x).features, layer(plain).features)
    weights = torch.randn(len(x.features), 3, dtype=torch.float64)
    gradients = [
        torch.autograd.grad((layer(tensor).features * weights).sum(), layer.kernel)[0]
        for tensor in (x, plain)
    ]
    torch.testing.assert_close(*gradients)
