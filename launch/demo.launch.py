"""Play a drive to lpr_node and pose_graph_node, and show it in RViz where that is installed.

    ros2 launch lpr_ros demo.launch.py
    ros2 launch lpr_ros demo.launch.py bag:=drive.mcap rviz:=false

The default drive is simulated while it is played and needs no file.
"""

from pathlib import Path

from ament_index_python.packages import get_package_share_directory, get_packages_with_prefixes
from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration

# name, default, description
ARGUMENTS = (
    ('bag', 'simulated_drive', 'Bag or dataset folder to play; simulated_drive needs no file'),
    ('rate', '1.0', 'Playback rate of the bag'),
    (
        'rviz',
        str('rviz2' in get_packages_with_prefixes()).lower(),
        'Whether to start RViz; by default where it is installed',
    ),
)


def generate_launch_description() -> LaunchDescription:
    """Include lpr.launch.py with a bag, pose_graph_node and RViz."""
    included = Path(get_package_share_directory('lpr_ros')) / 'launch' / 'lpr.launch.py'
    values = {name: LaunchConfiguration(name) for name, _, _ in ARGUMENTS}
    return LaunchDescription([
        *(
            DeclareLaunchArgument(name, default_value=default, description=description)
            for name, default, description in ARGUMENTS
        ),
        IncludeLaunchDescription(
            PythonLaunchDescriptionSource(str(included)),
            launch_arguments=({'pose_graph': 'true'} | values).items(),
        ),
    ])  # fmt: skip
