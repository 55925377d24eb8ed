"""The reference back-end as a node: odometry and loops in, the corrected path out.

In: odometry, lpr_node/keyframes (nav_msgs/Path), lpr_node/loop_closures (nav_msgs/Odometry).
Out: ~/path (nav_msgs/Path, the place in it is the keyframe), ~/map_to_odom
(geometry_msgs/TransformStamped) and, where tf2_msgs is installed, the same on /tf.
Services: ~/save_g2o, and ~/optimise, which weighs every loop once more and drops wrong ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
import math
import sys

from geometry_msgs.msg import PoseStamped, TransformStamped
from nav_msgs.msg import Odometry, Path
import numpy as np
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from std_srvs.srv import Trigger

from lpr_ros.core.back_end import BackEndConfig
from lpr_ros.core.clock import CLOCK_JUMP_NS
from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import BackendError, ConfigError, LprError
from lpr_ros.core.files import user_path
from lpr_ros.core.g2o import write_g2o
from lpr_ros.core.pointcloud2 import stamp_ns
from lpr_ros.graph_feed import GraphFeed
from lpr_ros.interfaces import interface
from lpr_ros.parameters import ConfigParameters
from lpr_ros.pose_messages import header_message, pose_messages, transform_message
from lpr_ros.qos import LATCHED, LOOPS, ODOMETRY
from lpr_ros.running import run_node


@dataclass(frozen=True)
class PoseGraphNodeConfig(Config):
    """Settings of pose_graph_node."""

    map_frame: str = option('map', 'frame of the corrected path', fixed=True)
    path_interval_s: float = option(
        0.2, 'loops correct the poses and the path is published no more often', unit='s',
        low=0.01, high=60.0, fixed=True,
    )  # fmt: skip
    g2o_path: str = option(
        'pose_graph.g2o', 'file that ~/save_g2o writes, in a folder that is there', fixed=True
    )
    back_end: BackEndConfig = field(
        default_factory=BackEndConfig, metadata={'fixed': True}
    )


class PoseGraphNode(Node):
    """Feeds the pose graph and tells what became of it."""

    def __init__(self, **options: object):
        super().__init__('pose_graph_node', **options)
        parameters = ConfigParameters(self, PoseGraphNodeConfig())
        self._config = parameters.read()
        parameters.watch(lambda config: None)  # all are read at start: a change is refused
        self._feed = GraphFeed(self._config.back_end)
        self._odometry_ns: int | None = None
        self._odometry_frame = ''
        self._session: str | None = None  # of the odometry that comes in now
        self._is_path_due = False
        self._path = self.create_publisher(Path, '~/path', LATCHED)
        self._map_to_odom = self.create_publisher(TransformStamped, '~/map_to_odom', 10)
        self._tf = None
        try:
            self._tf_message = interface('tf2_msgs/msg/TFMessage')
            self._tf = self.create_publisher(self._tf_message, '/tf', 100)
        except BackendError as error:
            self.get_logger().warning(f'nothing on /tf, only ~/map_to_odom: {error}')
        self.create_subscription(Path, 'lpr_node/keyframes', self._on_keyframes, LATCHED)
        self.create_subscription(Odometry, 'lpr_node/loop_closures', self._on_loop, LOOPS)
        self.create_subscription(Odometry, 'odometry', self._on_odometry, ODOMETRY)
        self.create_service(Trigger, '~/save_g2o', self._on_save)
        self.create_service(Trigger, '~/optimise', self._on_optimise)
        clock = Clock(clock_type=ClockType.STEADY_TIME)  # also while the time of a bag stands
        self.create_timer(self._config.path_interval_s, self._publish_path, clock=clock)

    def _on_keyframes(self, message: Path) -> None:
        if self._feed.take_path(message):
            self._session = self._feed.session
            self._is_path_due = True
        self._tell_rejected()

    def _on_loop(self, message: Odometry) -> None:
        self._is_path_due |= self._feed.take_loop(message)
        self._tell_rejected()

    def _on_odometry(self, message: Odometry) -> None:
        """Tell where odometry is in the map, at its own rate: others interpolate between."""
        stamp = stamp_ns(message.header)
        if self._odometry_ns is not None and stamp < self._odometry_ns - CLOCK_JUMP_NS:
            self._session = None  # nothing is known of the new odometry until its first keyframe
        self._odometry_ns, self._odometry_frame = stamp, message.header.frame_id
        self._publish_map_to_odom(stamp)

    def _publish_map_to_odom(self, stamp: int) -> None:
        T_map_odom = np.eye(4)
        if self._session is not None:
            T_map_odom = self._feed.back_end.T_map_odom(self._session)
        message = TransformStamped(
            header=header_message(stamp, self._config.map_frame),
            child_frame_id=self._odometry_frame,
            transform=transform_message(T_map_odom),
        )
        self._map_to_odom.publish(message)
        if self._tf is not None:
            self._tf.publish(self._tf_message(transforms=[message]))

    def _publish_path(self) -> None:
        if not self._is_path_due:
            return
        self._is_path_due = False
        self._feed.back_end.settle()  # here: loops that come together are settled together
        self._path.publish(self._path_message())

    def _path_message(self) -> Path:
        """Make the path of all keyframes; those of another map are in a frame of that name."""
        back_end, stamps = self._feed.back_end, self._feed.stamps_ns
        poses = back_end.poses
        here = back_end.map_of(max(poses)) if poses else None
        corrected = np.array([*poses.values()]).reshape(-1, 4, 4)
        messages = dict(zip(poses, pose_messages(corrected), strict=True))
        path = Path(header=header_message(max(stamps, default=0), self._config.map_frame))
        for number, stamp in enumerate(stamps):
            pose = PoseStamped(header=header_message(stamp, self._config.map_frame))
            if number not in messages:
                pose.pose.position.x = math.nan
            else:
                pose.pose = messages[number]
                if (anchor := back_end.map_of(number)) != here:
                    pose.header.frame_id = f'{self._config.map_frame}/{anchor}'
            path.poses.append(pose)
        return path

    def _on_save(self, request: Trigger.Request, answer: Trigger.Response) -> Trigger.Response:
        back_end = self._feed.back_end
        back_end.settle()
        try:
            path = user_path(self._config.g2o_path, 'g2o_path')
            if path.suffix != '.g2o' or not path.parent.is_dir():
                raise ConfigError(f'{path}: expected a file .g2o in a folder that is there')
            write_g2o(path, back_end.poses, back_end.graph.edges)
        except (LprError, OSError) as error:
            answer.message = f'the graph is not saved: {error}'
            return answer
        answer.success = True
        loops = sum(edge.is_loop for edge in back_end.graph.edges)
        answer.message = f'{path}: {len(back_end.poses)} keyframes, {loops} loops'
        return answer

    def _on_optimise(
        self, request: Trigger.Request, answer: Trigger.Response
    ) -> Trigger.Response:
        dropped = self._feed.back_end.finish()
        self._is_path_due = True
        answer.success = True
        pairs = ', '.join(f'{edge.to_id} to {edge.from_id}' for edge in dropped)
        answer.message = f'{len(dropped)} loops dropped' + (f': {pairs}' if pairs else '')
        return answer

    def _tell_rejected(self) -> None:
        for reason in self._feed.rejected:
            self.get_logger().warning(reason)
        self._feed.rejected.clear()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the node until SIGINT or SIGTERM."""
    return run_node(PoseGraphNode, argv)


if __name__ == '__main__':
    sys.exit(main())
