"""What the node says about loops and keyframes, and how a back-end reads it.

A loop closure is a nav_msgs/Odometry used as a constraint: frame `keyframe/<match id>`, child
frame `keyframe/<query id>`, the stamp of the query, the pose T_match_query. Its covariance is, as
in every ROS message, about the axes of the header's frame, the match; the core's is that of a
small motion in the query's frame (core/tangent.py). The functions here turn one into the other.
"""

from collections.abc import Iterable
import math
import struct

from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import Odometry, Path
import numpy as np
from rclpy.serialization import deserialize_message, serialize_message
from std_msgs.msg import Float64MultiArray, Header, MultiArrayDimension, MultiArrayLayout

from lpr_ros.core.errors import GraphError, ScanError
from lpr_ros.core.geometry import invert
from lpr_ros.core.records import Keyframe, LoopClosure, Match, Place
from lpr_ros.core.tangent import covariance_in_parent
from lpr_ros.pose_messages import (
    header_message,
    odometry_message,
    pose_from_message,
    pose_message,
)

FRAME_PREFIX = 'keyframe/'
CDR_HEADER_BYTES = 4  # before every serialised message
COUNT = struct.Struct('=I')  # of the elements of a sequence
CANDIDATE_COLUMNS = ('query_id', 'match_id', 'distance', 'probability')


def constraint_message(loop: LoopClosure, query_stamp_ns: int) -> Odometry:
    """Make the constraint of a loop closure."""
    message = odometry_message(
        query_stamp_ns,
        f'{FRAME_PREFIX}{loop.match_id}',
        f'{FRAME_PREFIX}{loop.query_id}',
        loop.T_match_query,
    )
    covariance = covariance_in_parent(loop.T_match_query, loop.covariance)
    message.pose.covariance = covariance.ravel()
    return message


def loop_from_constraint(message: Odometry) -> LoopClosure:
    """Read a constraint; what only the node knows (overlap, inliers, distance) is not in it."""
    match_id = _keyframe_id(message.header.frame_id)
    query_id = _keyframe_id(message.child_frame_id)
    try:
        T_match_query = pose_from_message(message.pose.pose)
    except ScanError as error:
        raise GraphError(f'loop closure {query_id} to {match_id}: {error}') from error
    covariance = np.array(message.pose.covariance).reshape(6, 6)
    return LoopClosure(
        query_id,
        match_id,
        T_match_query,
        covariance_in_parent(invert(T_match_query), covariance),
        math.nan,
        0,
        Match(match_id, math.nan, math.nan),
    )


class KeyframePath:
    """The keyframes as a nav_msgs/Path that grows: the place in it is the id.

    The poses are T_odom_sensor in their session, and the frame of each pose is the name of its
    session: sessions share no odometry frame. A keyframe without odometry has a position of NaN.

    Kept as it goes over the wire, as the whole path is published again and again: 5000 poses take
    rclpy 0.4 s to serialise, and a copy of their bytes less than a millisecond.
    """

    def __init__(self, frame_id: str):
        self._header = Header(frame_id=frame_id)
        self._first: list[PoseStamped] = []  # the one whose bytes depend on the header before it
        self._others = bytearray()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def frame_id(self) -> str:
        """The odometry frame of the newest session."""
        return self._header.frame_id

    @frame_id.setter
    def frame_id(self, frame_id: str) -> None:
        self._header.frame_id = frame_id

    def add(self, keyframe: Keyframe | Place) -> None:
        """Put the next keyframe at the end."""
        if keyframe.id != self._count:
            raise GraphError(
                f'keyframe {keyframe.id}, expected {self._count}: ids count up from 0'
            )
        pose = PoseStamped(header=header_message(keyframe.stamp_ns, keyframe.session))
        if keyframe.T_odom_sensor is None:
            pose.pose.position.x = math.nan
        else:
            pose.pose = pose_message(keyframe.T_odom_sensor)
        if self._first:
            # Poses end in doubles, so each begins aligned to 8 bytes, as it does on its own.
            self._others += serialize_message(pose)[CDR_HEADER_BYTES:]
        else:
            self._first = [pose]
        self._count += 1
        self._header.stamp = pose.header.stamp

    def serialised(self) -> bytes:
        """Return the nav_msgs/Path as a publisher sends it."""
        before = len(serialize_message(Path(header=self._header))) - COUNT.size
        begin = serialize_message(Path(header=self._header, poses=self._first))
        after = begin[before + COUNT.size :]
        return begin[:before] + COUNT.pack(self._count) + after + bytes(self._others)

    @property
    def message(self) -> Path:
        """The nav_msgs/Path as a listener reads it."""
        message: Path = deserialize_message(self.serialised(), Path)
        return message


def candidates_message(query_id: int, matches: Iterable[Match]) -> Float64MultiArray:
    """Make the table of what was retrieved for a keyframe, a row for each match."""
    rows = [(query_id, m.keyframe_id, m.distance, m.probability) for m in matches]
    width = len(CANDIDATE_COLUMNS)
    dimensions = [
        MultiArrayDimension(label='candidates', size=len(rows), stride=len(rows) * width),
        MultiArrayDimension(label=','.join(CANDIDATE_COLUMNS), size=width, stride=width),
    ]
    return Float64MultiArray(
        layout=MultiArrayLayout(dim=dimensions),
        data=[float(value) for row in rows for value in row],
    )


def _keyframe_id(frame_id: str) -> int:
    number = frame_id.removeprefix(FRAME_PREFIX)
    if number == frame_id or not number.isdecimal():
        raise GraphError(f'loop closure: expected a frame {FRAME_PREFIX}<id>, got {frame_id!r}')
    return int(number)
