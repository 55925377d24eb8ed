"""Files written from the configuration are what it says; presets and launch files fit it."""

from pathlib import Path
import re

import pytest
import yaml

from lpr_ros.backends.selection import ADAPTERS
from lpr_ros.core.config import override
from lpr_ros.core.errors import ConfigError
from lpr_ros.documents import documents, parameters_yaml
from lpr_ros.node_config import NodeConfig
from lpr_ros.parameters import leaves

ROOT = Path(__file__).resolve().parents[1]
PRESETS = sorted((ROOT / 'config' / 'presets').glob('*.yaml'))
PAGES = sorted((ROOT / 'docs' / 'backends').glob('*.md'))


def flat(tree, prefix=''):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from flat(value, f'{prefix}{key}.')
        else:
            yield prefix + key, value


def parameters_of(text):
    return dict(flat(yaml.safe_load(text)['/**']['ros__parameters']))


@pytest.mark.parametrize('path', documents(ROOT), ids=lambda path: path.name)
def test_written_files_are_current(path):
    assert path.read_text() == documents(ROOT)[path], 'run python -m lpr_ros.documents'


def test_the_parameter_file_holds_every_default_with_a_comment():
    text = parameters_yaml(NodeConfig())
    assert override(NodeConfig(), parameters_of(text)) == NodeConfig()
    # ROS cannot read an empty list, so it is there as a comment only.
    absent = {leaf.name for leaf in leaves(NodeConfig())} - set(parameters_of(text))
    assert absent == {'backends'}
    lines = [line for line in text.splitlines() if ':' in line and '/**' not in line]
    bare = [line for line in lines if '  # ' not in line and not line.lstrip().startswith('#')]
    assert bare == ['  ros__parameters:']


@pytest.mark.parametrize('path', PRESETS, ids=lambda path: path.stem)
def test_presets_fit_the_configuration_and_change_something(path):
    given = parameters_of(path.read_text())
    assert override(NodeConfig(), given) != NodeConfig() or path.stem == 'ouster_128'


def test_every_promised_preset_is_there():
    assert [path.stem for path in PRESETS] == ['lio_sam', 'livox', 'ouster_128', 'velodyne_16']


def test_without_odometry_an_interval_is_asked_for():
    with pytest.raises(ConfigError, match=r'keyframes\.interval_s'):
        override(NodeConfig(), {'use_odometry': False})
    config = override(NodeConfig(), {'use_odometry': False, 'keyframes.interval_s': 0.5})
    assert config.keyframes.interval_s == 0.5


def test_every_back_end_has_a_page_whose_parameters_exist():
    text = '\n'.join(path.read_text() for path in PAGES)
    for name in ADAPTERS:
        assert f'backends: [{name}]' in text or f'preset:={name}' in text
    known = {leaf.name for leaf in leaves(NodeConfig())}
    named = set(re.findall(r'`(adapters\.[a-zA-Z_.]+)`', text))
    assert named <= known
    for block in re.findall(r'^(/\*\*: .*)$', text, re.MULTILINE):
        override(NodeConfig(), parameters_of(block))


def test_rviz_shows_the_topics_that_are_there():
    layout = yaml.safe_load((ROOT / 'config' / 'lpr.rviz').read_text())
    displays = layout['Visualization Manager']['Displays']
    shown = {display['Topic']['Value'] for display in displays if 'Topic' in display}
    assert shown == {'/points', '/lpr_node/markers', '/pose_graph_node/path'}
