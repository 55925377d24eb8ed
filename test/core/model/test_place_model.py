"""Backbones and the whole model: published sizes, names and initialization; independence."""

import math

import numpy as np
import pytest
import torch
from toy_clouds import random_walk, tiny_config

from lpr_ros.core.model.config import PRESETS, BackboneConfig, InputConfig, ModelConfig
from lpr_ros.core.model.minkfpn import MinkFPN
from lpr_ros.core.model.place_model import PlaceModel
from lpr_ros.core.model.pointnet import PointNet
from lpr_ros.core.model.pooling import POOLINGS
from lpr_ros.core.sparse import collate

NORM = ('weight', 'bias', 'running_mean', 'running_var', 'num_batches_tracked')


def count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.fixture(scope='module')
def minkloc3dv2() -> PlaceModel:
    torch.manual_seed(1)
    return PlaceModel(PRESETS['minkloc3dv2']())


@pytest.mark.parametrize(
    ('preset', 'backbone', 'head'),
    [
        ('minkloc3dv2', 2_663_566, 1),
        ('minkloc3d', 1_055_712, 1),
        ('wild_places', 4_603_221, 140_832),
    ],
)
def test_presets_have_the_published_number_of_parameters(preset, backbone, head):
    with torch.device('meta'):
        model = PlaceModel(PRESETS[preset]())
    assert count(model.backbone) == backbone
    assert count(model.pooling) == head


def test_parts_of_minkloc3dv2_have_the_published_number_of_parameters(minkloc3dv2):
    b = minkloc3dv2.backbone
    assert count(b.conv0) + count(b.bn0) == 8_128
    levels = [sum(count(part[i]) for part in (b.convs, b.bn, b.blocks)) for i in range(4)]
    assert levels == [254_339, 705_413, 471_683, 118_083]
    assert (count(b.conv1x1), count(b.tconvs)) == (57_344, 1_048_576)


def test_state_dict_has_the_published_names_and_shapes(minkloc3dv2):
    norms = ['bn0', *(f'bn.{i}' for i in range(4))]
    norms += [f'blocks.{i}.0.norm{j}' for i in range(4) for j in (1, 2)]
    norms += [f'blocks.{i}.0.downsample.1' for i in (1, 2, 3)]
    kernels = ['conv0', *(f'convs.{i}' for i in range(4)), 'tconvs.0', 'tconvs.1']
    kernels += [f'blocks.{i}.0.conv{j}' for i in range(4) for j in (1, 2)]
    kernels += [f'blocks.{i}.0.downsample.0' for i in (1, 2, 3)]
    kernels += [f'conv1x1.{i}' for i in range(3)]
    names = {f'backbone.{norm}.bn.{field}' for norm in norms for field in NORM}
    names |= {f'backbone.{kernel}.kernel' for kernel in kernels}
    names |= {f'backbone.blocks.{i}.0.eca.conv.weight' for i in range(4)}
    state = minkloc3dv2.state_dict()
    assert state.keys() == names | {'pooling.p'}
    shapes = {
        'conv0.kernel': (125, 1, 64),
        'convs.2.kernel': (8, 128, 128),
        'blocks.1.0.conv1.kernel': (27, 64, 128),
        'blocks.3.0.downsample.0.kernel': (64, 32),
        'tconvs.0.kernel': (8, 256, 256),
        'conv1x1.0.kernel': (32, 256),
        'conv1x1.1.kernel': (64, 256),
        'conv1x1.2.kernel': (128, 256),
        'blocks.0.0.eca.conv.weight': (1, 1, 3),
        'blocks.1.0.eca.conv.weight': (1, 1, 5),
        'blocks.3.0.eca.conv.weight': (1, 1, 3),
    }
    assert {name: tuple(state[f'backbone.{name}'].shape) for name in shapes} == shapes


@pytest.mark.parametrize(
    'name',
    [
        'conv0',
        'convs.2',
        'blocks.1.0.conv1',
        'blocks.3.0.conv2',
        'blocks.1.0.downsample.0',
        'conv1x1.0',
        'conv1x1.2',
    ],
)
def test_convolutions_start_normal_with_the_published_fan(name, minkloc3dv2):
    kernel = minkloc3dv2.backbone.get_submodule(name).kernel.detach()
    fan = len(kernel) * kernel.shape[2] if kernel.ndim == 3 else len(kernel)
    std = math.sqrt(2.0 / fan)
    error = 5.0 / math.sqrt(2.0 * kernel.numel())  # five standard errors of a deviation
    assert float(kernel.std()) == pytest.approx(std, rel=error)
    assert float(kernel.mean()) == pytest.approx(0.0, abs=5.0 * std / math.sqrt(kernel.numel()))
    kurtosis = float((kernel / kernel.std()).pow(4).mean())
    assert kurtosis == pytest.approx(3.0, abs=5.0 * math.sqrt(24.0 / kernel.numel()))


def test_transposed_convolutions_start_uniform_and_norms_as_identity(minkloc3dv2):
    bound = 1.0 / math.sqrt(256 * 8)
    for layer in minkloc3dv2.backbone.tconvs:
        assert bound * 0.999 < float(layer.kernel.detach().abs().max()) <= bound
        assert float(layer.kernel.detach().std()) == pytest.approx(bound / 3**0.5, rel=0.01)
    for module in minkloc3dv2.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            assert (module.weight == 1.0).all()
            assert (module.bias == 0.0).all()
            assert (module.eps, module.momentum) == (1e-5, 0.1)
    assert minkloc3dv2.pooling.p.tolist() == [3.0]


@pytest.mark.parametrize('kind', sorted(POOLINGS))
def test_descriptor_is_independent_of_other_clouds_and_voxel_order(kind, clouds, rng):
    model = PlaceModel(tiny_config(kind)).eval()
    with torch.no_grad():
        together = model(collate(clouds))
        alone = torch.cat([model(collate([rng.permutation(cloud)])) for cloud in clouds])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
    assert together.shape == (3, model.out_dim)
    assert (torch.pdist(together) > 1e-3).all()


@pytest.mark.parametrize('kind', sorted(POOLINGS))
def test_every_parameter_gets_a_finite_gradient(kind, clouds):
    model = PlaceModel(tiny_config(kind)).train()
    model(collate(clouds)).pow(3).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_descriptor_is_invariant_to_shifts_by_the_coarsest_cell(tiny_model, clouds):
    """Convolutions are translation equivariant, up to the grid of the coarsest level."""
    with torch.no_grad():
        here = tiny_model(collate(clouds))
        moved = tiny_model(collate([cloud + np.int32([4, -8, 400]) for cloud in clouds]))
    torch.testing.assert_close(moved, here, rtol=1e-4, atol=1e-5)


def test_output_resolution_depends_on_levels_and_upsampling(rng):
    """Five levels with two upsampled have output stride 8, four with two have 4."""
    cloud = random_walk(rng, 600)
    for planes, top_down, stride in (((4,) * 5, 2, 8), ((4,) * 4, 2, 4), ((4,) * 3, 0, 8)):
        net = MinkFPN(planes, (1,) * len(planes), top_down, 3, 6, True).eval()
        with torch.no_grad():
            features, counts = net(collate([cloud, cloud[:50]]))
        expected = [len(np.unique(part // stride, axis=0)) for part in (cloud, cloud[:50])]
        assert counts == expected
        assert features.shape == (sum(expected), 6)


def test_levels_have_the_configured_number_of_blocks(clouds):
    config = BackboneConfig(planes=(4, 8), layers=(1, 3), num_top_down=1, feature_size=6)
    model = PlaceModel(ModelConfig(backbone=config)).eval()
    assert [len(block) for block in model.backbone.blocks] == [1, 3]
    with torch.no_grad():
        assert model(collate(clouds)).isfinite().all()


@pytest.fixture
def pointnet() -> PlaceModel:
    config = ModelConfig(
        input=InputConfig(quantizer='points'),
        backbone=BackboneConfig(kind='pointnet'),
        pooling=tiny_config('netvlad').pooling,
    )
    model = PlaceModel(config).eval()
    for transform in (model.backbone.align_points, model.backbone.align_features):
        torch.nn.init.normal_(transform.cloud[1].weight, std=0.01)
    return model


def test_pointnet_is_independent_of_other_clouds_and_point_order(pointnet, rng):
    points = [rng.normal(size=(n, 3)).astype(np.float32) for n in (60, 1, 25)]
    with torch.no_grad():
        together = pointnet(collate(points))
        alone = torch.cat([pointnet(collate([rng.permutation(cloud)])) for cloud in points])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


def test_pointnet_starts_with_identity_alignments(rng):
    net = PointNet().eval()
    points = torch.from_numpy(rng.normal(size=(30, 3)).astype(np.float32))
    aligned = net.align_points(points, [10, 20])
    torch.testing.assert_close(aligned, points)
    features, counts = net(collate([points.numpy()]))
    assert (features.shape, counts) == ((30, 1024), [30])


def test_pointnet_gradients_are_finite(pointnet, rng):
    points = [rng.normal(size=(n, 3)).astype(np.float32) for n in (60, 25)]
    pointnet.train()(collate(points)).pow(3).sum().backward()
    for name, parameter in pointnet.named_parameters():
        assert parameter.grad.isfinite().all(), name
