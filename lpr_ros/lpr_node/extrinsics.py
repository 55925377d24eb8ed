"""The mounting pose of the LiDAR on the base frame of the odometry, from tf or a parameter."""

from collections.abc import Callable
import threading
import time
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node
from rclpy.time import Time

from lpr_ros.conversions.poses import pose_from_transform
from lpr_ros.core.errors import InterfaceError, ScanError
from lpr_ros.core.geometry.se3 import pose_from_quaternion
from lpr_ros.lpr_node.config import NodeConfig
from lpr_ros.ros_utils.spin import destroy_safely

TF_TIMEOUT_S = 3.0  # the first scan may arrive before the first transform
MAX_FRAME_PAIRS = 64  # more than any robot has; frame ids come from outside

FramePair = tuple[str, str]  # base, sensor
Lookup = Callable[[str, str], NDArray[np.float64] | None]  # base, sensor -> T_base_sensor


class Extrinsic:
    """T_base_sensor for a pair of frames; looked up once per pair."""

    def __init__(self, config: NodeConfig, lookup: Lookup | None, warn: Callable[[str], None]):
        if config.extrinsic_source == 'tf' and lookup is None:
            raise InterfaceError(
                "extrinsic_source 'tf': tf2_ros is not installed; expected auto or parameter"
            )
        self._source = config.extrinsic_source
        self._lookup = None if self._source == 'parameter' else lookup
        self._first_lookup_s: dict[FramePair, float] = {}
        self._T_parameter = pose_from_quaternion(config.extrinsic[:3], config.extrinsic[3:])
        self._warn = warn
        self._lock = threading.Lock()
        self._known: dict[FramePair, NDArray[np.float64]] = {}
        self.last = self._T_parameter  # the one returned last

    def T_base_sensor(self, base: str, sensor: str) -> NDArray[np.float64]:
        """Return the mounting pose; ScanError while tf is still expected to provide it."""
        with self._lock:  # scans and LiDAR odometry have a thread each
            if (base, sensor) not in self._known:
                found = self._find(base, sensor)
                _forget_oldest(self._known)
                self._known[base, sensor] = found
            self.last = self._known[base, sensor]
            return self.last

    def _find(self, base: str, sensor: str) -> NDArray[np.float64]:
        found = self._lookup(base, sensor) if self._lookup is not None else None
        if found is not None:
            return found
        if self._source == 'tf' or (self._lookup and not self._has_timed_out(base, sensor)):
            raise ScanError('extrinsic', f'expected a transform from {sensor} to {base} on tf')
        if base != sensor and np.array_equal(self._T_parameter, np.eye(4)):
            self._warn(
                f'no transform between the frame of the scans, {sensor!r}, and that of the '
                f'odometry, {base!r}: assuming identity. Publish it on tf or set the parameter '
                'extrinsic'
            )
        return self._T_parameter

    def _has_timed_out(self, base: str, sensor: str) -> bool:
        """Return whether tf had its time to provide the transform."""
        now_s = time.monotonic()
        if (base, sensor) not in self._first_lookup_s:
            _forget_oldest(self._first_lookup_s)
            self._first_lookup_s[base, sensor] = now_s
        return base == sensor or now_s - self._first_lookup_s[base, sensor] >= TF_TIMEOUT_S


def _forget_oldest(cache: dict[FramePair, object]) -> None:
    while len(cache) >= MAX_FRAME_PAIRS:
        del cache[next(iter(cache))]


class TfLookup:
    """Looks up T_base_sensor on tf; listens only until a transform is found.

    A mounting pose is looked up once, and a robot may publish thousands of transforms per second.
    """

    def __init__(self, tf2_ros: ModuleType, node: Node):
        self._tf2_ros, self._node = tf2_ros, node
        self._buffer = tf2_ros.Buffer()
        self._listener: Any = None
        self._listen()

    def __call__(self, base: str, sensor: str) -> NDArray[np.float64] | None:
        """Return the mounting pose, or None if tf does not provide a valid one yet. One thread."""
        try:
            found = self._buffer.lookup_transform(base, sensor, Time()).transform
            T_base_sensor = pose_from_transform(found)
        except (self._tf2_ros.TransformException, ScanError):
            self._listen()
            return None
        if self._listener is not None:
            destroy_safely(self._node, self._listener.unregister)
            self._listener = None
        return T_base_sensor

    def _listen(self) -> None:
        if self._listener is None:
            self._listener = self._tf2_ros.TransformListener(self._buffer, self._node)


def tf_lookup(node: Node) -> TfLookup | None:
    """Return a tf listener, or None if tf2_ros is not installed."""
    try:
        import tf2_ros  # not on the package index: only in a ROS installation
    except ImportError:
        return None
    return TfLookup(tf2_ros, node)
