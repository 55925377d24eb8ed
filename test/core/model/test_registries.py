"""Quantizer, backbone and pooling registries: one entry makes a new one usable everywhere."""

import numpy as np
import pytest
import torch
from torch import nn
from toy_clouds import random_scene, tiny_config

from lpr_ros.core.config import override
from lpr_ros.core.errors import ConfigError
from lpr_ros.core.model.config import BackboneConfig, InputConfig, ModelConfig, PoolingConfig
from lpr_ros.core.model.descriptor_extractor import NetworkDescriptorExtractor
from lpr_ros.core.model.place_model import BACKBONES, Backbone, PlaceModel
from lpr_ros.core.model.pooling import POOLINGS, Pooling
from lpr_ros.core.model.quantize import QUANTIZERS, Quantizer
from lpr_ros.core.model.voxel_grid import unique_cells


def coarse(points, config):
    return unique_cells(points, 2.0 * np.asarray(config.step))


class MaxPooling(Pooling):
    def __init__(self, width, config):
        super().__init__(width, config)
        self.out_dim = width

    def forward(self, features, counts):
        return torch.stack([part.amax(dim=0) for part in features.split(list(counts))])


class Heights(nn.Module):
    out_channels = 1

    def __init__(self, config, backend):
        super().__init__()

    def forward(self, batch):
        return batch.sites[:, 2:].float(), list(batch.counts)


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(QUANTIZERS, 'coarse', Quantizer(coarse))
    monkeypatch.setitem(POOLINGS, 'max', MaxPooling)
    monkeypatch.setitem(BACKBONES, 'heights', Backbone(Heights))


def test_registered_entries_describe_a_cloud(registered, rng):
    names = {'input.quantizer': 'coarse', 'backbone.kind': 'heights', 'pooling.kind': 'max'}
    config = override(tiny_config(), names)
    assert ModelConfig.from_dict(config.to_dict()) == config
    points = random_scene(rng)
    descriptor = NetworkDescriptorExtractor(PlaceModel(config), device='cpu').describe(points)
    near = points[np.hypot(points[:, 0], points[:, 1]) <= config.input.max_range_m]
    assert descriptor.tolist() == [float(coarse(near, config.input)[:, 2].max())]


def test_properties_of_entries_are_checked(registered):
    with pytest.raises(ConfigError, match="align_yaw needs a cartesian or bev grid, got 'coarse'"):
        InputConfig(quantizer='coarse', align_yaw=True)
    with pytest.raises(ConfigError, match=r"'heights' does not take input 'points'.*'coarse'"):
        ModelConfig(InputConfig(quantizer='points'), BackboneConfig(kind='heights'))


@pytest.mark.parametrize(
    ('make', 'known'),
    [
        (lambda: InputConfig(quantizer='none'), QUANTIZERS),
        (lambda: BackboneConfig(kind='none'), BACKBONES),
        (lambda: PoolingConfig(kind='none'), POOLINGS),
    ],
)
def test_unknown_names_list_the_known_ones(registered, make, known):
    with pytest.raises(ConfigError, match="'none' is not one of") as error:
        make()
    assert str(list(known)) in str(error.value)
