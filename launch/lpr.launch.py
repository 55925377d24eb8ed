"""Loop closures for a robot: lpr_node, and on request the pose graph, RViz and a player.

    ros2 launch lpr_ros lpr.launch.py points:=/velodyne_points odometry:=/odometry/filtered
    ros2 launch lpr_ros lpr.launch.py bag:=drive.mcap pose_graph:=true rviz:=true

All arguments: ros2 launch lpr_ros lpr.launch.py --show-args
"""

import os
from pathlib import Path
from typing import Any

from ament_index_python.packages import get_package_share_directory
from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction, SetEnvironmentVariable
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

SHARE = Path(get_package_share_directory('lpr_ros'))
# Fast DDS 2 (Humble, Jazzy) and 3 (Kilted) read it by different names.
PROFILE_VARIABLES = ('FASTRTPS_DEFAULT_PROFILES_FILE', 'FASTDDS_DEFAULT_PROFILES_FILE')
# name, default, meaning
ARGUMENTS = (
    ('points', 'points', 'topic of the clouds'),
    ('odometry', 'odometry', 'topic of the odometry'),
    ('params_file', '', 'your parameters; config/lpr.yaml lists them all'),
    ('preset', '', 'name of a file in config/presets, read before params_file'),
    ('weights', '', 'checkpoint file, or the name of shipped weights'),
    ('map', '', 'map file: loaded at start where it exists, saved every autosave_s'),
    ('device', '', 'auto, cpu or cuda'),
    ('backends', '', 'SLAM back-ends that get the loops, separated by commas'),
    ('pose_graph', 'false', 'true starts pose_graph_node: corrected path and map -> odom'),
    ('rviz', 'false', 'true starts RViz with config/lpr.rviz'),
    ('bag', '', 'bag or dataset folder to play; sets simulated time'),
    ('rate', '1.0', 'speed of playing'),
    ('use_sim_time', 'false', 'true takes the time from /clock'),
    ('autostart', 'true', 'false leaves configuring and activating to a lifecycle manager'),
    ('namespace', '', 'namespace of all nodes'),
    ('log_level', 'info', 'debug, info, warn or error'),
)


def generate_launch_description() -> LaunchDescription:
    """Declare the arguments, then start what they ask for."""
    declared = [
        DeclareLaunchArgument(name, default_value=default, description=meaning)
        for name, default, meaning in ARGUMENTS
    ]
    return LaunchDescription([*declared, *shared_memory(), OpaqueFunction(function=nodes)])


def shared_memory() -> list[SetEnvironmentVariable]:
    """Let large clouds through between processes, unless the user has a profile of their own."""
    if any(name in os.environ for name in PROFILE_VARIABLES):
        return []
    profile = str(SHARE / 'config' / 'fastdds.xml')
    return [SetEnvironmentVariable(name, profile) for name in PROFILE_VARIABLES]


def nodes(context: LaunchContext) -> list[Node]:
    """Return the nodes that the arguments ask for."""
    given = {name: LaunchConfiguration(name).perform(context) for name, _, _ in ARGUMENTS}
    is_on = {name: value.lower() == 'true' for name, value in given.items()}
    common: dict[str, Any] = {
        'package': 'lpr_ros',
        'namespace': given['namespace'],
        'output': 'screen',
        'arguments': ['--ros-args', '--log-level', given['log_level']],
    }
    time = {'use_sim_time': is_on['use_sim_time'] or bool(given['bag'])}
    topics = [(name, given[name]) for name in ('points', 'odometry') if given[name] != name]
    started = [
        Node(
            executable='lpr_node',
            name='lpr_node',
            sigterm_timeout='120',  # it saves the map at its end; killed meanwhile, it would not
            parameters=[*parameter_files(given), time | parameters(given, is_on)],
            remappings=topics,
            **common,
        )
    ]
    if is_on['pose_graph']:
        started.append(
            Node(
                executable='pose_graph_node',
                name='pose_graph_node',
                parameters=[*parameter_files(given), time],
                remappings=topics,
                **common,
            )
        )
    if given['bag']:
        started.append(player(given, common))
    if is_on['rviz']:
        layout = str(SHARE / 'config' / 'lpr.rviz')
        started.append(
            Node(package='rviz2', executable='rviz2', arguments=['-d', layout], parameters=[time])
        )
    return started


def parameter_files(given: dict[str, str]) -> list[str]:
    """Return the files with parameters, the later ones count."""
    preset = [str(SHARE / 'config' / 'presets' / f'{given["preset"]}.yaml')]
    return preset * bool(given['preset']) + [given['params_file']] * bool(given['params_file'])


def parameters(given: dict[str, str], is_on: dict[str, bool]) -> dict[str, Any]:
    """Return what the arguments set; an empty one leaves it to the files and the defaults."""
    values: dict[str, Any] = {'autostart': is_on['autostart']}
    values |= {name: given[name] for name in ('weights', 'device') if given[name]}
    if given['map']:
        values |= {'map_path': given['map'], 'load_map': True}
    if given['backends']:
        values['backends'] = [name.strip() for name in given['backends'].split(',')]
    return values


def player(given: dict[str, str], common: dict[str, Any]) -> Node:
    """Return the player of the bag, which waits for lpr_node to listen."""
    command = [given['bag'], '--rate', given['rate'], '--wait', '1', '--quiet']
    return Node(executable='lpr_player', **common | {'arguments': command + common['arguments']})
