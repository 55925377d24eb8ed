"""Parameters of a real node: declared from a configuration, read back, changed at run time."""

from dataclasses import dataclass, field
from typing import ClassVar

import pytest
from rcl_interfaces.srv import DescribeParameters, SetParametersAtomically
from rclpy.parameter import Parameter
from ros_processes import Ros

from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import ConfigError
from lpr_ros.core.pipeline import PipelineConfig
from lpr_ros.core.pose_graph.optimizer import PoseGraphOptimizerConfig
from lpr_ros.lpr_node.config import NodeConfig
from lpr_ros.lpr_node.node import POSE_GRAPH_PARAMETERS
from lpr_ros.pose_graph_node.node import LPR_NODE_PARAMETERS, PoseGraphNodeConfig
from lpr_ros.ros_utils.parameters import ConfigParameters, leaves, unknown_parameters


@dataclass(frozen=True)
class SectionConfig(Config):
    window: int = option(4, 'Number of earlier queries', low=0, high=10)
    spacing_m: float = option(0.5, 'Distance between queries', unit='m', low=0.0)
    min_support: int = option(2, 'Minimum number of supporting queries', low=0)

    def __post_init__(self):
        super().__post_init__()
        if self.min_support > self.window:
            raise ConfigError(f'min_support {self.min_support} exceeds window {self.window}')


@dataclass(frozen=True)
class ToyConfig(Config):
    device: str = option('cpu', 'Device', choices=('cpu', 'cuda'), fixed=True)
    is_on: bool = option(True, 'Whether it is on')
    names: tuple[str, ...] = option((), 'Some names', choices=('a', 'b'))
    offset: tuple[float, float] = option((1.0, 2.0), 'Offset x y', unit='m', low=-5.0, high=5.0)
    section: SectionConfig = field(default_factory=SectionConfig)
    EXPECTED: ClassVar[tuple[str, ...]] = (
        'device', 'is_on', 'names', 'offset', 'section.window', 'section.spacing_m',
        'section.min_support',
    )  # fmt: skip


def overrides(**values):
    return [Parameter(name.replace('__', '.'), value=value) for name, value in values.items()]


@pytest.mark.parametrize('defaults', [ToyConfig(), PipelineConfig(), PoseGraphOptimizerConfig()])
def test_declared_configuration_is_read_back(ros: Ros, defaults):
    assert ConfigParameters(ros.node(), defaults).read() == defaults


def test_overrides_replace_defaults(ros: Ros):
    given = overrides(device='cuda', names=['b', 'a'], offset=[0.0, -5.0], section__window=10)
    config = ConfigParameters(ros.node(parameter_overrides=given), ToyConfig()).read()
    assert config == ToyConfig('cuda', True, ('b', 'a'), (0.0, -5.0), SectionConfig(10, 0.5, 2))


@pytest.mark.parametrize(('name', 'value', 'expected'), [
    ('section.window', 11, '10'),
    ('section.window', 4.0, 'INTEGER'),
    ('section.spacing_m', -0.1, r'\[0.0, inf\]'),
    ('device', 'tpu', "'cpu', 'cuda'"),
    ('names', ['a', 'c'], "'a', 'b'"),
    ('offset', [0.0, 6.0], r'\[-5.0, 5.0\]'),
    ('offset', [0.0], '2 values'),
])  # fmt: skip
def test_invalid_override_is_rejected_with_name_and_value(ros: Ros, name, value, expected):
    node = ros.node(parameter_overrides=[Parameter(name, value=value)])
    with pytest.raises(ConfigError, match=expected) as caught:
        ConfigParameters(node, ToyConfig()).read()
    assert name in str(caught.value)
    assert str(value[-1] if isinstance(value, list) else value) in str(caught.value)


def test_unknown_parameters_are_named_with_the_nearest_known_one(ros: Ros, capfd):
    given = overrides(
        section__windw=3, is_one=False, use_sim_time=False, optimizer__x=1, names=['a']
    )
    node = ros.node(parameter_overrides=[*given, *overrides(qos_overrides__points=1)])
    known = [leaf.name for leaf in leaves(ToyConfig())]
    ConfigParameters(node, ToyConfig())
    assert "did you mean 'is_on'?" in capfd.readouterr().err
    assert list(unknown_parameters(node, known, others=('optimizer',))) == [
        "unknown parameter 'is_one' is ignored; did you mean 'is_on'?",
        "unknown parameter 'section.windw' is ignored; did you mean 'section.window'?",
    ]


def test_a_file_for_both_nodes_is_not_warned_about():
    """Each node knows the first words of the parameters of the other."""

    def words(config):
        return {leaf.name.partition('.')[0] for leaf in leaves(config)}

    ours, others = words(NodeConfig()), words(PoseGraphNodeConfig())
    assert set(POSE_GRAPH_PARAMETERS) == others - ours
    assert set(LPR_NODE_PARAMETERS) == ours - others


def test_descriptor_has_type_description_unit_and_range(ros: Ros):
    node = ros.node('toy')
    ConfigParameters(node, ToyConfig())
    request = DescribeParameters.Request(names=list(ToyConfig.EXPECTED))
    answer = ros.call(ros.node(), DescribeParameters, '/toy/describe_parameters', request)
    by_name = {descriptor.name: descriptor for descriptor in answer.descriptors}
    window, spacing = by_name['section.window'], by_name['section.spacing_m']
    assert (window.integer_range[0].from_value, window.integer_range[0].to_value) == (0, 10)
    assert window.type == Parameter.Type.INTEGER.value
    assert not spacing.floating_point_range, 'ROS rejects ranges without an upper limit'
    assert spacing.description == 'Distance between queries [m]'
    assert spacing.additional_constraints == 'at least 0'
    assert by_name['names'].type == Parameter.Type.STRING_ARRAY.value
    assert by_name['device'].additional_constraints == 'one of cpu, cuda; read on startup only'


class TestChanges:
    @pytest.fixture
    def live(self, ros: Ros):
        """A node, the configurations it received, and a function that sets its parameters."""
        node, received = ros.node('toy'), []
        parameters = ConfigParameters(node, ToyConfig())
        parameters.watch(received.append)
        tester = ros.node()

        def change(**values):
            request = SetParametersAtomically.Request(
                parameters=[p.to_parameter_msg() for p in overrides(**values)]
            )
            kind, service = SetParametersAtomically, '/toy/set_parameters_atomically'
            return ros.call(tester, kind, service, request).result

        return parameters, received, change

    def test_change_of_several_parameters_arrives_as_one_configuration(self, live):
        parameters, received, change = live
        assert change(section__window=7, names=['a']).successful
        assert received == [ToyConfig(names=('a',), section=SectionConfig(window=7))]
        assert parameters.read() == received[0]

    @pytest.mark.parametrize(('values', 'reason'), [
        ({'section__spacing_m': -1.0}, 'section.spacing_m: -1.0 is not within'),
        ({'section__window': 1}, 'min_support 2 exceeds window 1'),
        ({'device': 'cuda'}, "device: cannot be changed from 'cpu' to 'cuda'"),
        ({'names': ['c']}, "names: 'c' is not one of"),
        ({'section__window': 99}, 'section.window'),
    ])  # fmt: skip
    def test_invalid_change_is_rejected_with_the_reason(self, live, values, reason):
        parameters, received, change = live
        answer = change(**values)
        assert not answer.successful
        assert reason in answer.reason
        assert received == []
        assert parameters.read() == ToyConfig()

    def test_fixed_parameter_may_be_set_to_its_current_value(self, live):
        _, _, change = live
        assert change(device='cpu').successful

    def test_receiver_may_reject_a_change(self, ros: Ros):
        def reject(config):
            raise ConfigError('not today')

        node = ros.node()
        parameters = ConfigParameters(node, ToyConfig())
        parameters.watch(reject)
        result = node.set_parameters(overrides(is_on=False))[0]
        assert (result.successful, result.reason) == (False, 'not today')
        parameters.unwatch()
        assert node.set_parameters(overrides(is_on=False, device='cuda'))[1].successful
        assert parameters.read() == ToyConfig('cuda', False)

    def test_unwatched_only_what_is_invalid_by_itself_is_rejected(self, ros: Ros):
        node = ros.node()
        parameters = ConfigParameters(node, ToyConfig())
        changes = overrides(offset=[float('nan')], device='cuda')
        first, second = node.set_parameters(changes)
        assert (first.successful, second.successful) == (False, True)
        assert 'offset: nan' in first.reason
        assert parameters.read() == ToyConfig('cuda')

    def test_other_parameters_are_ignored(self, live, ros: Ros):
        _, received, change = live
        assert change(use_sim_time=True).successful
        assert received == []


def test_leaves_walk_sections_in_declaration_order():
    assert tuple(leaf.name for leaf in leaves(ToyConfig())) == ToyConfig.EXPECTED
