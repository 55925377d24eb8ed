"""Parameters of a real node: declared from the configuration, read back, changed live."""

from dataclasses import dataclass, field
from typing import ClassVar

import pytest
from rcl_interfaces.srv import DescribeParameters, SetParametersAtomically
from rclpy.parameter import Parameter
from ros_processes import Ros

from lpr_ros.core.back_end import BackEndConfig
from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import ConfigError
from lpr_ros.core.pipeline import PipelineConfig
from lpr_ros.parameters import ConfigParameters, leaves, parameters_table


@dataclass(frozen=True)
class SectionConfig(Config):
    window: int = option(4, 'earlier queries', low=0, high=10)
    share: float = option(0.5, 'of the way', unit='m', low=0.0)
    least: int = option(2, 'must agree', low=0)

    def __post_init__(self):
        super().__post_init__()
        if self.least > self.window:
            raise ConfigError(f'least: {self.least} is more than window, {self.window}')


@dataclass(frozen=True)
class ToyConfig(Config):
    device: str = option('cpu', 'where', choices=('cpu', 'cuda'), fixed=True)
    is_on: bool = option(True, 'or off')
    names: tuple[str, ...] = option((), 'some', choices=('a', 'b'))
    offset: tuple[float, float] = option((1.0, 2.0), 'x y', unit='m', low=-5.0, high=5.0)
    section: SectionConfig = field(default_factory=SectionConfig)
    EXPECTED: ClassVar[tuple[str, ...]] = (
        'device', 'is_on', 'names', 'offset', 'section.window', 'section.share', 'section.least',
    )  # fmt: skip


def overrides(**values):
    return [Parameter(name.replace('__', '.'), value=value) for name, value in values.items()]


@pytest.mark.parametrize('defaults', [ToyConfig(), PipelineConfig(), BackEndConfig()])
def test_what_is_declared_is_read_back(ros: Ros, defaults):
    assert ConfigParameters(ros.node(), defaults).read() == defaults


def test_values_given_at_start_are_taken(ros: Ros):
    given = overrides(device='cuda', names=['b', 'a'], offset=[0.0, -5.0], section__window=10)
    config = ConfigParameters(ros.node(parameter_overrides=given), ToyConfig()).read()
    assert config == ToyConfig(
        'cuda', True, ('b', 'a'), (0.0, -5.0), SectionConfig(10, 0.5, 2)
    )


@pytest.mark.parametrize(('name', 'value', 'expected'), [
    ('section.window', 11, '10'),
    ('section.window', 4.0, 'INTEGER'),
    ('section.share', -0.1, r'\[0.0, inf\]'),
    ('device', 'tpu', "'cpu', 'cuda'"),
    ('names', ['a', 'c'], "'a', 'b'"),
    ('offset', [0.0, 6.0], r'\[-5.0, 5.0\]'),
    ('offset', [0.0], '2 values'),
])  # fmt: skip
def test_a_wrong_value_is_named(ros: Ros, name, value, expected):
    node = ros.node(parameter_overrides=[Parameter(name, value=value)])
    with pytest.raises(ConfigError, match=expected) as caught:
        ConfigParameters(node, ToyConfig()).read()
    assert name in str(caught.value)
    assert str(value[-1] if isinstance(value, list) else value) in str(caught.value)


def test_ros_tools_see_type_description_unit_and_range(ros: Ros):
    node = ros.node('toy')
    ConfigParameters(node, ToyConfig())
    request = DescribeParameters.Request(names=list(ToyConfig.EXPECTED))
    answer = ros.call(ros.node(), DescribeParameters, '/toy/describe_parameters', request)
    by_name = {descriptor.name: descriptor for descriptor in answer.descriptors}
    window, share = by_name['section.window'], by_name['section.share']
    assert (window.integer_range[0].from_value, window.integer_range[0].to_value) == (0, 10)
    assert window.type == Parameter.Type.INTEGER.value
    assert not share.floating_point_range, 'ROS refuses a range that has no end'
    assert share.description == 'of the way [m]'
    assert share.additional_constraints == 'at least 0'
    assert by_name['names'].type == Parameter.Type.STRING_ARRAY.value
    assert by_name['device'].additional_constraints == 'one of cpu, cuda; read at start only'


class TestLive:
    @pytest.fixture
    def live(self, ros: Ros):
        """A node whose parameters are set through its services, and the configurations it got."""
        node, got = ros.node('toy'), []
        parameters = ConfigParameters(node, ToyConfig())
        parameters.watch(got.append)
        tester = ros.node()

        def change(**values):
            request = SetParametersAtomically.Request(
                parameters=[p.to_parameter_msg() for p in overrides(**values)]
            )
            kind, service = SetParametersAtomically, '/toy/set_parameters_atomically'
            return ros.call(tester, kind, service, request).result

        return parameters, got, change

    def test_a_change_is_handed_over_whole(self, live):
        parameters, got, change = live
        assert change(section__window=7, names=['a']).successful
        assert got == [ToyConfig(names=('a',), section=SectionConfig(window=7))]
        assert parameters.read() == got[0]

    @pytest.mark.parametrize(('values', 'reason'), [
        ({'section__share': -1.0}, 'section.share: -1.0 is not within'),
        ({'section__window': 1}, 'least: 2 is more than window, 1'),
        ({'device': 'cuda'}, "device: cannot be changed from 'cpu' to 'cuda'"),
        ({'names': ['c']}, "names: 'c' is not one of"),
        ({'section__window': 99}, 'section.window'),
    ])  # fmt: skip
    def test_a_wrong_change_is_refused_with_the_reason(self, live, values, reason):
        parameters, got, change = live
        answer = change(**values)
        assert not answer.successful
        assert reason in answer.reason
        assert got == []
        assert parameters.read() == ToyConfig()

    def test_setting_a_fixed_one_to_what_it_is_is_no_change(self, live):
        _, _, change = live
        assert change(device='cpu').successful

    def test_the_receiver_may_refuse(self, ros: Ros):
        def refuse(config):
            raise ConfigError('not today')

        node = ros.node()
        parameters = ConfigParameters(node, ToyConfig())
        parameters.watch(refuse)
        result = node.set_parameters(overrides(is_on=False))[0]
        assert (result.successful, result.reason) == (False, 'not today')
        parameters.unwatch()
        assert node.set_parameters(overrides(is_on=False, device='cuda'))[1].successful
        assert parameters.read() == ToyConfig('cuda', False)

    def test_parameters_of_others_are_left_alone(self, live, ros: Ros):
        _, got, change = live
        assert change(use_sim_time=True).successful
        assert got == []


def test_the_table_has_a_row_for_each_parameter():
    rows = parameters_table(ToyConfig()).splitlines()
    assert [row.split('`')[1] for row in rows[2:]] == [leaf.name for leaf in leaves(ToyConfig())]
    assert tuple(leaf.name for leaf in leaves(ToyConfig())) == ToyConfig.EXPECTED
    assert '| `section.window` | `4` |  | 0 to 10 | yes | earlier queries |' in rows
    assert len({row.count('|') for row in rows}) == 1
