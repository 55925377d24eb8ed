"""The topics that lpr_node publishes keyframes and loop closures on."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
import threading
import time

from geometry_msgs.msg import Point
from nav_msgs.msg import Odometry, Path
import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node
from rclpy.publisher import Publisher
from std_msgs.msg import ColorRGBA, Float64MultiArray
from visualization_msgs.msg import Marker, MarkerArray

from lpr_ros.conversions.loops import KeyframePath, candidates_message, constraint_message
from lpr_ros.conversions.poses import header_message
from lpr_ros.core.database.place_database import PlaceDatabase
from lpr_ros.core.types import KeyframeQuery, LoopClosure, Place, VerificationResult
from lpr_ros.lpr_node.extrinsics import Extrinsic
from lpr_ros.ros_utils.qos import LATCHED, LOOPS
from lpr_ros.ros_utils.spin import destroy_safely
from lpr_ros.slam_adapters.registry import SlamAdapters

Pair = tuple[int, int]  # query, match
KEYFRAME_COLOR = ColorRGBA(r=0.3, g=0.6, b=1.0, a=1.0)
ACCEPTED_COLOR = ColorRGBA(r=0.1, g=0.9, b=0.2, a=1.0)
REJECTED_COLOR = ColorRGBA(r=0.9, g=0.2, b=0.1, a=0.5)
PAUSE_PER_KEYFRAME_S = 0.0005  # a subscriber in Python needs 80 us per pose of the path
MAX_REJECTED_SHOWN = 200
DEFAULT_FRAME = 'odom'  # until odometry names its own
LOOP_CLOSURES, RETRACTED = '~/loop_closures', '~/retracted_loop_closures'


class Publishers:
    """Publishes keyframes, candidates, loop closures and markers of one database at a time.

    The topics live as long as the node; `show` switches them to another database. Keyframes and
    results come from one worker each. Path and markers grow with the drive and are published from
    a timer.
    """

    def __init__(self, node: Node):
        self._node = node
        self._loops = self._create_loop_topic(LOOP_CLOSURES)
        self._retractions = self._create_loop_topic(RETRACTED)
        self._candidates = node.create_publisher(Float64MultiArray, '~/candidates', 10)
        self._keyframes = node.create_publisher(Path, '~/keyframes', LATCHED)
        self._markers = node.create_publisher(MarkerArray, '~/markers', LATCHED)
        self._lock = threading.Lock()  # guards everything below
        self._has_published_loops = False
        self._frame_id = DEFAULT_FRAME
        self._reset(None, KeyframePath(DEFAULT_FRAME))

    def show(self, database: PlaceDatabase, path: KeyframePath) -> None:
        """Publish this database from now on; `path` holds the keyframes it has so far."""
        if self._has_published_loops:
            self._forget_published_loops()
        with self._lock:
            self._reset(database, path)

    def clear(self) -> None:
        """Publish no database any more."""
        with self._lock:
            self._reset(None, KeyframePath(self._frame_id))

    def set_frame(self, frame_id: str) -> None:
        """Set the frame of the poses of this session."""
        with self._lock:
            self._frame_id = frame_id

    def publish_keyframe(self, keyframe_query: KeyframeQuery) -> None:
        """Publish the matches of a keyframe; path and markers follow from the timer."""
        keyframe = keyframe_query.keyframe
        with self._lock:
            if keyframe.session != self._session:  # its poses are in another frame
                self._session = keyframe.session
                self._poses = {}
                self._accepted = {}
                self._rejected.clear()
            if keyframe.T_odom_sensor is not None:
                self._poses[keyframe.id] = keyframe.T_odom_sensor
        self._candidates.publish(candidates_message(keyframe.id, keyframe_query.matches))

    def publish_loops(self, result: VerificationResult, stamps_ns: Mapping[int, int]) -> None:
        """Publish the loop closures that became trusted, and those to take back.

        `stamps_ns` are the stamps of their query keyframes, by id. Retractions come first, so that
        a back-end never holds a family of loop closures and the one that replaces it.
        """
        self._show_result(result)
        self._has_published_loops |= bool(result.trusted)
        for topic, loops in (
            (self._retractions, result.retracted),
            (self._loops, result.trusted),
        ):
            for loop in loops:
                topic.publish(constraint_message(loop, stamps_ns[loop.query_id]))

    def _show_result(self, result: VerificationResult) -> None:
        """Add a result to the markers: a retracted edge moves from accepted to rejected."""
        retracted = [(loop.query_id, loop.match_id) for loop in result.retracted]
        with self._lock:
            for pair in retracted:
                self._accepted.pop(pair, None)
            self._rejected.extend(retracted)
            self._accepted |= {(loop.query_id, loop.match_id): None for loop in result.trusted}
            self._rejected.extend((result.query_id, c.match.keyframe_id) for c in result.rejected)
            self._results += 1

    def publish_path(self) -> None:
        """Publish the path if it changed; the longer it is, the less often."""
        with self._lock:
            if self._database is not None:
                extend_path(self._path, self._database)
            self._path.frame_id = self._frame_id
            count = len(self._path)
            if not self._path_pace.is_due((count, self._frame_id), count):
                return
            path = self._path.serialized()
        self._keyframes.publish(path)

    def publish_markers(self, stamp_ns: int) -> None:
        """Publish the markers if they changed and have subscribers; many of them less often."""
        subscribers = self._markers.get_subscription_count()
        with self._lock:
            frame_id, count = self._frame_id, len(self._poses)
            state = (subscribers, frame_id, self._session, count, self._results)
            if not subscribers or not self._markers_pace.is_due(state, count):
                return
            poses, accepted = dict(self._poses), list(self._accepted)
            rejected = list(self._rejected)
        message = markers_message(stamp_ns, frame_id, poses, accepted, rejected)
        self._markers.publish(message)

    def _create_loop_topic(self, name: str) -> Publisher:
        return self._node.create_publisher(Odometry, name, LOOPS)

    def _forget_published_loops(self) -> None:
        """Replace the publishers: late subscribers must not get loops of forgotten keyframes."""
        stale = self._loops, self._retractions
        try:
            fresh = self._create_loop_topic(LOOP_CLOSURES), self._create_loop_topic(RETRACTED)
        except Exception as error:  # out of resources; the old publishers still work
            self._node.get_logger().warning(f'{LOOP_CLOSURES} keeps old loop closures: {error}')
            return
        self._loops, self._retractions = fresh
        self._has_published_loops = False
        for publisher in stale:
            destroy_safely(self._node, lambda gone=publisher: self._node.destroy_publisher(gone))

    def _reset(self, database: PlaceDatabase | None, path: KeyframePath) -> None:
        self._database, self._path = database, path
        self._path_pace, self._markers_pace = Pace(), Pace()
        self._session = ''
        self._poses: dict[int, NDArray[np.float64]] = {}  # of this session, by keyframe
        self._accepted: dict[Pair, None] = {}  # in order of arrival
        self._rejected: deque[Pair] = deque(maxlen=MAX_REJECTED_SHOWN)
        self._results = 0


class ResultPublisher:
    """Publishes the results of the workers and forwards loop closures to SLAM back-ends."""

    def __init__(
        self,
        publishers: Publishers,
        adapters: SlamAdapters,
        database: PlaceDatabase,
        extrinsic: Extrinsic,
    ):
        self._publishers, self._adapters = publishers, adapters
        self._database, self._extrinsic = database, extrinsic
        self._mounts: dict[int, NDArray[np.float64]] = {}  # T_base_sensor by keyframe

    def on_keyframe_query(self, keyframe_query: KeyframeQuery) -> None:
        """Publish a keyframe (first worker)."""
        self._mounts[keyframe_query.keyframe.id] = self._extrinsic.last
        self._publishers.publish_keyframe(keyframe_query)

    def on_verification_result(self, result: VerificationResult) -> None:
        """Publish the loop closures of a keyframe and retract others (second worker)."""
        changed = (*result.retracted, *result.trusted)
        stamps_ns = {x.query_id: self._database.place(x.query_id).stamp_ns for x in changed}
        self._publishers.publish_loops(result, stamps_ns)
        for loop in result.retracted:
            self._adapters.retract(loop, *self._ends(loop))
        for loop in result.trusted:
            self._adapters.publish(loop, *self._ends(loop))

    def _ends(
        self, loop: LoopClosure
    ) -> tuple[Place, Place, NDArray[np.float64], NDArray[np.float64]]:
        """Return query and match of a loop closure, and the mounts of their sensors."""
        # A loaded map does not say where the sensor of its keyframes was mounted.
        T_base_query = self._mounts.get(loop.query_id, self._extrinsic.last)
        return (
            self._database.place(loop.query_id),
            self._database.place(loop.match_id),
            T_base_query,
            self._mounts.get(loop.match_id, T_base_query),
        )


class Pace:
    """Decides when to publish a message that grows: if it changed, and less often if it is long.

    The publishing rate is limited to one keyframe per PAUSE_PER_KEYFRAME_S.
    """

    def __init__(self) -> None:
        self._published: tuple[object, ...] = ()
        self._next_s = 0.0

    def is_due(self, state: tuple[object, ...], keyframes: int) -> bool:
        """Return whether to publish a message of this state and length now."""
        now_s = time.monotonic()
        if state == self._published or now_s < self._next_s:
            return False
        self._published = state
        self._next_s = now_s + PAUSE_PER_KEYFRAME_S * keyframes
        return True


def extend_path(path: KeyframePath, database: PlaceDatabase, *, strict: bool = False) -> None:
    """Append the keyframes of a database that the path lacks.

    The index in the path is the id of the keyframe, so one that cannot be sent is replaced by an
    empty pose, unless `strict` asks to raise.
    """
    for keyframe_id in range(len(path), len(database)):
        place = database.place(keyframe_id)
        try:
            path.add(place)
        except Exception:
            if strict:
                raise
            path.add(replace(place, session='', stamp_ns=0, T_odom_sensor=None))


def markers_message(
    stamp_ns: int,
    frame_id: str,
    poses: Mapping[int, NDArray[np.float64]],
    accepted: Iterable[Pair],
    rejected: Iterable[Pair],
) -> MarkerArray:
    """Draw keyframes at these poses (T_frame_sensor by id) and the pairs between them.

    Pairs with an end outside `poses`, such as one of another session, are omitted.
    """
    header = header_message(stamp_ns, frame_id)

    def marker(name: str, kind: int, width_m: float, color: ColorRGBA) -> Marker:
        made = Marker(header=header, ns=name, type=kind, action=Marker.ADD, color=color)
        made.pose.orientation.w = 1.0
        made.scale.x = made.scale.y = made.scale.z = width_m
        return made

    def ends(pairs: Iterable[Pair]) -> list[Point]:
        known = [pair for pair in pairs if pair[0] in poses and pair[1] in poses]
        return [_point(poses[i]) for pair in known for i in pair]

    keyframes = marker('keyframes', Marker.SPHERE_LIST, 0.6, KEYFRAME_COLOR)
    keyframes.points = [_point(T) for T in poses.values()]
    accepted_lines = marker('accepted', Marker.LINE_LIST, 0.25, ACCEPTED_COLOR)
    accepted_lines.points = ends(accepted)
    rejected_lines = marker('rejected', Marker.LINE_LIST, 0.1, REJECTED_COLOR)
    rejected_lines.points = ends(rejected)
    return MarkerArray(markers=[keyframes, accepted_lines, rejected_lines])


def _point(T: NDArray[np.float64]) -> Point:
    x, y, z = map(float, T[:3, 3])
    return Point(x=x, y=y, z=z)
