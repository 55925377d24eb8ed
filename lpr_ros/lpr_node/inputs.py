"""The subscriptions of lpr_node: point clouds and odometry in, scans with poses out."""

from collections.abc import Callable, Mapping
from dataclasses import replace
import time
from typing import Any

from nav_msgs.msg import Odometry
import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node
from rclpy.subscription import Subscription
from sensor_msgs.msg import PointCloud2

from lpr_ros.conversions.clouds import scan_from_message
from lpr_ros.conversions.poses import check_stamp, pose_from_message
from lpr_ros.core.errors import ScanError
from lpr_ros.core.timing import stamp_ns
from lpr_ros.core.types import Scan
from lpr_ros.lpr_node.config import NodeConfig, QosConfig
from lpr_ros.lpr_node.diagnostics import ODOMETRY_DROPPED, SCANS_LOST, EventLog
from lpr_ros.lpr_node.extrinsics import Extrinsic
from lpr_ros.lpr_node.odometry_buffer import OdometryBuffer
from lpr_ros.ros_utils.spin import destroy_safely
from lpr_ros.ros_utils.topic_watch import TopicWatch

MAX_SOURCES = 64  # frames of clouds whose sequence numbers are tracked
PoseAt = Callable[[int, float], NDArray[np.float64]]  # stamp in ns, timeout in s -> T_odom_base


class ScanReader:
    """Joins clouds with odometry and the mounting pose. `read` may wait for odometry."""

    def __init__(self, config: NodeConfig, extrinsic: Extrinsic):
        self._config = config
        self.extrinsic = extrinsic
        self.odometry = OdometryBuffer(config.odometry_gap_s, config.session.max_step_m)
        self.base_frame = ''
        self.pose_at: PoseAt | None = None  # for odometry that is looked up, not received

    def reconfigure(self, config: NodeConfig) -> None:
        """Use changed settings from the next message on. Any thread."""
        self._config = config
        self.odometry.configure(config.session.max_step_m)

    def read(self, message: PointCloud2) -> Scan:
        """Return the scan of a message with its pose; ScanError or CloudError if unusable."""
        check_stamp(message.header)
        scan = scan_from_message(message)
        config = self._config
        if not config.use_odometry:
            return scan
        if self.pose_at is not None:
            T_odom_base = self.pose_at(scan.stamp_ns, config.odometry_wait_s)
            self.odometry.add(scan.stamp_ns, T_odom_base)
        pose = self.odometry.wait_for(scan.stamp_ns, config.odometry_wait_s)
        T_base_sensor = self.extrinsic.T_base_sensor(self.base_frame, message.header.frame_id)
        return replace(
            scan,
            T_odom_sensor=pose.T_odom_base @ T_base_sensor,
            odometry_segment=pose.segment.number,
            segment_reason=pose.segment.reason,
        )


class Inputs:
    """Receives clouds and odometry while active; callbacks only count and forward.

    The subscriptions live as long as the node and ignore messages while it is not active. Only
    changed QoS settings replace them.
    """

    def __init__(self, node: Node, events: EventLog, on_frame: Callable[[str], None]):
        self._node, self._events, self._on_frame = node, events, on_frame
        self._statistics = events.statistics
        self._subscriptions: list[Subscription] = []
        self._subscribed: tuple[bool, QosConfig] | None = None  # settings of the subscriptions
        self._watches: dict[str, TopicWatch] = {}  # by the counter of received messages
        self._reader: ScanReader | None = None
        self._on_scan: Callable[[PointCloud2], None] = _ignore
        self._is_active = False
        self._frames = ('', '')
        self._first_scan = ''  # what it was like
        self._first_tick: tuple[float, int] | None = None  # time, number of scans
        self._takes_topic = True  # False ignores odometry messages
        self._on_cloud: Callable[[PointCloud2], None] | None = None
        self._pose_at: PoseAt | None = None
        self.has_odometry = False  # whether an odometry message was received
        self.first_cloud_s: float | None = None  # when a cloud was received first
        self._publisher_count = 0  # of clouds
        self._sequence_numbers: dict[str, int] = {}  # of the last cloud, by publisher

    def connect(self, reader: ScanReader, on_scan: Callable[[PointCloud2], None]) -> None:
        """Forward clouds to `on_scan` and odometry to `reader` from now on."""
        reader.base_frame, reader.pose_at = self._frames[1], self._pose_at
        self._reader, self._on_scan = reader, on_scan

    def set_source(
        self,
        *,
        takes_topic: bool = True,
        on_cloud: Callable[[PointCloud2], None] | None = None,
        pose_at: PoseAt | None = None,
        frames: tuple[str, str] = ('', ''),
    ) -> None:
        """Take odometry from its topic; or from whoever gets the clouds; or ask for each pose."""
        self._takes_topic, self._on_cloud, self._pose_at = takes_topic, on_cloud, pose_at
        if not takes_topic:
            self._watches.pop('odometry', None)  # its silence is no longer news
        if frames != ('', ''):
            self._set_frames(frames)
        if self._reader is not None:
            self._reader.pose_at = pose_at

    def disconnect(self) -> None:
        """Ignore all messages, and forget who received them."""
        self._is_active = False
        self._reader, self._on_scan = None, _ignore

    def activate(self, config: NodeConfig) -> str:
        """Start forwarding; return the names of the topics."""
        takes_topic = config.use_odometry and config.odometry_source in ('auto', 'topic')
        settings = (takes_topic, config.qos)
        if settings != self._subscribed:
            self._unsubscribe()
            self._subscribe(config.qos, takes_topic)
            self._subscribed = settings
        self._sequence_numbers = {}
        received = self._statistics.counts()
        for counter, watch in self._watches.items():
            watch.restart(received.get(counter, 0))
        self.has_odometry, self.first_cloud_s = False, None
        self._is_active = True
        return ', '.join(subscription.topic_name for subscription in self._subscriptions)

    def deactivate(self) -> None:
        """Ignore all messages from now on."""
        self._is_active = False

    def tick(self) -> str:
        """Log what arrives and what does not; return why topics are silent, '' if none is."""
        if not self._is_active:
            return ''
        received = self._statistics.counts()
        self._log_first_scan(received.get('scans', 0))
        reasons = [watch.check(received.get(name, 0)) for name, watch in self._watches.items()]
        return '; '.join(filter(None, reasons))

    def _log_first_scan(self, scans: int) -> None:
        """Log the first scan when the rate of those after it is known."""
        if not self._first_scan:
            return
        if self._first_tick is None:
            self._first_tick = time.monotonic(), scans
        else:
            start_s, before = self._first_tick
            rate_hz = (scans - before) / (time.monotonic() - start_s)
            self._events.first('scan', f'{self._first_scan}, {rate_hz:.1f} scans/s')

    def _subscribe(self, qos: QosConfig, takes_topic: bool) -> None:
        create = self._node.create_subscription
        if takes_topic:
            self._subscriptions.append(
                create(Odometry, 'odometry', self._on_odometry, qos.odometry.profile())
            )
            self._watches['odometry'] = TopicWatch(
                self._node,
                Odometry,
                'odometry',
                qos.odometry.profile(),
                remedy='; for a LiDAR alone set odometry_source: lidar',
                qos_remedy=' or set qos.odometry.reliability',
            )
        self._points_topic = self._node.resolve_topic_name('points')
        self._subscriptions.append(
            create(PointCloud2, 'points', self._on_points, qos.points.profile())
        )
        self._watches['scans'] = TopicWatch(
            self._node,
            PointCloud2,
            'points',
            qos.points.profile(),
            qos_remedy=' or set qos.points.reliability',
        )

    def _unsubscribe(self) -> None:
        self._watches = {}
        for subscription in self._subscriptions:
            destroy_safely(
                self._node, lambda gone=subscription: self._node.destroy_subscription(gone)
            )
        self._subscriptions = []

    def _on_points(self, message: PointCloud2, info: Mapping[str, Any]) -> None:
        if not self._is_active:
            return
        number = info.get('publication_sequence_number')  # not in Humble
        if number is not None:
            self._count_lost(message.header.frame_id, number)
        self._first_scan = self._first_scan or summary(message)
        if self.first_cloud_s is None:
            self.first_cloud_s = time.monotonic()
        if self._on_cloud is not None:
            self._on_cloud(message)
        self._on_scan(message)

    def _count_lost(self, frame_id: str, number: int) -> None:
        """Count clouds lost in transport, or replaced by newer ones in the DDS queue."""
        publishers = self._node.count_publishers(self._points_topic)
        if publishers != self._publisher_count or len(self._sequence_numbers) > MAX_SOURCES:
            self._publisher_count, self._sequence_numbers = publishers, {}
        # Every publisher numbers its own clouds from 1. Several publishers are distinguished by
        # the frames of their LiDARs; if they share one, losses cannot be counted.
        source = frame_id if publishers > 1 else ''
        last = self._sequence_numbers.get(source)
        self._sequence_numbers[source] = number
        if last is not None and number > last + 1 and len(self._sequence_numbers) == publishers:
            self._statistics.count(SCANS_LOST, number - last - 1)

    def _on_odometry(self, message: Odometry) -> None:
        if not self._is_active or self._reader is None or not self._takes_topic:
            return
        self.has_odometry = True
        self._statistics.count('odometry')
        try:
            check_stamp(message.header)
            T_odom_base = pose_from_message(message.pose.pose)
        except ScanError as error:
            self._events.drop_odometry(error.kind, str(error))
            return
        frames = message.header.frame_id, message.child_frame_id
        self._add_pose(self._reader, stamp_ns(message.header), frames, T_odom_base)

    def add_odometry(
        self, stamp_ns: int, frames: tuple[str, str], T_odom_base: NDArray[np.float64]
    ) -> None:
        """Add a pose that did not come from the topic; `frames` are odom and base."""
        reader = self._reader
        if self._is_active and reader is not None:
            self._statistics.count('odometry')
            self._add_pose(reader, stamp_ns, frames, T_odom_base)

    def break_odometry(self, reason: str) -> None:
        """Relate the poses added so far to none added from now on."""
        if self._reader is not None:
            self._reader.odometry.break_off(reason)

    def T_base_sensor(self, base: str, sensor: str) -> NDArray[np.float64]:
        """Return the mounting pose; ScanError if it is not known."""
        if self._reader is None:
            raise ScanError('paused', 'the node is not configured')
        return self._reader.extrinsic.T_base_sensor(base, sensor)

    def _add_pose(
        self,
        reader: ScanReader,
        stamp_ns: int,
        frames: tuple[str, str],
        T_odom_base: NDArray[np.float64],
    ) -> None:
        self._set_frames(frames)
        if not reader.odometry.add(stamp_ns, T_odom_base):
            self._statistics.count(f'{ODOMETRY_DROPPED}out_of_order')

    def _set_frames(self, frames: tuple[str, str]) -> None:
        if frames != self._frames:
            self._frames = frames
            self._on_frame(frames[0])
            self._events.tell('frames', f'odometry: {frames[1]!r} in {frames[0]!r}')
        if self._reader is not None:
            self._reader.base_frame = frames[1]


def summary(message: PointCloud2) -> str:
    """Return size, fields and frame of a cloud as text."""
    fields = ', '.join(f.name for f in message.fields)
    points = message.width * message.height
    return f'{points} points ({fields}) in frame {message.header.frame_id!r}'


def _ignore(message: PointCloud2) -> None:
    pass
