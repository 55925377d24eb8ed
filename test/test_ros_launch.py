"""The launch files, where `launch` is installed: it is not on the package index."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip('launch_ros', reason='launch_ros comes with a ROS installation only')

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument

LAUNCH = Path(__file__).resolve().parents[1] / 'launch'


@pytest.fixture
def load(monkeypatch):
    """Load a launch file of this repository, with its own share folder."""
    monkeypatch.setattr(
        'ament_index_python.packages.get_package_share_directory', lambda name: str(LAUNCH.parent)
    )

    def load(name):
        spec = importlib.util.spec_from_file_location(name.replace('.', '_'), LAUNCH / name)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def started(module, **given):
    """Return the executables that the arguments start."""
    context = LaunchContext()
    for name, default, _ in module.ARGUMENTS:
        context.launch_configurations[name] = given.get(name, default)
    return {node.node_executable: node for node in module.nodes(context)}


def test_arguments_start_what_they_say(load):
    module = load('lpr.launch.py')
    assert set(started(module)) == {'lpr_node'}
    everything = started(module, pose_graph='true', rviz='true', bag='drive.mcap')
    assert set(everything) == {'lpr_node', 'pose_graph_node', 'lpr_player', 'rviz2'}


@pytest.mark.parametrize('name', ['lpr.launch.py', 'demo.launch.py'])
def test_every_argument_is_declared_and_described(load, name):
    module = load(name)
    description = module.generate_launch_description()
    assert isinstance(description, LaunchDescription)
    declared = [e for e in description.entities if isinstance(e, DeclareLaunchArgument)]
    assert [d.name for d in declared] == [name for name, _, _ in module.ARGUMENTS]
    assert all(d.description for d in declared)


def test_profile_for_large_clouds_is_set_unless_the_user_has_one(load, monkeypatch):
    module = load('lpr.launch.py')
    for name in module.PROFILE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert len(module.shared_memory()) == 2
    monkeypatch.setenv(module.PROFILE_VARIABLES[0], 'mine.xml')
    assert module.shared_memory() == []


def test_empty_arguments_leave_parameters_alone(load):
    module = load('lpr.launch.py')
    given = {name: default for name, default, _ in module.ARGUMENTS}
    is_on = {name: value == 'true' for name, value in given.items()}
    assert module.parameters(given, is_on) == {'autostart': True}
    given |= {'map': 'a.map', 'backends': 'lio_sam, rtabmap', 'weights': 'kitti_bev'}
    assert module.parameters(given, is_on) == {
        'autostart': True,
        'weights': 'kitti_bev',
        'map_path': 'a.map',
        'load_map': True,
        'backends': ['lio_sam', 'rtabmap'],
    }
