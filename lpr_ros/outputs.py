"""What lpr_node publishes of keyframes and loops: every topic, its type and its QoS."""

from collections import deque
import threading
import time

from nav_msgs.msg import Odometry, Path
import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node
from std_msgs.msg import Float64MultiArray
from visualization_msgs.msg import MarkerArray

from lpr_ros.core.database import PlaceDatabase
from lpr_ros.core.loop_closer import Verdict
from lpr_ros.core.recogniser import Sighting
from lpr_ros.loop_messages import KeyframePath, candidates_message, constraint_message
from lpr_ros.markers import Pair, markers_message
from lpr_ros.qos import LATCHED, LOOPS

QUIET_S_PER_KEYFRAME = 0.0005  # a listener in Python reads a pose of the path in 80 us
SHOWN_REJECTED = 200  # the newest; there can be many


class Pace:
    """When to publish anew what grows with the drive: if it changed, and the longer the rarer."""

    def __init__(self) -> None:
        self._published: tuple[object, ...] = ()
        self._quiet_until_s = 0.0

    def is_due(self, state: tuple[object, ...], keyframes: int) -> bool:
        """Tell whether to publish what is now in this state and so long."""
        now_s = time.monotonic()
        if state == self._published or now_s < self._quiet_until_s:
            return False
        self._published = state
        self._quiet_until_s = now_s + QUIET_S_PER_KEYFRAME * keyframes
        return True


class Outputs:
    """The topics below the node's name.

    Keyframes come from one thread, verdicts from another; what grows with the drive, path and
    markers, is published by a third, that may take its time.
    """

    def __init__(self, node: Node, database: PlaceDatabase, frame_id: str):
        self._node = node
        self._database = database
        self._loops = node.create_publisher(Odometry, '~/loop_closures', LOOPS)
        self._candidates = node.create_publisher(Float64MultiArray, '~/candidates', 10)
        self._keyframes = node.create_publisher(Path, '~/keyframes', LATCHED)
        self._markers = node.create_publisher(MarkerArray, '~/markers', LATCHED)
        self._path = KeyframePath(frame_id)
        for keyframe_id in range(len(database)):
            self._path.add(database.place(keyframe_id))
        self._path_pace, self._markers_pace = Pace(), Pace()
        self._lock = threading.Lock()  # over what is drawn
        self._session = ''
        self._poses: dict[int, NDArray[np.float64]] = {}  # of the session
        self._accepted: list[Pair] = []
        self._rejected: deque[Pair] = deque(maxlen=SHOWN_REJECTED)
        self._verdicts = 0

    def set_frame(self, frame_id: str) -> None:
        """Say in which frame the poses of this session are."""
        with self._lock:
            self._path.frame_id = frame_id

    def publish_sighting(self, sighting: Sighting) -> None:
        """Publish a keyframe and what it looks like."""
        keyframe = sighting.keyframe
        with self._lock:
            if keyframe.session != self._session:  # its poses have nothing to do with those before
                self._session = keyframe.session
                self._poses = {}
                self._accepted = []
                self._rejected.clear()
            if keyframe.T_odom_sensor is not None:
                self._poses[keyframe.id] = keyframe.T_odom_sensor
            self._path.add(keyframe)
        self._candidates.publish(candidates_message(keyframe.id, sighting.matches))

    def publish_path(self) -> None:
        """Publish the keyframes if there are new ones; a long path not every time."""
        with self._lock:
            count = len(self._path)
            if not self._path_pace.is_due((count, self._path.frame_id), count):
                return
            path = self._path.serialised()
        self._keyframes.publish(path)

    def publish_verdict(self, verdict: Verdict) -> None:
        """Publish the loops that may be trusted now."""
        for loop in verdict.trusted:
            stamp_ns = self._database.place(loop.query_id).stamp_ns
            self._loops.publish(constraint_message(loop, stamp_ns))
        with self._lock:
            self._accepted += [(loop.query_id, loop.match_id) for loop in verdict.trusted]
            pairs = [(verdict.query_id, c.match.keyframe_id) for c in verdict.rejected]
            self._rejected.extend(pairs)
            self._verdicts += 1

    def publish_markers(self, stamp_ns: int) -> None:
        """Draw everything, where someone looks and something is new; much of it not every time."""
        watchers = self._markers.get_subscription_count()
        with self._lock:
            frame_id, count = self._path.frame_id, len(self._poses)
            state = (watchers, frame_id, self._session, count, self._verdicts)
            if not watchers or not self._markers_pace.is_due(state, count):
                return
            poses, accepted = dict(self._poses), list(self._accepted)
            rejected = list(self._rejected)
        message = markers_message(stamp_ns, frame_id, poses, accepted, rejected)
        self._markers.publish(message)

    def close(self) -> None:
        """Take the topics off the node."""
        for publisher in (self._loops, self._candidates, self._keyframes, self._markers):
            self._node.destroy_publisher(publisher)
