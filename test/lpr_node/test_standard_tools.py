"""What the tools of ROS expect of a node: parameter dumps, aggregated diagnostics, QoS events."""

from pathlib import Path
import re
import time

import pytest
from rcl_interfaces.srv import GetParameters, ListParameters
from rclpy.parameter import Parameter, parameter_value_to_python
from ros_processes import TIMEOUT_S, Ros
from std_msgs.msg import Float64MultiArray
import yaml

from lpr_ros.lpr_node.diagnostics import Diagnostics, Statistics
from lpr_ros.lpr_node.node import LprNode
from lpr_ros.pose_graph_node.node import PoseGraphNode
from lpr_ros.ros_utils.qos import LATCHED

CONFIG = Path(__file__).resolve().parents[2] / 'config'


def dump_parameters(ros: Ros, name: str) -> str:
    """Return all parameters of a node in the format of `ros2 param dump`."""
    tester = ros.node()
    names = ros.call(tester, ListParameters, f'{name}/list_parameters').result.names
    request = GetParameters.Request(names=names)
    values = ros.call(tester, GetParameters, f'{name}/get_parameters', request).values
    nested: dict = {}
    for parameter, value in zip(names, values, strict=True):
        *sections, leaf = parameter.split('.')
        section = nested
        for part in sections:
            section = section.setdefault(part, {})
        plain = parameter_value_to_python(value)
        section[leaf] = plain if isinstance(plain, bool | int | float | str) else list(plain)
    return yaml.dump({name: {'ros__parameters': nested}}, default_flow_style=False)


@pytest.mark.parametrize(
    ('kind', 'changed'),
    [
        (LprNode, {'database.top_k': 3, 'extrinsic': [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]}),
        (PoseGraphNode, {'map_frame': 'world', 'odometry_noise.heading_deg': 2.0}),
    ],
)
def test_dumped_parameters_start_the_same_node(ros: Ros, tmp_path, capfd, kind, changed):
    overrides = [Parameter(name, value=value) for name, value in changed.items()]
    first = ros.node(kind=kind, parameter_overrides=overrides)
    file = tmp_path / 'dump.yaml'
    file.write_text(dump_parameters(ros, first.get_fully_qualified_name()))
    second = ros.node(kind=kind, cli_args=['--ros-args', '--params-file', str(file)])
    names = first.list_parameters([], 0).names
    assert names == second.list_parameters([], 0).names
    for name in names:
        assert first.get_parameter(name).value == second.get_parameter(name).value, name
    assert {name: _plain(second.get_parameter(name).value) for name in changed} == changed
    assert 'unknown parameter' not in capfd.readouterr().err


def _plain(value):
    return value if isinstance(value, int | float | str) else list(value)


def test_the_aggregator_finds_the_status_of_the_node_in_any_namespace():
    parameters = yaml.safe_load((CONFIG / 'diagnostics.yaml').read_text())['/**']
    (analyzer,) = (v for v in parameters['ros__parameters'].values() if isinstance(v, dict))
    for name in ('/lpr_node', '/robot/lpr_node'):
        (status,) = Diagnostics(name, Statistics()).message(0, 'active', None).status
        assert any(part in status.name for part in analyzer['contains'])
    assert analyzer['timeout'] > 2.0  # two periods of the timer


def test_a_subscriber_with_other_qos_is_logged(ros: Ros, capfd):
    ros.node(kind=LprNode)
    ros.listen(ros.node(), Float64MultiArray, '/lpr_node/candidates', LATCHED)
    expected = r'\[lpr_node\]: .*candidates.* incompatible QoS.* DURABILITY'
    output, end = '', time.monotonic() + TIMEOUT_S
    while not re.search(expected, output):
        assert time.monotonic() < end, output
        output += capfd.readouterr().err
        time.sleep(0.01)
