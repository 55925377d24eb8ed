"""lpr_node as a subprocess, with publishers, subscriptions and service clients for it."""

from collections.abc import Iterable, Sequence
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from nav_msgs.msg import Odometry, Path
import numpy as np
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from ros_processes import NodeProcess, Ros, wait_until
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Float64MultiArray
from std_srvs.srv import Trigger
from toy_drive import Step, step, write_weights
from visualization_msgs.msg import MarkerArray

from lpr_ros.conversions.clouds import cloud_message
from lpr_ros.conversions.poses import odometry_message
from lpr_ros.core.io.pointcloud2 import pack_cloud
from lpr_ros.ros_utils.qos import LATCHED, LOOPS

START_S = 90.0  # on a busy machine; importing torch takes seconds
NODE = '/lpr_node'
# A lap is 75 m: keyframes one lap ago may match, those across the circle may not.
SHORT_LAPS = {'database.exclude_s': 3.0, 'database.exclude_m': 74.0}


def scan_balance(status: dict[str, str]) -> int:
    """Return the received scans minus those described, passed over or dropped."""
    ends = [n for name, n in status.items() if name in ('described', 'passed')]
    ends += [n for name, n in status.items() if name.startswith('dropped.')]
    return int(status['scans']) - sum(map(int, ends))


def cloud_of(step: Step) -> PointCloud2:
    count = len(step.points)
    zeros = np.zeros(count, np.float32)
    packed = pack_cloud(step.points, zeros, np.zeros(count, np.uint16), zeros)
    return cloud_message(step.stamp_ns, 'lidar', packed)


def odometry_of(step: Step, shift_ns: int = 0) -> Odometry:
    return odometry_message(step.stamp_ns + shift_ns, 'odom', 'lidar', step.T_odom_sensor)


class Rig:
    """One lpr_node process and its counterparts."""

    def __init__(
        self,
        ros: Ros,
        topic: str = 'points',
        program: Sequence[str] = ('-m', 'lpr_ros.lpr_node'),
        **parameters: Any,
    ):
        self.ros = ros
        self.weights = ros.folder / 'weights.safetensors'
        if not self.weights.exists():
            write_weights(self.weights)
        settings = {'weights': str(self.weights)} | SHORT_LAPS | parameters
        self.process = start_node(ros, settings, '-r', f'points:={topic}', program=program)
        self.node = ros.node()
        self.points = self.node.create_publisher(PointCloud2, topic, 5)
        self.odometry = self.node.create_publisher(Odometry, 'odometry', 100)
        self.candidates = ros.listen(self.node, Float64MultiArray, f'{NODE}/candidates')
        self.loops = ros.listen(self.node, Odometry, f'{NODE}/loop_closures', LOOPS)
        self.retracted = ros.listen(self.node, Odometry, f'{NODE}/retracted_loop_closures', LOOPS)
        self.keyframes = ros.listen(self.node, Path, f'{NODE}/keyframes', LATCHED)
        self.markers = ros.listen(self.node, MarkerArray, f'{NODE}/markers', LATCHED)
        self.diagnostics = ros.listen(self.node, DiagnosticArray, '/diagnostics')

    def wait_active(self) -> None:
        wait_until(
            lambda: self.process.popen.poll() is not None
            or (self.points.get_subscription_count() and self.odometry.get_subscription_count()),
            'subscriptions of the node', START_S,
        )  # fmt: skip
        assert self.process.popen.poll() is None, self.process.output
        wait_until(lambda: self.node.count_publishers(f'{NODE}/candidates'), 'candidates')

    def send(self, sent: Step) -> None:
        """Publish one scan after its odometry."""
        self.odometry.publish(odometry_of(sent))
        self.points.publish(cloud_of(sent))

    def take(self, sent: Step) -> Float64MultiArray:
        """Send a scan and wait until it is a keyframe.

        Repeat it after a timeout: best-effort scans may be lost during discovery.
        """
        self.send(sent)
        try:
            return self.candidates.take(8.0)
        except AssertionError:
            self.send(sent)
            return self.candidates.take()

    def drive(self, indices: Iterable[int], **options: Any) -> None:
        for index in indices:
            self.take(step(index, **options))

    def status(self) -> dict[str, str]:
        """Return the next diagnostics of this node; others may publish on the topic too."""
        self.diagnostics.drain()
        (status,) = self.diagnostics.take_until(lambda m: m.status[0].name == NODE).status
        return {v.key: v.value for v in status.values} | {'summary': status.message}

    def status_with(self, name: str, number: int) -> dict[str, str]:
        """Wait until a counter reaches a number, and return the diagnostics."""
        return wait_until(
            lambda: s if int((s := self.status()).get(name, 0)) >= number else None,
            f'{name} >= {number}',
        )

    def trigger(self, name: str) -> Trigger.Response:
        return self.ros.call(self.node, Trigger, f'{NODE}/{name}')

    def reset(self) -> None:
        """Reset the node and discard the messages received before."""
        assert self.trigger('reset').success
        for inbox in (
            self.candidates,
            self.loops,
            self.retracted,
            self.keyframes,
            self.markers,
        ):
            inbox.drain()

    def set(self, name: str, value: Any) -> tuple[bool, str]:
        parameter = Parameter(name, value=value).to_parameter_msg()
        request = SetParameters.Request(parameters=[parameter])
        service = f'{NODE}/set_parameters'
        (result,) = self.ros.call(self.node, SetParameters, service, request).results
        return result.successful, result.reason

    def change_state(self, name: str) -> bool:
        number = getattr(Transition, f'TRANSITION_{name.upper()}')
        request = ChangeState.Request(transition=Transition(id=number))
        return self.ros.call(self.node, ChangeState, f'{NODE}/change_state', request).success

    @property
    def state(self) -> str:
        return self.ros.call(self.node, GetState, f'{NODE}/get_state').current_state.label


def start_node(
    ros: Ros,
    parameters: dict[str, Any],
    *more: str,
    program: Sequence[str] = ('-m', 'lpr_ros.lpr_node'),
) -> NodeProcess:
    """Start lpr_node with these parameters and further ROS arguments."""
    arguments = [a for name, value in parameters.items() for a in ('-p', f'{name}:={value}')]
    return ros.start(*program, '--ros-args', *arguments, *more)


def sessions_of(path: Path) -> list[str]:
    return [pose.header.frame_id for pose in path.poses]


def ends_of(loop: Odometry) -> tuple[int, int]:
    """Return query and match id."""
    return tuple(int(f.split('/')[1]) for f in (loop.child_frame_id, loop.header.frame_id))
