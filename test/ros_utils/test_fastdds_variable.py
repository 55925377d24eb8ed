"""The profile of Fast DDS: the variable that is set is read, without a warning."""

import subprocess
import sys

import pytest

from lpr_ros.ros_utils.fastdds_variable import FAST_DDS_2, FAST_DDS_3, profile_variable

START = 'import rclpy; rclpy.init(); rclpy.create_node("probe"); rclpy.shutdown()'


@pytest.mark.parametrize(
    ('distro', 'expected'),
    [
        ('humble', FAST_DDS_2),
        ('jazzy', FAST_DDS_2),
        ('kilted', FAST_DDS_3),
        ('rolling', FAST_DDS_3),
    ],
)
def test_the_variable_depends_on_the_distribution(monkeypatch, distro, expected):
    monkeypatch.setenv('ROS_DISTRO', distro)
    assert profile_variable() == expected


def test_the_profile_is_read_here_without_a_warning(ros, tmp_path, monkeypatch):
    def output():
        command = [sys.executable, '-c', START]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout + done.stderr

    assert output() == ''  # the fixture has selected config/fastdds.xml
    damaged = tmp_path / 'damaged.xml'
    damaged.write_text('<damaged')
    monkeypatch.setenv(profile_variable(), str(damaged))
    assert 'damaged.xml' in output()
