"""Play a recorded drive with everything on: loops, pose graph and RViz.

    ros2 launch lpr_ros demo.launch.py bag:=demo/drive

`make demo` simulates that drive.
"""

from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration

ARGUMENTS = (
    ('bag', 'demo/drive', 'bag or dataset folder to play'),
    ('rate', '1.0', 'speed of playing'),
    ('rviz', 'true', 'true starts RViz'),
)


def generate_launch_description() -> LaunchDescription:
    """Include lpr.launch.py with a bag, the pose graph and RViz."""
    everything = Path(get_package_share_directory('lpr_ros')) / 'launch' / 'lpr.launch.py'
    given = {name: LaunchConfiguration(name) for name, _, _ in ARGUMENTS}
    return LaunchDescription([
        *(
            DeclareLaunchArgument(name, default_value=default, description=meaning)
            for name, default, meaning in ARGUMENTS
        ),
        IncludeLaunchDescription(
            PythonLaunchDescriptionSource(str(everything)),
            launch_arguments=({'pose_graph': 'true'} | given).items(),
        ),
    ])  # fmt: skip
