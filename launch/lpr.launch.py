"""Start lpr_node and, optionally, pose_graph_node, RViz and a player.

    ros2 launch lpr_ros lpr.launch.py points:=/velodyne_points odometry:=/odometry/filtered
    ros2 launch lpr_ros lpr.launch.py bag:=drive.mcap pose_graph:=true rviz:=true

All arguments: ros2 launch lpr_ros lpr.launch.py --show-args
"""

import os
from pathlib import Path
import shutil
from typing import Any

from ament_index_python.packages import get_package_share_directory
from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction, SetEnvironmentVariable
from launch.events.process import ProcessExited
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from lpr_ros.ros_utils.fastdds_variable import FAST_DDS_2, FAST_DDS_3, profile_variable

SHARE = Path(get_package_share_directory('lpr_ros'))
# name, default, description
ARGUMENTS = (
    (
        'points',
        'points',
        'Topic of the LiDAR scans (sensor_msgs/PointCloud2); with a bag, its only such topic is '
        'played under this name if there is none of it',
    ),
    ('odometry', 'odometry', 'Topic of the odometry (nav_msgs/Odometry); with a bag as points'),
    ('odometry_source', '', 'Source of the odometry: auto, topic, tf or lidar'),
    ('publish_tf', 'false', 'Whether to publish LiDAR odometry on tf'),
    (
        'params_file',
        '',
        'Parameter file for lpr_node and pose_graph_node; config/lpr.yaml lists all parameters',
    ),
    ('preset', '', 'Name of a parameter file in config/presets; params_file overrides it'),
    ('weights', '', 'Checkpoint file, or the name of shipped weights'),
    ('map', '', 'Map file, loaded on startup if it exists and saved every autosave_s'),
    ('device', '', 'Device the network runs on: auto, cpu or cuda'),
    ('backends', '', 'SLAM back-ends that receive the loop closures, separated by commas'),
    (
        'pose_graph',
        'false',
        'Whether to start pose_graph_node, which publishes the corrected path and map -> odom',
    ),
    ('rviz', 'false', 'Whether to start RViz with config/lpr.rviz'),
    ('bag', '', 'Bag or dataset folder to play, with simulated time'),
    ('rate', '1.0', 'Playback rate of the bag'),
    ('use_sim_time', 'false', 'Whether to use the time on /clock'),
    (
        'autostart',
        'true',
        'Whether lpr_node configures and activates itself; false with a lifecycle manager',
    ),
    ('namespace', '', 'Namespace of all nodes'),
    ('log_level', 'info', 'Log level of all nodes: debug, info, warn or error'),
)


def generate_launch_description() -> LaunchDescription:
    """Declare the arguments and start the nodes."""
    declared = [
        DeclareLaunchArgument(name, default_value=default, description=description)
        for name, default, description in ARGUMENTS
    ]
    return LaunchDescription([*declared, *fastdds_profile(), OpaqueFunction(function=nodes)])


def fastdds_profile() -> list[SetEnvironmentVariable]:
    """Select the Fast DDS profile for large clouds, unless the user has set one."""
    if FAST_DDS_2 in os.environ or FAST_DDS_3 in os.environ:
        return []
    profile = str(SHARE / 'config' / 'fastdds.xml')
    return [SetEnvironmentVariable(profile_variable(), profile)]


def nodes(context: LaunchContext) -> list[Node]:
    """Return the nodes that the arguments select."""
    values = {name: LaunchConfiguration(name).perform(context) for name, _, _ in ARGUMENTS}
    flags = {name: value.lower() == 'true' for name, value in values.items()}
    common: dict[str, Any] = {
        'package': 'lpr_ros',
        'namespace': values['namespace'],
        'output': 'screen',
        'arguments': ['--ros-args', '--log-level', values['log_level']],
    }
    time = {'use_sim_time': flags['use_sim_time'] or bool(values['bag'])}
    topics = [(name, values[name]) for name in ('points', 'odometry') if values[name] != name]
    # Both nodes get the same files: odometry_noise must be the same in both.
    files = parameter_files(values)
    selected = [
        Node(
            **process('lpr_node'),
            name='lpr_node',
            sigkill_timeout='120',  # any earlier, it could interrupt saving the map
            parameters=[*files, time | parameters(values, flags)],
            remappings=topics,
            **common,
        )
    ]
    if flags['pose_graph']:
        selected.append(
            Node(
                **process('pose_graph_node'),
                name='pose_graph_node',
                parameters=[*files, time],
                remappings=pose_graph_topics(values, topics),
                **common,
            )
        )
    if values['bag']:
        selected.append(player(values, common))
    if flags['rviz']:
        layout = str(SHARE / 'config' / 'lpr.rviz')
        selected.append(
            Node(
                package='rviz2',
                arguments=['-d', layout],
                parameters=[time],
                **process('rviz2'),
            )
        )
    return selected


def process(executable: str) -> dict[str, str]:
    """Return the arguments by which a process ends with the launch, also if that is killed."""
    arguments = {'executable': executable, 'exec_name': executable}  # the label of its output
    if shutil.which('setpriv'):
        arguments['prefix'] = 'setpriv --pdeathsig TERM'
    return arguments


def pose_graph_topics(
    values: dict[str, str], topics: list[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Return the remappings of pose_graph_node: LiDAR odometry comes from lpr_node."""
    if values['odometry_source'] != 'lidar':
        return topics
    others = [(name, topic) for name, topic in topics if name != 'odometry']
    return [*others, ('odometry', 'lpr_node/odometry')]


def parameter_files(values: dict[str, str]) -> list[str]:
    """Return the parameter files, later ones override earlier ones; an error stops the launch."""
    files = []
    if preset := values['preset']:
        folder = SHARE / 'config' / 'presets'
        names = sorted(path.stem for path in folder.glob('*.yaml'))
        if preset not in names:
            raise ValueError(f'preset {preset!r}: expected one of {", ".join(names)}')
        files.append(str(folder / f'{preset}.yaml'))
    if given := values['params_file']:
        path = Path(given).expanduser()
        if not path.is_file():  # launch_ros only warns
            names = sorted(p.name for p in path.parent.glob('*.yaml'))
            raise ValueError(
                f'params_file {given!r}: no such file; in {path.parent.resolve()} there is '
                f'{", ".join(names) or "no .yaml file"}'
            )
        files.append(str(path))
    return files


def parameters(values: dict[str, str], flags: dict[str, bool]) -> dict[str, Any]:
    """Return the parameters set by arguments; empty arguments set none."""
    given: dict[str, Any] = {'autostart': flags['autostart']}
    names = ('weights', 'device', 'odometry_source')
    given |= {name: values[name] for name in names if values[name]}
    if flags['publish_tf']:
        given['publish_tf'] = True
    if values['map']:
        given |= {'map_path': values['map'], 'load_map': True}
    if values['backends']:
        given['backends'] = [name.strip() for name in values['backends'].split(',')]
    return given


def player(values: dict[str, str], common: dict[str, Any]) -> Node:
    """Return the player of the bag, which waits for a subscriber of the scans.

    The nodes stay at the end of the bag, but without a player that works they have nothing to do.
    """
    topics = ['--points', values['points'], '--odometry', values['odometry']]
    command = [values['bag'], '--rate', values['rate'], '--wait', '1', '--quiet', *topics]
    arguments = {'arguments': command + common['arguments']}
    return Node(**process('lpr_player'), on_exit=end_with_failed_player, **common | arguments)


def end_with_failed_player(event: ProcessExited, context: LaunchContext) -> None:
    """End the launch, with an error, if the player did."""
    if event.returncode != 0 and not context.is_shutdown:
        raise RuntimeError(f'lpr_player failed with exit status {event.returncode}, see above')
