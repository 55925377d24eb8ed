"""The launch files declare their arguments and start the nodes that these select."""

import importlib.util
from pathlib import Path
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import launch_stand_in
import pytest
from ros_processes import wait_until

from lpr_ros.player.sources import open_playback
from lpr_ros.ros_utils.fastdds_variable import FAST_DDS_2, FAST_DDS_3

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def load(monkeypatch):
    """Load a launch file of this repository; nodes become records of their arguments."""
    launch_stand_in.install(monkeypatch)
    monkeypatch.setattr(
        'ament_index_python.packages.get_package_share_directory', lambda name: str(ROOT)
    )

    def load(name, *, has_rviz=False):
        packages = {'lpr_ros': '', **({'rviz2': ''} if has_rviz else {})}
        monkeypatch.setattr(
            'ament_index_python.packages.get_packages_with_prefixes', lambda: packages
        )
        path = ROOT / 'launch' / name
        spec = importlib.util.spec_from_file_location(name.replace('.', '_'), path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        if hasattr(module, 'Node'):
            monkeypatch.setattr(module, 'Node', lambda **given: SimpleNamespace(**given))
        return module

    return load


def started(module, **arguments):
    """Return the nodes that the arguments start, by executable."""
    from launch import LaunchContext

    context = LaunchContext()
    for name, default, _ in module.ARGUMENTS:
        context.launch_configurations[name] = arguments.get(name, default)
    return {node.executable: node for node in module.nodes(context)}


def test_arguments_select_the_nodes(load):
    module = load('lpr.launch.py')
    assert set(started(module)) == {'lpr_node'}
    everything = started(module, pose_graph='true', rviz='true', bag='drive.mcap')
    assert set(everything) == {'lpr_node', 'pose_graph_node', 'lpr_player', 'rviz2'}
    assert everything['lpr_player'].arguments[0] == 'drive.mcap'
    assert all({'use_sim_time': True}.items() <= everything[name].parameters[-1].items()
               for name in ('lpr_node', 'pose_graph_node', 'rviz2'))  # fmt: skip


def test_the_player_publishes_the_topics_that_the_nodes_subscribe_to(load):
    nodes = started(load('lpr.launch.py'), bag='drive.mcap', odometry='/odom', namespace='robot')
    command = nodes['lpr_player'].arguments
    assert command[command.index('--points') + 1] == 'points'
    assert command[command.index('--odometry') + 1] == '/odom'
    assert nodes['lpr_player'].namespace == nodes['lpr_node'].namespace == 'robot'
    assert nodes['lpr_node'].remappings == [('odometry', '/odom')]


def test_executables_are_console_scripts_of_the_package(load):
    nodes = started(load('lpr.launch.py'), pose_graph='true', bag='drive.mcap')
    scripts = set(re.findall(r"'(\w+) = lpr_ros\.", (ROOT / 'setup.py').read_text()))
    assert 'lpr_node' in nodes
    assert {name for name, node in nodes.items() if node.package == 'lpr_ros'} <= scripts


def test_a_player_that_fails_ends_the_launch(load):
    from launch import LaunchContext

    nodes = started(load('lpr.launch.py'), bag='drive.mcap')
    on_exit, context = nodes['lpr_player'].on_exit, LaunchContext()
    assert on_exit(SimpleNamespace(returncode=0), context) is None  # the end of the bag
    with pytest.raises(RuntimeError, match='lpr_player failed with exit status 1'):
        on_exit(SimpleNamespace(returncode=1), context)


def test_a_node_that_saves_its_map_is_asked_soon_and_killed_late(load):
    """An interrupt of the launch alone reaches its nodes as SIGTERM: 5 s later by default."""
    node = started(load('lpr.launch.py'))['lpr_node']
    assert not hasattr(node, 'sigterm_timeout')
    assert float(node.sigkill_timeout) >= 60.0


@pytest.mark.skipif(not shutil.which('setpriv'), reason='setpriv is not installed')
def test_a_launch_that_is_killed_leaves_no_process_behind(load):
    nodes = started(load('lpr.launch.py'), pose_graph='true', rviz='true', bag='drive.mcap')
    (prefix,) = {node.prefix for node in nodes.values()}
    # A parent that starts a child with the prefix, says its pid, and waits to be killed.
    code = (
        'import subprocess, sys, time\n'
        'print(subprocess.Popen(sys.argv[1:]).pid, flush=True)\n'
        'time.sleep(60)'
    )
    command = [sys.executable, '-c', code, *prefix.split(), 'sleep', '60']
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    # setpriv has done its work once it has become the command.
    is_ready = Path(f'/proc/{child}/comm').read_text
    wait_until(lambda: is_ready() == 'sleep\n', 'the child')
    parent.terminate()
    parent.wait(60)
    wait_until(lambda: not is_running(child), 'the end of the child')


def is_running(pid):
    try:
        return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0] != 'Z'
    except OSError:
        return False


def test_both_nodes_read_the_same_parameter_files(load, tmp_path):
    """So that one /** entry sets odometry_noise for both."""
    mine = tmp_path / 'mine.yaml'
    mine.touch()
    nodes = started(
        load('lpr.launch.py'), pose_graph='true', preset='livox', params_file=str(mine)
    )
    expected = [str(ROOT / 'config' / 'presets' / 'livox.yaml'), str(mine)]
    for name in ('lpr_node', 'pose_graph_node'):
        assert nodes[name].parameters[:-1] == expected


def test_a_missing_preset_or_file_stops_the_launch_with_the_names_there_are(load, tmp_path):
    module = load('lpr.launch.py')
    with pytest.raises(ValueError, match=r"preset 'livoks': expected one of lio_sam, livox, vel"):
        started(module, preset='livoks')
    (tmp_path / 'other.yaml').touch()
    with pytest.raises(ValueError, match=r'mine\.yaml.* no such file; .* there is other\.yaml'):
        started(module, params_file=str(tmp_path / 'mine.yaml'))
    with pytest.raises(ValueError, match=r'there is no \.yaml file'):
        started(module, params_file=str(tmp_path / 'nowhere' / 'mine.yaml'))


@pytest.mark.parametrize('name', ['lpr.launch.py', 'demo.launch.py', 'lpr_slam.launch.py'])
def test_every_argument_is_declared_and_described(load, name):
    module = load(name)
    from launch.actions import DeclareLaunchArgument

    entities = module.generate_launch_description().entities
    declared = [e for e in entities if isinstance(e, DeclareLaunchArgument)]
    assert [d.name for d in declared] == [name for name, _, _ in module.ARGUMENTS]
    assert all(re.fullmatch(r'[A-Z].*[^.]', d.description) for d in declared)


@pytest.mark.parametrize('name', ['demo.launch.py', 'lpr_slam.launch.py'])
def test_an_including_file_sets_only_arguments_that_exist(load, name):
    given = {name for name, _, _ in load(name).ARGUMENTS} | {'pose_graph'}
    assert given <= {name for name, _, _ in load('lpr.launch.py').ARGUMENTS}


def test_demo_plays_a_drive_that_needs_no_file_and_starts_rviz_where_it_is(load):
    for has_rviz, rviz in ((True, 'true'), (False, 'false')):
        arguments = {n: v for n, v, _ in load('demo.launch.py', has_rviz=has_rviz).ARGUMENTS}
        assert arguments['rviz'] == rviz
        assert open_playback([Path(arguments['bag'])]).topics.keys() >= {'/points', '/odometry'}


def test_slam_from_a_lidar_alone_joins_its_nodes(load):
    """The defaults of lpr_slam.launch.py, and the topic of the LiDAR."""
    arguments = {name: default for name, default, _ in load('lpr_slam.launch.py').ARGUMENTS}
    arguments |= {'pose_graph': 'true', 'points': '/velodyne_points'}
    nodes = started(load('lpr.launch.py'), **arguments)
    assert set(nodes) == {'lpr_node', 'pose_graph_node'}
    given = nodes['lpr_node'].parameters[-1]
    assert (given['odometry_source'], given['publish_tf']) == ('lidar', True)
    assert ('points', '/velodyne_points') in nodes['lpr_node'].remappings
    assert ('odometry', 'lpr_node/odometry') in nodes['pose_graph_node'].remappings
    others = started(load('lpr.launch.py'), pose_graph='true', odometry='/odom')
    assert others['pose_graph_node'].remappings == [('odometry', '/odom')]
    assert 'odometry_source' not in others['lpr_node'].parameters[-1]


def test_fastdds_profile_is_set_unless_the_user_has_one(load, monkeypatch):
    module = load('lpr.launch.py')
    for name in (FAST_DDS_2, FAST_DDS_3):
        monkeypatch.delenv(name, raising=False)
    assert len(module.fastdds_profile()) == 1
    monkeypatch.setenv(FAST_DDS_2, 'mine.xml')
    assert module.fastdds_profile() == []


def test_empty_arguments_set_no_parameters(load):
    module = load('lpr.launch.py')
    values = {name: default for name, default, _ in module.ARGUMENTS}
    flags = {name: value == 'true' for name, value in values.items()}
    assert module.parameters(values, flags) == {'autostart': True}
    values |= {'map': 'a.map', 'backends': 'lio_sam, rtabmap', 'weights': 'kitti_bev'}
    assert module.parameters(values, flags) == {
        'autostart': True,
        'weights': 'kitti_bev',
        'map_path': 'a.map',
        'load_map': True,
        'backends': ['lio_sam', 'rtabmap'],
    }
