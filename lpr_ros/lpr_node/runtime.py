"""Everything that a configured lpr_node has and an unconfigured one has not."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
import os
from pathlib import Path
import time
import traceback
from typing import Any

from nav_msgs.msg import Odometry
import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node
from rclpy.subscription import Subscription
from sensor_msgs.msg import PointCloud2
import torch

from lpr_ros.backends.selection import Backends
from lpr_ros.cloud_messages import scan_from_message
from lpr_ros.core.closer_process import CloserProcess
from lpr_ros.core.database import PlaceDatabase
from lpr_ros.core.errors import CheckpointError, ScanError, named
from lpr_ros.core.files import user_path
from lpr_ros.core.loop_closer import Verdict
from lpr_ros.core.model.describer import Describer
from lpr_ros.core.pipeline import Pipeline, new_database
from lpr_ros.core.pointcloud2 import stamp_ns
from lpr_ros.core.recogniser import Sighting
from lpr_ros.core.records import Scan
from lpr_ros.core.resources import default_weights, find_resource
from lpr_ros.detector import Detector, kind_of
from lpr_ros.extrinsic import Extrinsic, tf_lookup
from lpr_ros.free_memory import FreeMemory
from lpr_ros.map_keeper import MapKeeper
from lpr_ros.node_config import NodeConfig
from lpr_ros.odometry_buffer import OdometryBuffer
from lpr_ros.outputs import Outputs
from lpr_ros.pose_messages import pose_from_message
from lpr_ros.safe_describer import SafeDescriber
from lpr_ros.statistics import Statistics

DEFAULT_FRAME = 'odom'  # of keyframes, until odometry says its own
WARN_EVERY_S = 5.0


class Engine:
    """Weights, places, workers and topics; made whole or not at all."""

    def __init__(self, node: Node, config: NodeConfig, statistics: Statistics):
        self._node, self._config, self._statistics = node, config, statistics
        self._log = node.get_logger()
        self._warned_s: dict[str, float] = {}
        self._body_frame = ''
        self._frame = DEFAULT_FRAME
        self._free_memory = FreeMemory()
        self._subscriptions: list[Subscription] = []
        self._publishers = 0  # of scans
        self._scan_numbers: dict[str, int] = {}  # of the last scan of each publisher
        torch.set_num_threads(config.threads)
        weights = weights_path(config.weights)
        self._describer = SafeDescriber(
            partial(_load_describer, weights),
            config.device,
            fallback=config.device_fallback,
            warn=self._log.warning,
        )
        self._map = MapKeeper(config, partial(self._warn, 'map'))
        self._tf = tf_lookup(node)
        # First what may fail: an engine is made whole or not at all.
        try:
            self._extrinsic = Extrinsic(config, self._tf, self._log.warning)
            is_known = config.load_map and self._map.is_there
            database = self._read_map() if is_known else new_database(config, self._describer)
            self._backends = Backends(node, config.backends, config.adapters, self.on_drop)
            for name, reason in self._backends.missing.items():
                self._log.error(f'back-end {name} gets no loops: {reason}')
            self._begin(database)
        except BaseException:  # whatever it was: the next try in this process needs the map
            self._map.release()
            self._close_tf()
            raise
        self._log.info(
            f'ready: {weights} on {self._describer.device}, '
            f'{len(self._detector.pipeline.database)} keyframes in the map'
        )

    def subscribe(self) -> None:
        """Take scans and odometry."""
        c, create = self._config, self._node.create_subscription
        if c.use_odometry:
            self._subscriptions.append(
                create(Odometry, 'odometry', self._on_odometry, c.odometry.profile())
            )
        self._scan_numbers = {}
        self._points_topic = self._node.resolve_topic_name('points')  # publishers go by that
        self._subscriptions.append(
            create(PointCloud2, 'points', self._on_points, c.points.profile())
        )
        names = ', '.join(subscription.topic_name for subscription in self._subscriptions)
        self._log.info(f'listening to {names}')

    def unsubscribe(self) -> None:
        """Take no more of them, and forget those that wait."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._subscriptions = []
        self._detector.pause()

    def reconfigure(self, config: NodeConfig) -> None:
        """Take changed settings, from the next scan on."""
        self._map.configure(config)
        self._config = config
        self._detector.reconfigure(config)

    def save_map(self) -> str:
        """Write all places to the file of the parameter; return what was done."""
        return self._map.save(self._detector.pipeline.database)

    def load_map(self) -> str:
        """Begin anew among the places of the map; return what was done."""
        database = self._read_map()
        self._end()
        self._begin(database)
        return f'{len(database)} keyframes loaded from {self._config.map_path}'

    def reset(self) -> str:
        """Forget all places and begin anew; return what was done."""
        count = len(self._detector.pipeline.database)
        self._end()
        self._begin(new_database(self._config, self._describer))
        return f'{count} keyframes forgotten'

    def tick(self, now_ns: int) -> dict[str, object]:
        """Publish what need not be published at once; return facts for the diagnostics."""
        self._outputs.publish_path()
        self._outputs.publish_markers(now_ns)
        pipeline = self._detector.pipeline
        self._map.save_if_due(pipeline.database)
        self._free_memory.give_back_if_due()
        return {
            'device': self._describer.device,
            'session': pipeline.recogniser.session,
            'keyframes': len(pipeline.database),
            'sessions': len(pipeline.database.sessions),
            'database_mib': f'{pipeline.database.memory_bytes() / 2**20:.1f}',
            'waiting_keyframes': self._detector.waiting,
            'backends': ', '.join(self._backends.names),
            **self._map.facts(),
        }

    def close(self) -> None:
        """Give everything back."""
        self.unsubscribe()
        self._end(keep=True)
        self._backends.close()
        self._close_tf()

    def on_sighting(self, sighting: Sighting) -> None:
        """Publish a keyframe (first worker)."""
        self._mounts[sighting.keyframe.id] = self._extrinsic.newest  # asked for by this thread
        self._outputs.publish_sighting(sighting)

    def on_verdict(self, sighting: Sighting, verdict: Verdict) -> None:
        """Publish the loops of a keyframe (second worker)."""
        self._outputs.publish_verdict(verdict)
        place = self._detector.pipeline.database.place
        for loop in verdict.trusted:
            T_base_query = self._mounts[loop.query_id]
            # Of keyframes of a map that was loaded it is not known where their sensor sat.
            T_base_match = self._mounts.get(loop.match_id, T_base_query)
            ends = place(loop.query_id), place(loop.match_id)
            self._backends.publish(loop, *ends, T_base_query, T_base_match)

    def on_drop(self, kind: str, reason: str) -> None:
        """Count what is left out; of each kind, warn now and then."""
        self._statistics.fail(kind, reason)
        if not self._is_ending():
            self._warn(kind, f'dropped ({kind}): {reason}')

    def on_fault(self, error: Exception) -> None:
        """Report an error of ours; the next scan may go well."""
        if self._is_ending():
            return  # what the worker was using is gone
        self._statistics.count('faults')
        self._statistics.fail('fault', named(error))
        if self._is_due('fault'):
            self._log.error(''.join(traceback.format_exception(error)))

    def _warn(self, kind: str, text: str) -> None:
        """Log a warning, of each kind only now and then."""
        if self._is_due(kind):
            self._log.warning(text)

    def _is_due(self, kind: str) -> bool:
        """Tell whether it is long enough ago that something of this kind was logged."""
        now_s = time.monotonic()
        is_due = now_s - self._warned_s.get(kind, -WARN_EVERY_S) >= WARN_EVERY_S
        if is_due:
            self._warned_s[kind] = now_s
        return is_due

    def _begin(self, database: PlaceDatabase) -> None:
        """Start on these places."""
        c = self._config
        self._stopping = False
        self._mounts: dict[int, NDArray[np.float64]] = {}  # T_base_sensor by keyframe
        self._closer = CloserProcess(
            c.verification, c.pairwise, c.candidates, c.verification_timeout_s
        )
        pipeline = Pipeline(
            c, self._describer, database=database, closer=self._closer, session=c.session
        )
        self._odometry = OdometryBuffer(c.odometry_gap_s)
        self._outputs = Outputs(self._node, database, self._frame)
        self._detector = Detector(
            pipeline, self._read, self, self._statistics, c.waiting_keyframes
        )
        self._detector.reconfigure(self._config)  # settings changed while it was being made
        self._outputs.publish_path()

    def _close_tf(self) -> None:
        if self._tf is not None:
            self._tf.close()

    def _is_ending(self) -> bool:
        """Tell whether the workers are being stopped, by us or by a signal."""
        return self._stopping or not self._node.context.ok()

    def _end(self, *, keep: bool = False) -> None:
        """Stop the workers and drop the places; the map has them where they are to be kept."""
        self._stopping = True
        self._odometry.close()
        self._closer.stop()
        self._detector.stop()
        pipeline = self._detector.pipeline
        if keep:
            self._map.close(pipeline.database)
        self._map.wait()
        pipeline.close()
        self._outputs.close()

    def _on_points(self, message: PointCloud2, info: Mapping[str, Any]) -> None:
        number = info.get('publication_sequence_number')  # Humble has none
        if number is not None:
            self._count_missed(message.header.frame_id, number)
        self._detector.put(message)

    def _count_missed(self, frame_id: str, number: int) -> None:
        """Count scans lost on the way, or replaced by newer ones while they waited for us."""
        publishers = self._node.count_publishers(self._points_topic)
        if publishers != self._publishers:
            self._publishers, self._scan_numbers = publishers, {}
        # Each publisher counts on its own, from 1. Several are told apart by the frames of their
        # LiDARs; where they share one, nothing can be said.
        source = frame_id if publishers > 1 else ''
        last = self._scan_numbers.get(source)
        self._scan_numbers[source] = number
        if last is not None and number > last + 1 and len(self._scan_numbers) == publishers:
            self._statistics.count('dropped.before_us', number - last - 1)

    def _on_odometry(self, message: Odometry) -> None:
        self._statistics.count('odometry')
        if message.header.frame_id != self._frame or message.child_frame_id != self._body_frame:
            self._frame, self._body_frame = message.header.frame_id, message.child_frame_id
            self._outputs.set_frame(self._frame)
        try:
            T_odom_body = pose_from_message(message.pose.pose)
        except ScanError as error:
            self.on_drop(kind_of(error), str(error))
            return
        if not self._odometry.add(stamp_ns(message.header), T_odom_body):
            self._statistics.count('dropped.old_odometry')

    def _read(self, message: PointCloud2) -> Scan:
        """Make the scan of a message, with its pose (first worker)."""
        scan = scan_from_message(message)
        if not self._config.use_odometry:
            return scan
        T_odom_body = self._odometry.wait_for(scan.stamp_ns, self._config.odometry_wait_s)
        T_body_sensor = self._extrinsic.T_body_sensor(self._body_frame, message.header.frame_id)
        return replace(scan, T_odom_sensor=T_odom_body @ T_body_sensor)

    def _read_map(self) -> PlaceDatabase:
        return self._map.load(
            partial(
                PlaceDatabase.load,
                config=self._config.database,
                fingerprint=self._describer.fingerprint,
                calibration=self._describer.calibration,
            )
        )


def weights_path(name: str) -> Path:
    """Return the file of the weights: a path, the name of shipped ones, or the default ones."""
    if not name:
        return default_weights()
    path = user_path(name, 'weights')
    found = path if os.path.isfile(path) else find_resource('weights', f'{name}.safetensors')
    if found is None:
        raise CheckpointError(f'weights {name!r}: neither a file nor the name of shipped weights')
    return found


def _load_describer(path: Path, device: str) -> Describer:
    """Load and describe once: the first time takes seconds, as code is compiled."""
    describer = Describer.load(path, device=device)
    rng = np.random.default_rng(0)
    around = rng.uniform(0.0, 2.0 * np.pi, 5000)
    reach = rng.uniform(5.0, 20.0, 5000)
    height = rng.uniform(-1.5, 3.0, 5000)
    points = np.stack([reach * np.cos(around), reach * np.sin(around), height], axis=1)
    describer.describe(points.astype(np.float32))
    return describer
