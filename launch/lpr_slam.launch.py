"""SLAM from a LiDAR alone: odometry, loop closure and pose graph.

    ros2 launch lpr_ros lpr_slam.launch.py points:=/velodyne_points

Publishes map -> odom -> base_link on tf. Takes every argument of lpr.launch.py.
"""

from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration

# name, default, description
ARGUMENTS = (
    ('points', 'points', 'Topic of the LiDAR scans (sensor_msgs/PointCloud2)'),
    ('odometry_source', 'lidar', 'Source of the odometry: lidar, auto, topic or tf'),
    ('publish_tf', 'true', 'Whether to publish LiDAR odometry on tf'),
)


def generate_launch_description() -> LaunchDescription:
    """Include lpr.launch.py with LiDAR odometry and pose_graph_node."""
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
