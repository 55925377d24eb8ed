"""Configurations reject invalid values by name, and valid ones survive every round trip."""

from dataclasses import FrozenInstanceError, dataclass, field, fields
import json
import math

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
import yaml

from lpr_ros.core.config import Config, option, override
from lpr_ros.core.errors import ConfigError
from lpr_ros.core.model.config import (
    PRESETS,
    BackboneConfig,
    InputConfig,
    ModelConfig,
    PoolingConfig,
)


@dataclass(frozen=True)
class Inner(Config):
    size: float = option(1.0, 'Length', unit='m', low=0.0, high=10.0)
    modes: tuple[str, ...] = option(('a',), 'Selected modes', choices=('a', 'b'))


@dataclass(frozen=True)
class Outer(Config):
    count: int = option(3, 'Number of items', low=1)
    is_on: bool = option(True, 'Enable it')
    box: tuple[float, float] = option((1.0, 2.0), 'Width and height', low=0.0)
    name: str = option('x', 'Name')
    inner: Inner = field(default_factory=Inner)


outers = st.builds(
    Outer,
    count=st.integers(1, 10**9),
    is_on=st.booleans(),
    box=st.tuples(*[st.floats(0.0, 1e6)] * 2),
    name=st.text(st.characters(exclude_categories=['Cs']), max_size=8),
    inner=st.builds(
        Inner, size=st.floats(0.0, 10.0), modes=st.lists(st.sampled_from('ab')).map(tuple)
    ),
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(config=outers)
def test_dict_json_and_yaml_round_trips_are_the_identity(config):
    data = config.to_dict()
    assert Outer.from_dict(data) == config
    assert Outer.from_dict(json.loads(json.dumps(data))) == config
    assert Outer.from_dict(yaml.safe_load(yaml.safe_dump(data))) == config


@pytest.mark.parametrize('preset', sorted(PRESETS))
def test_presets_survive_a_yaml_file(preset, tmp_path):
    config = PRESETS[preset]()
    (tmp_path / 'model.yaml').write_text(yaml.safe_dump(config.to_dict()))
    assert ModelConfig.from_yaml(tmp_path / 'model.yaml') == config


@pytest.mark.parametrize(
    ('data', 'message'),
    [
        ({'color': 1}, r"Outer: unknown key 'color'; known keys: \['count', 'is_on'"),
        ({'inner': {'sise': 1.0}}, "inner: unknown key 'sise'; known keys: .*'size'"),
        ({3: 4}, "unknown key '3'"),
        ({'count': 1.5}, r'count: expected int, got 1\.5'),
        ({'count': True}, 'count: expected int, got True'),
        ({'count': None}, 'count: expected int, got None'),
        ({'is_on': 1}, 'is_on: expected bool, got 1'),
        ({'name': 5}, 'name: expected str, got 5'),
        ({'inner': {'size': '1'}}, r"inner\.size: expected float, got '1'"),
        ({'inner': {'size': False}}, r'inner\.size: expected float, got False'),
        ({'inner': 3}, 'inner: expected a mapping, got 3'),
        ({'box': 3}, 'box: expected a list, got 3'),
        ({'box': [1.0]}, r'box: expected 2 values, got \[1\.0\]'),
        ({'box': [1.0, 'b']}, r"box\[1\]: expected float, got 'b'"),
        ({'count': 0}, r'Outer\.count: 0 is not within \[1, inf\]'),
        ({'box': [1.0, -2]}, r'Outer\.box: -2\.0 is not within \[0\.0, inf\]'),
        ({'inner': {'size': math.nan}}, r'Inner\.size: nan is not within'),
        ({'inner': {'size': 10.5}}, r'Inner\.size: 10\.5 is not within \[0\.0, 10\.0\]'),
        ({'inner': {'size': 10**400}}, r'inner\.size: expected float'),
        ({'inner': {'modes': ['a', 'c']}}, r"Inner\.modes: 'c' is not one of \['a', 'b'\]"),
        ([1], r'Outer: expected a mapping, got \[1\]'),
    ],
)
def test_a_wrong_key_type_or_value_is_rejected_by_name(data, message):
    with pytest.raises(ConfigError, match=message):
        Outer.from_dict(data)


def test_integers_become_floats_where_floats_are_declared():
    size = Outer.from_dict({'inner': {'size': 3}}).inner.size
    assert (size, type(size)) == (3.0, float)


def test_the_constructor_rejects_wrong_values_too():
    with pytest.raises(ConfigError, match=r'Outer\.count: -1'):
        Outer(count=-1)


def test_configurations_are_immutable():
    with pytest.raises(FrozenInstanceError):
        Outer().count = 4


def test_override_replaces_nested_keys_and_keeps_the_rest():
    config = Outer(count=7)
    changed = override(config, {'inner.size': 4, 'name': 'y'})
    assert changed == Outer(count=7, name='y', inner=Inner(size=4.0))
    assert config == Outer(count=7)
    assert override(config, {}) == config


@pytest.mark.parametrize(
    ('key', 'value', 'message'),
    [
        ('inner.sise', 1.0, r"unknown key 'inner\.sise'; known keys: \['modes', 'size'\]"),
        ('outer.size', 1.0, "'outer' is not a section"),
        ('count.size', 1.0, "'count' is not a section"),
        ('box.0', 1.0, "'box' is not a section"),
        ('inner.size', 11.0, r'11\.0 is not within'),
        ('inner.size', 'x', r"inner\.size: expected float, got 'x'"),
    ],
)
def test_a_wrong_override_is_rejected_by_name(key, value, message):
    with pytest.raises(ConfigError, match=message):
        override(Outer(), {key: value})


def test_an_empty_yaml_file_gives_the_defaults(tmp_path):
    (tmp_path / 'empty.yaml').write_text('# nothing\n')
    assert Outer.from_yaml(tmp_path / 'empty.yaml') == Outer()


@pytest.mark.parametrize(
    'content', [b'count: [', b'\xff\xfe', b'count: x', b'[]', b'- count', b'0', b'false']
)
def test_an_invalid_yaml_file_is_rejected_by_path(content, tmp_path):
    (tmp_path / 'bad.yaml').write_bytes(content)
    with pytest.raises(ConfigError, match=r'bad\.yaml: '):
        Outer.from_yaml(tmp_path / 'bad.yaml')


def test_a_missing_yaml_file_is_rejected_by_path(tmp_path):
    with pytest.raises(ConfigError, match=r'nowhere\.yaml'):
        Outer.from_yaml(tmp_path / 'nowhere.yaml')


@pytest.mark.parametrize(
    'build',
    [
        lambda: InputConfig(min_range_m=5.0, max_range_m=5.0),
        lambda: InputConfig(step=(0.4, 0.0, 0.4)),
        lambda: InputConfig(quantizer='spherical'),
        lambda: BackboneConfig(planes=(8, 8), layers=(1,)),
        lambda: BackboneConfig(planes=(), layers=(), num_top_down=0),
        lambda: BackboneConfig(planes=(8, 8), layers=(1, 1), num_top_down=2),
        lambda: BackboneConfig(conv0_kernel_size=4),
        lambda: PoolingConfig(kind='max'),
        lambda: PoolingConfig(clusters=0),
        lambda: ModelConfig(backbone=BackboneConfig(kind='pointnet')),
        lambda: ModelConfig(input=InputConfig(quantizer='points')),
    ],
)
def test_a_model_that_cannot_be_built_is_rejected(build):
    with pytest.raises(ConfigError):
        build()


@pytest.mark.parametrize('kind', [InputConfig, BackboneConfig, PoolingConfig])
def test_every_option_of_the_model_has_a_description(kind):
    for declared in fields(kind):
        assert declared.metadata['description'], declared.name
        assert '_m' not in declared.name[-2:] or declared.metadata['unit'] == 'm'


@pytest.mark.parametrize(('exponent', 'sigma'), [(0.5, 4.0), (1.0, 16.0), (0.0, 1.0)])
def test_sigma_is_a_power_of_the_number_of_clusters(exponent, sigma):
    assert PoolingConfig(clusters=16, sigma_exponent=exponent).sigma == sigma
