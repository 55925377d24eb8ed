"""The environment variable that names the profile of Fast DDS."""

from importlib.metadata import PackageNotFoundError, version
import os

FAST_DDS_2, FAST_DDS_3 = 'FASTRTPS_DEFAULT_PROFILES_FILE', 'FASTDDS_DEFAULT_PROFILES_FILE'
DISTROS_WITH_FAST_DDS_2 = ('humble', 'iron', 'jazzy')
FIRST_RMW_OF_FAST_DDS_3 = 9  # major version of rmw_fastrtps_cpp


def profile_variable() -> str:
    """Return the variable that is read here: Fast DDS 2 knows one only, 3 warns about that one."""
    if distro := os.environ.get('ROS_DISTRO'):
        return FAST_DDS_2 if distro in DISTROS_WITH_FAST_DDS_2 else FAST_DDS_3
    try:
        major = int(version('ros-rmw-fastrtps-cpp').split('.')[0])  # installed as a wheel
    except PackageNotFoundError:
        return FAST_DDS_3
    return FAST_DDS_3 if major >= FIRST_RMW_OF_FAST_DDS_3 else FAST_DDS_2
