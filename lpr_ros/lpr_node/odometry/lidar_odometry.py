"""LiDAR odometry of the node: a thread that feeds clouds to the odometry process."""

import threading

from sensor_msgs.msg import PointCloud2

from lpr_ros.conversions.poses import check_stamp
from lpr_ros.core.errors import LprError
from lpr_ros.core.geometry.se3 import invert
from lpr_ros.core.io.pointcloud2 import read_cloud
from lpr_ros.core.odometry.lidar_odometry import OdometryEstimate
from lpr_ros.core.odometry.odometry_process import LidarOdometryProcess
from lpr_ros.core.timing import stamp_ns
from lpr_ros.lpr_node.config import NodeConfig
from lpr_ros.lpr_node.connections import Connections
from lpr_ros.lpr_node.diagnostics import ODOMETRY_DROPPED
from lpr_ros.lpr_node.workers import Inbox, drop_kind

QUEUE = 3  # clouds; a longer queue would delay scans beyond odometry_wait_s


class LidarOdometrySource:
    """Poses of the clouds, given to the scans and published as ~/odometry and, on request, tf."""

    def __init__(self, config: NodeConfig, connections: Connections):
        self._frames = config.odom_frame, config.base_frame
        self._inputs, self._events = connections.inputs, connections.events
        self._publisher = connections.odometry
        self._segment = 0
        self._clouds: Inbox[PointCloud2] = Inbox(QUEUE)
        self._process = LidarOdometryProcess(config.lidar_odometry)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, message: PointCloud2) -> None:
        """Queue a cloud. Any thread."""
        if self._clouds.put(message):
            self._events.statistics.count(f'{ODOMETRY_DROPPED}newer_cloud')

    def close(self) -> None:
        """Stop the thread and the process."""
        self._clouds.close()
        self._process.stop()
        self._thread.join()

    def _run(self) -> None:
        while (message := self._clouds.get()) is not None:
            try:
                self._add(message)
            except LprError as error:
                if not self._clouds.is_closed:
                    self._events.drop_odometry(drop_kind(error), str(error))
            except Exception as error:  # the next cloud may succeed
                self._events.fault(error)

    def _add(self, message: PointCloud2) -> None:
        check_stamp(message.header)
        cloud, stamp = read_cloud(message), stamp_ns(message.header)
        estimate = self._process.add(stamp, cloud.points, cloud.time_s)
        self._report(estimate)
        T_base_sensor = self._inputs.T_base_sensor(self._frames[1], message.header.frame_id)
        # The base starts at the origin, not the sensor.
        T_odom_base = T_base_sensor @ estimate.T_odom_sensor @ invert(T_base_sensor)
        self._inputs.add_odometry(stamp, self._frames, T_odom_base)
        self._publisher.publish(stamp, self._frames, T_odom_base)

    def _report(self, estimate: OdometryEstimate) -> None:
        """Say that odometry was lost or is uncertain."""
        if estimate.segment.number != self._segment:
            self._segment = estimate.segment.number
            self._events.lose_odometry(estimate.segment.reason)
            self._inputs.break_odometry(estimate.segment.reason)
        if estimate.degenerate:
            self._events.doubt_odometry(estimate.degenerate)
