"""pose_graph_node compares its odometry noise with that of lpr_node, over DDS."""

import signal

from ros_processes import NodeProcess, Ros, wait_until
from std_srvs.srv import Trigger

# Has the name and the pipeline parameters of lpr_node; responds once the file `go` exists.
FAKE_LPR_NODE = """
from pathlib import Path
import time
import rclpy
from lpr_ros.core.pipeline import PipelineConfig
from lpr_ros.ros_utils.parameters import ConfigParameters
rclpy.init()
node = rclpy.create_node('lpr_node')
print(ConfigParameters(node, PipelineConfig()).read().odometry_noise)
while not Path('go').exists():
    time.sleep(0.01)
rclpy.spin(node)
"""


def start_fake_lpr_node(ros: Ros, *arguments: str) -> NodeProcess:
    return ros.start('-c', FAKE_LPR_NODE, '--ros-args', *arguments)


def warnings(process: NodeProcess) -> list[str]:
    lines = [line for line in process.output.splitlines() if 'odometry_noise.' in line]
    return [line.partition(']: ')[2].partition(':')[0] for line in lines if 'WARN' in line]


def test_each_difference_is_warned_about_once_per_start_of_lpr_node(ros: Ros):
    process = ros.start(
        '-m', 'lpr_ros.pose_graph_node', '--ros-args', '-p', 'odometry_noise.tilt_deg:=0.4'
    )
    (ros.folder / 'go').touch()
    first = start_fake_lpr_node(ros, '-p', 'odometry_noise.heading_deg:=2.0')
    expected = [
        'odometry_noise.heading_deg is 0.5 in /pose_graph_node but 2.0 in /lpr_node',
        'odometry_noise.tilt_deg is 0.4 in /pose_graph_node but 0.2 in /lpr_node',
    ]
    wait_until(lambda: len(warnings(process)) >= 2, 'both warnings')
    assert warnings(process) == expected

    # After kill -9 the service of the old instance stays in the graph for a while. The new one
    # does not respond at first, which must not block pose_graph_node.
    first.interrupt(signal.SIGKILL)
    (ros.folder / 'go').unlink()
    second = start_fake_lpr_node(
        ros, '-p', 'odometry_noise.position_fraction:=0.05', '-p', 'odometry_noise.tilt_deg:=0.4'
    )
    wait_until(lambda: 'OdometryNoiseConfig' in second.output, 'second instance')
    assert ros.call(ros.node(), Trigger, '/pose_graph_node/optimize').success
    (ros.folder / 'go').touch()
    expected.append(
        'odometry_noise.position_fraction is 0.01 in /pose_graph_node but 0.05 in /lpr_node'
    )
    wait_until(lambda: len(warnings(process)) >= 3, 'warning about the second instance')
    assert warnings(process) == expected


def test_one_entry_in_a_params_file_sets_both_nodes(ros: Ros):
    params_file = ros.folder / 'params.yaml'
    params_file.write_text('/**: {ros__parameters: {odometry_noise: {heading_deg: 2.0}}}')
    (ros.folder / 'go').touch()
    other = start_fake_lpr_node(ros, '--params-file', str(params_file))
    process = ros.start(
        '-m', 'lpr_ros.pose_graph_node', '--ros-args', '--params-file', str(params_file)
    )
    wait_until(lambda: 'odometry_noise is the same in /lpr_node' in process.output, 'comparison')
    assert 'heading_deg=2.0' in other.output
    assert not warnings(process)
