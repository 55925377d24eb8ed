"""Where the LiDAR sits on the body that odometry follows: a parameter, or tf where it is there."""

from collections.abc import Callable
import time
from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node
from rclpy.time import Time

from lpr_ros.core.errors import BackendError, ScanError
from lpr_ros.core.geometry import pose_from_quaternion
from lpr_ros.node_config import NodeConfig

TF_WAIT_S = 3.0  # the first scan may come before the first transform

Lookup = Callable[[str, str], NDArray[np.float64] | None]  # body, sensor -> T_body_sensor


class Extrinsic:
    """T_body_sensor by the names of the two frames; each pair is asked for once."""

    def __init__(self, config: NodeConfig, lookup: Lookup | None, warn: Callable[[str], None]):
        if config.extrinsic_source == 'tf' and lookup is None:
            raise BackendError(
                "extrinsic_source 'tf': tf2_ros is not installed; expected auto or parameter"
            )
        self._source = config.extrinsic_source
        self._lookup = None if self._source == 'parameter' else lookup
        self._asked_s: dict[tuple[str, str], float] = {}  # when tf was first asked for a pair
        self._T_given = pose_from_quaternion(config.extrinsic[:3], config.extrinsic[3:])
        self._warn = warn
        self._known: dict[tuple[str, str], NDArray[np.float64]] = {}
        self.newest = self._T_given  # the one asked for last

    def T_body_sensor(self, body: str, sensor: str) -> NDArray[np.float64]:
        """Return where the sensor is; ScanError while only tf may tell and does not yet."""
        if (body, sensor) not in self._known:
            self._known[body, sensor] = self._find(body, sensor)
        self.newest = self._known[body, sensor]
        return self.newest

    def _find(self, body: str, sensor: str) -> NDArray[np.float64]:
        found = self._lookup(body, sensor) if self._lookup is not None else None
        if found is not None:
            return found
        if self._source == 'tf' or (self._lookup is not None and not self._is_late(body, sensor)):
            raise ScanError('extrinsic', f'expected a transform from {sensor} to {body} on tf')
        if body != sensor and np.array_equal(self._T_given, np.eye(4)):
            self._warn(
                f'scans are in the frame {sensor!r}, odometry is of {body!r}, and nothing says '
                'where one is on the other: they are taken for the same. Set the parameter '
                'extrinsic, or have tf publish it'
            )
        return self._T_given

    def _is_late(self, body: str, sensor: str) -> bool:
        """Tell whether tf has been silent for so long that it will not answer any more."""
        now_s = time.monotonic()
        asked_s = self._asked_s.setdefault((body, sensor), now_s)
        return body == sensor or now_s - asked_s >= TF_WAIT_S


class TfLookup:
    """T_body_sensor by tf, which is listened to until `close`."""

    def __init__(self, tf2_ros: ModuleType, node: Node):
        self._buffer = tf2_ros.Buffer()
        self._listener = tf2_ros.TransformListener(self._buffer, node)
        self._not_known = tf2_ros.TransformException

    def __call__(self, body: str, sensor: str) -> NDArray[np.float64] | None:
        """Return where the sensor is, or None while tf does not tell."""
        try:
            found = self._buffer.lookup_transform(body, sensor, Time()).transform
        except self._not_known:
            return None
        p, q = found.translation, found.rotation
        return pose_from_quaternion([p.x, p.y, p.z], [q.x, q.y, q.z, q.w])

    def close(self) -> None:
        """Take the subscriptions off the node, which would keep them for good."""
        self._listener.unregister()


def tf_lookup(node: Node) -> TfLookup | None:
    """Return a way to ask tf, or None where tf2_ros is not installed."""
    try:
        import tf2_ros  # not on the package index: only in a ROS installation
    except ImportError:
        return None
    return TfLookup(tf2_ros, node)
