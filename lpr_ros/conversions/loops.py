"""Conversions of loop closures, keyframes and candidates to ROS messages and back.

A loop closure is published as a nav_msgs/Odometry constraint: frame `keyframe/<match id>`, child
frame `keyframe/<query id>`, the stamp of the query, and the pose T_match_query.

Covariance convention: in the message, as REP 103 and geometry_msgs/PoseWithCovariance have it,
position errors are along and rotation errors about the fixed axes of the header frame, the match.
`LoopClosure.covariance` (and loops.csv) is that of a local perturbation in the frame of the query:
T_true = T_match_query Exp(error). Both order x y z roll pitch yaw, in m and rad, and differ by the
rotation of T_match_query. `constraint_message` and `loop_from_constraint` convert between them.
"""

from collections.abc import Iterable
import math
import struct

from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import Odometry, Path
import numpy as np
from rclpy.serialization import deserialize_message, serialize_message
from std_msgs.msg import Float64MultiArray, Header, MultiArrayDimension, MultiArrayLayout

from lpr_ros.conversions.poses import (
    header_message,
    odometry_message,
    pose_from_message,
    pose_message,
)
from lpr_ros.core.errors import GraphError, ScanError
from lpr_ros.core.geometry.se3 import covariance_in_parent, invert
from lpr_ros.core.types import Keyframe, LoopClosure, Match, Place

FRAME_PREFIX = 'keyframe/'
CDR_HEADER_BYTES = 4  # at the start of every serialized message
SEQUENCE_LENGTH = struct.Struct('=I')
CANDIDATE_COLUMNS = ('query_id', 'match_id', 'distance', 'probability')


def constraint_message(loop: LoopClosure, query_stamp_ns: int) -> Odometry:
    """Return the constraint message of a loop closure."""
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
    """Return the loop closure of a constraint message; overlap and match distance are unknown."""
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
    """All keyframes as a nav_msgs/Path; the index of a pose is the keyframe id.

    Poses are T_odom_sensor, and the frame of each pose is the name of its session, as sessions do
    not share an odometry frame. A keyframe without odometry has a NaN position.

    Stored serialized, because the whole path is published repeatedly: rclpy takes 0.4 s to
    serialize 5000 poses, and copying their bytes takes less than 1 ms.
    """

    def __init__(self, frame_id: str):
        self._header = Header(frame_id=frame_id)
        self._first: list[PoseStamped] = []  # its alignment depends on the header before it
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
        """Append the next keyframe."""
        if keyframe.id != self._count:
            raise GraphError(
                f'keyframe id {keyframe.id}, expected {self._count}: ids are consecutive from 0'
            )
        pose = PoseStamped(header=header_message(keyframe.stamp_ns, keyframe.session))
        if keyframe.T_odom_sensor is None:
            pose.pose.position.x = math.nan
        else:
            pose.pose = pose_message(keyframe.T_odom_sensor)
        data = serialize_message(pose)[CDR_HEADER_BYTES:]  # the first one too: it may fail
        if self._first:
            # A pose ends in doubles, so the next starts 8-byte aligned, as in a message by itself.
            self._others += data
        else:
            self._first = [pose]
        self._count += 1
        self._header.stamp = pose.header.stamp

    def serialized(self) -> bytes:
        """Return the serialized nav_msgs/Path, which a publisher accepts in place of a message."""
        length_at = len(serialize_message(Path(header=self._header))) - SEQUENCE_LENGTH.size
        start = serialize_message(Path(header=self._header, poses=self._first))
        header, first_pose = start[:length_at], start[length_at + SEQUENCE_LENGTH.size :]
        length = SEQUENCE_LENGTH.pack(self._count)
        return header + length + first_pose + bytes(self._others)

    @property
    def message(self) -> Path:
        """The nav_msgs/Path as a subscriber receives it."""
        message: Path = deserialize_message(self.serialized(), Path)
        return message


def candidates_message(query_id: int, matches: Iterable[Match]) -> Float64MultiArray:
    """Return the table of matches retrieved for a keyframe, one row per match."""
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
        raise GraphError(f'loop closure: expected frame {FRAME_PREFIX}<id>, got {frame_id!r}')
    return int(number)
