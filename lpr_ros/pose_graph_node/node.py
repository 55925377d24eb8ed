"""The reference back-end: optimizes keyframes and loop closures into a corrected path.

Subscribes to odometry, lpr_node/keyframes (nav_msgs/Path), lpr_node/loop_closures and
lpr_node/retracted_loop_closures (nav_msgs/Odometry). Publishes ~/path (nav_msgs/Path; the index of
a pose is the keyframe id), ~/map_to_odom (geometry_msgs/TransformStamped) and, if tf2_msgs is
installed, map -> odom on /tf.
Services: ~/save_g2o, and ~/optimize, a robust batch optimization that rejects outliers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
import math
from typing import Any

from geometry_msgs.msg import PoseStamped, TransformStamped
from nav_msgs.msg import Odometry, Path
import numpy as np
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from std_srvs.srv import Trigger

from lpr_ros.conversions.poses import (
    check_stamp,
    header_message,
    pose_messages,
    transform_message,
)
from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import ConfigError, InterfaceError, ScanError, error_with_type, utf8_text
from lpr_ros.core.files import user_path
from lpr_ros.core.geometry.odometry_noise import OdometryNoiseConfig
from lpr_ros.core.pose_graph.g2o import write_g2o
from lpr_ros.core.pose_graph.optimizer import PoseGraphOptimizerConfig
from lpr_ros.core.timing import CLOCK_JUMP_NS, stamp_ns
from lpr_ros.pose_graph_node.graph_updater import GraphUpdater
from lpr_ros.pose_graph_node.odometry_noise_check import OdometryNoiseCheck
from lpr_ros.ros_utils.optional_interfaces import interface
from lpr_ros.ros_utils.parameters import ConfigParameters
from lpr_ros.ros_utils.progress_log import ProgressLog
from lpr_ros.ros_utils.qos import LATCHED, LOOPS, ODOMETRY
from lpr_ros.ros_utils.spin import run_node
from lpr_ros.ros_utils.topic_watch import TopicWatch

WARN_INTERVAL_S = 5.0
WATCH_INTERVAL_S = 1.0
# Of lpr_node: one file may have the parameters of both.
LPR_NODE_PARAMETERS = (
    'adapters',
    'autosave_s',
    'autostart',
    'backends',
    'base_frame',
    'belief',
    'database',
    'device',
    'device_fallback',
    'extrinsic',
    'extrinsic_source',
    'keyframes',
    'lidar_odometry',
    'load_map',
    'map_path',
    'max_candidates',
    'odom_frame',
    'odometry_gap_s',
    'odometry_source',
    'odometry_wait_s',
    'publish_tf',
    'qos',
    'sequence',
    'session',
    'threads',
    'use_odometry',
    'verification',
    'verification_queue_size',
    'verification_timeout_s',
    'weights',
)
KEYFRAMES, ODOMETRY_TOPIC = 'lpr_node/keyframes', 'odometry'


@dataclass(frozen=True)
class PoseGraphNodeConfig(Config):
    """The parameters of pose_graph_node."""

    map_frame: str = option('map', 'Frame of the corrected path', fixed=True)
    path_interval_s: float = option(
        0.2,
        'Minimum interval between updates of the pose graph and publications of the path',
        unit='s',
        low=0.01,
        high=60.0,
        fixed=True,
    )
    g2o_path: str = option(
        'pose_graph.g2o',
        'File written by ~/save_g2o; must end in .g2o and be in an existing folder',
        fixed=True,
    )
    optimizer: PoseGraphOptimizerConfig = field(
        default_factory=PoseGraphOptimizerConfig, metadata={'fixed': True}
    )
    odometry_noise: OdometryNoiseConfig = field(
        default_factory=OdometryNoiseConfig, metadata={'fixed': True}
    )


class PoseGraphNode(Node):
    """Updates the pose graph from lpr_node and publishes the result."""

    def __init__(self, **options: object):
        super().__init__('pose_graph_node', **options)
        parameters = ConfigParameters(self, PoseGraphNodeConfig(), others=LPR_NODE_PARAMETERS)
        self._config = parameters.read()
        parameters.watch(lambda config: None)  # rejects changes: all are read on startup only
        self._updater = GraphUpdater(self._config.optimizer, self._config.odometry_noise)
        self._rejected_loops = 0
        self._odometry_ns: int | None = None
        self._odometry_frame = ''
        self._session: str | None = None  # of the current odometry
        self._is_path_due = False
        self._path = self.create_publisher(Path, '~/path', LATCHED)
        self._map_to_odom = self.create_publisher(TransformStamped, '~/map_to_odom', 10)
        self._tf = None
        try:
            self._tf_message = interface('tf2_msgs/msg/TFMessage')
            self._tf = self.create_publisher(self._tf_message, '/tf', 100)
        except InterfaceError as error:
            self.get_logger().warning(
                f'map -> odom is published on ~/map_to_odom but not on /tf: {error}'
            )
        for kind, topic, callback, qos in (
            (Path, KEYFRAMES, self._on_keyframes, LATCHED),
            (Odometry, 'lpr_node/loop_closures', self._on_loop, LOOPS),
            (Odometry, 'lpr_node/retracted_loop_closures', self._on_retraction, LOOPS),
            (Odometry, ODOMETRY_TOPIC, self._on_odometry, ODOMETRY),
        ):
            self.create_subscription(kind, topic, self._survive(callback), qos)
        self.create_service(Trigger, '~/save_g2o', self._answer(self._save))
        self.create_service(Trigger, '~/optimize', self._answer(self._optimize))
        clock = Clock(clock_type=ClockType.STEADY_TIME)  # also runs while simulated time stands
        publish_path = self._survive(self._publish_path)
        self.create_timer(self._config.path_interval_s, publish_path, clock=clock)
        self._noise_check = OdometryNoiseCheck(self, self._config.odometry_noise)
        self._paths = self._odometry_messages = 0  # received
        self._watches = (
            TopicWatch(self, Path, KEYFRAMES, LATCHED, remedy='; or start lpr_node'),
            TopicWatch(self, Odometry, ODOMETRY_TOPIC, ODOMETRY),
        )
        self._progress = ProgressLog(self.get_logger())
        self.create_timer(WATCH_INTERVAL_S, self._survive(self._tick), clock=clock)
        self.get_logger().info(
            f'waiting for {self.resolve_topic_name(KEYFRAMES)} and '
            f'{self.resolve_topic_name(ODOMETRY_TOPIC)}'
        )

    def _survive(self, callback: Callable[..., None]) -> Callable[..., None]:
        """Return the callback with exceptions logged: one message must not end the node."""
        log = self.get_logger().get_child(callback.__name__.strip('_'))  # throttled separately

        def run(*message: Any) -> None:
            try:
                callback(*message)
            except Exception as error:
                log.error(error_with_type(error), throttle_duration_sec=WARN_INTERVAL_S)

        return run

    def _answer(
        self, serve: Callable[[], str]
    ) -> Callable[[Trigger.Request, Trigger.Response], Trigger.Response]:
        """Return the callback of a service that answers with a message, or with the error."""

        def answer(request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
            try:
                response.message, response.success = utf8_text(serve()), True
            except Exception as error:
                response.message, response.success = error_with_type(error), False
            return response

        return answer

    def _tick(self) -> None:
        """Log progress, and why topics are silent; a robot that stands takes no keyframes."""
        keyframes, odometry = self._watches
        if not self._paths:
            keyframes.check(self._paths)
        odometry.check(self._odometry_messages)
        if self._updater.loop_count:
            self.get_logger().info('first loop closure: the path is corrected', once=True)
        self._progress.tick(
            {
                'keyframes': len(self._updater.stamps_ns),
                'loop closures': self._updater.loop_count,
                'rejected loop closures': self._rejected_loops,
            }
        )

    def _on_keyframes(self, message: Path) -> None:
        self._paths += 1
        if self._updater.add_path(message):
            self._log_session()
            self._is_path_due = True
        self._log_rejected()

    def _log_session(self) -> None:
        before, self._session = self._session, self._updater.session
        if self._session not in (None, before):
            name = self._session.rpartition('#')[0]
            self.get_logger().info(
                f'session {name!r}: keyframe {len(self._updater.stamps_ns) - 1}',
                throttle_duration_sec=WARN_INTERVAL_S,
            )

    def _on_loop(self, message: Odometry) -> None:
        self._is_path_due |= self._updater.add_constraint(message)
        self._log_rejected()

    def _on_retraction(self, message: Odometry) -> None:
        self._is_path_due |= self._updater.retract_constraint(message)
        self._log_rejected()

    def _on_odometry(self, message: Odometry) -> None:
        """Publish map -> odom at the rate of the odometry, as tf consumers interpolate."""
        try:
            check_stamp(message.header)
        except ScanError as error:
            self.get_logger().warning(
                f'odometry ignored: {error}', throttle_duration_sec=WARN_INTERVAL_S
            )
            return
        self._odometry_messages += 1
        stamp = stamp_ns(message.header)
        if self._odometry_ns is not None and stamp < self._odometry_ns - CLOCK_JUMP_NS:
            self._session = None  # new odometry, unknown until its first keyframe
        self._odometry_ns, self._odometry_frame = stamp, message.header.frame_id
        self._publish_map_to_odom(stamp)

    def _publish_map_to_odom(self, stamp: int) -> None:
        T_map_odom = np.eye(4)
        if self._session is not None:
            T_map_odom = self._updater.optimizer.T_map_odom(self._session)
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
        self._updater.optimizer.update()  # once for all loop closures since the last call
        self._path.publish(self._path_message())

    def _path_message(self) -> Path:
        """Return the path of all keyframes; those without a link to the newest use own frames."""
        optimizer, stamps = self._updater.optimizer, self._updater.stamps_ns
        poses = optimizer.poses
        current_map = optimizer.map_of(max(poses)) if poses else None
        corrected = np.array([*poses.values()]).reshape(-1, 4, 4)
        messages = dict(zip(poses, pose_messages(corrected), strict=True))
        path = Path(header=header_message(max(stamps, default=0), self._config.map_frame))
        for keyframe_id, stamp in enumerate(stamps):
            pose = PoseStamped(header=header_message(stamp, self._config.map_frame))
            if keyframe_id not in messages:
                pose.pose.position.x = math.nan
            else:
                pose.pose = messages[keyframe_id]
                if (anchor := optimizer.map_of(keyframe_id)) != current_map:
                    pose.header.frame_id = f'{self._config.map_frame}/{anchor}'
            path.poses.append(pose)
        return path

    def _save(self) -> str:
        optimizer = self._updater.optimizer
        optimizer.update()
        path = user_path(self._config.g2o_path, 'g2o_path')
        if path.suffix != '.g2o' or not path.parent.is_dir():
            raise ConfigError(f'{path}: expected a .g2o file in an existing folder')
        write_g2o(path, optimizer.poses, optimizer.graph.edges)
        loops = sum(edge.is_loop for edge in optimizer.graph.edges)
        return f'{path}: {len(optimizer.poses)} keyframes, {loops} loops'

    def _optimize(self) -> str:
        rejected = self._updater.optimizer.optimize_robust()
        self._is_path_due = True
        pairs = ', '.join(f'{edge.to_id} to {edge.from_id}' for edge in rejected)
        return f'{len(rejected)} loop closures rejected: {pairs or "none"}'

    def _log_rejected(self) -> None:
        if not self._updater.rejected:
            return
        self._rejected_loops += len(self._updater.rejected)
        self.get_logger().warning(
            f'{self._rejected_loops} loop closures rejected so far; latest reason: '
            f'{self._updater.rejected[-1]}',
            throttle_duration_sec=WARN_INTERVAL_S,
        )
        self._updater.rejected.clear()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the node until SIGINT or SIGTERM."""
    return run_node(PoseGraphNode, argv, name='pose_graph_node', description=__doc__ or '')
