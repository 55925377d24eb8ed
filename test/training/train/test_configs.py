"""Every experiment of config/ loads, has the published values and builds a model."""

from itertools import pairwise
from pathlib import Path

import pytest

from lpr_ros.core.config import override, parse_assignments
from lpr_ros.core.errors import ConfigError
from lpr_ros.core.model.config import PRESETS
from lpr_ros.core.model.place_model import PlaceModel
from lpr_training.datasets.splits.oxford import RADII_M
from lpr_training.datasets.splits.wild_places import NON_NEGATIVE_M, POSITIVE_M
from lpr_training.train.config import TrainConfig
from lpr_training.train.trainer import learning_rate

CONFIG = Path(__file__).resolve().parents[3] / 'config'
EXPERIMENTS = (
    'kitti_bev',
    'oxford_baseline',
    'oxford_minkloc3d',
    'oxford_pointnet',
    'oxford_refined',
    'sim',
    'wild_places',
)


def load(name: str, *assignments: str) -> TrainConfig:
    config = TrainConfig.from_yaml(CONFIG / f'{name}.yaml')
    return override(config, parse_assignments(assignments))


@pytest.mark.parametrize('name', EXPERIMENTS)
def test_experiment_loads_and_builds(name):
    config = load(name)
    assert TrainConfig.from_dict(config.to_dict()) == config
    pooling = config.model.pooling
    assert PlaceModel(config.model).out_dim == pooling.channels * pooling.clusters


@pytest.mark.parametrize('name', EXPERIMENTS)
@pytest.mark.parametrize(('c', 'm'), [(16, 16), (32, 32), (128, 64)])
def test_descriptor_size_can_be_overridden(name, c, m):
    config = load(name, f'model.pooling.channels={c}', f'model.pooling.clusters={m}')
    assert PlaceModel(config.model).out_dim == c * m


@pytest.mark.parametrize(
    ('name', 'epochs'), [('oxford_baseline', 400), ('oxford_refined', 500), ('wild_places', 100)]
)
def test_experiments_have_the_published_values(name, epochs):
    config = load(name)
    assert (config.epochs, config.batch_size, config.chunk_size) == (epochs, 2048, 128)
    assert (config.learning_rate, config.weight_decay) == (1e-3, 1e-4)
    assert config.loss.name == 'truncated_smooth_ap'
    assert (config.loss.temperature, config.loss.positives_per_query) == (0.01, 4)


def test_experiments_have_the_radii_of_the_benchmarks():
    for kind, radii in RADII_M.items():
        data = load(f'oxford_{kind}').data
        assert (data.positive_m, data.non_negative_m) == radii
    data = load('wild_places').data
    assert (data.positive_m, data.non_negative_m) == (POSITIVE_M, NON_NEGATIVE_M)


def test_published_networks_can_be_configured():
    gem = 'model.pooling.kind=gem'
    assert load('oxford_baseline', gem).model == PRESETS['minkloc3dv2']()
    assert load('oxford_minkloc3d', gem).model == PRESETS['minkloc3d']()
    assert load('wild_places').model == PRESETS['wild_places']()
    netvlad = load(
        'oxford_pointnet', 'model.pooling.kind=netvlad', 'model.pooling.clusters=64'
    ).model
    assert netvlad == PRESETS['pointnetvlad']()


def test_learning_rate_follows_a_cosine():
    config = load('oxford_baseline')
    rates = [learning_rate(config, epoch) for epoch in range(config.epochs)]
    assert rates[0] == pytest.approx(1e-3)
    assert rates[200] == pytest.approx((1e-3 + 1e-5) / 2, rel=0.01)
    assert rates[-1] == pytest.approx(1e-5, rel=0.02)
    assert all(a > b for a, b in pairwise(rates))


def test_warm_up_ends_at_the_full_rate():
    config = load('kitti_bev', 'warmup_epochs=4')
    rates = [learning_rate(config, epoch) for epoch in range(6)]
    assert rates[:4] == pytest.approx([2.5e-4, 5e-4, 7.5e-4, 1e-3])
    assert rates[4] == pytest.approx(1e-3)


def test_override_parses_exponents_without_a_decimal_point():
    assert load('sim', 'learning_rate=5e-4').learning_rate == 5e-4


@pytest.mark.parametrize(
    ('assignment', 'message'),
    [
        ('model.pooling.chanels=3', "unknown key 'model.pooling.chanels'"),
        ('modell.pooling.channels=3', "'modell' is not a section"),
        ('epochs', 'expected KEY=VALUE'),
        ('epochs=[1', 'cannot be read as YAML'),
        ('epochs=many', 'expected int'),
        ('loss.name=hinge', 'is not one of'),
        ('learning_rate=fast', 'expected float'),
    ],
)
def test_invalid_override_is_rejected(assignment, message):
    with pytest.raises(ConfigError, match=message.replace('.', r'\.')):
        load('sim', assignment)


def test_unknown_key_is_reported_with_its_file(tmp_path):
    path = tmp_path / 'wrong.yaml'
    path.write_text('model: {poolin: {}}')
    with pytest.raises(ConfigError, match=r'wrong\.yaml: model: unknown key .poolin'):
        TrainConfig.from_yaml(path)
