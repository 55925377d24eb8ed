"""What the node says about loops and keyframes, and how a back-end reads it.

A loop closure is a nav_msgs/Odometry used as a constraint: frame `keyframe/<match id>`, child
frame `keyframe/<query id>`, the stamp of the query, the pose T_match_query. Its covariance is, as
in every ROS message, about the axes of the header's frame, the match; the core's is that of a
small motion in the query's frame (core/tangent.py). The functions here turn one into the other.
"""

from collections.abc import Iterable
import math

from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import Odometry, Path
import numpy as np
from std_msgs.msg import Float64MultiArray, MultiArrayDimension, MultiArrayLayout

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
    """

    def __init__(self, frame_id: str):
        self.message = Path()
        self.message.header.frame_id = frame_id

    def add(self, keyframe: Keyframe | Place) -> None:
        """Put the next keyframe at the end."""
        if keyframe.id != len(self.message.poses):
            raise GraphError(
                f'keyframe {keyframe.id}, expected {len(self.message.poses)}: ids count up from 0'
            )
        pose = PoseStamped(header=header_message(keyframe.stamp_ns, keyframe.session))
        if keyframe.T_odom_sensor is None:
            pose.pose.position.x = math.nan
        else:
            pose.pose = pose_message(keyframe.T_odom_sensor)
        self.message.poses.append(pose)
        self.message.header.stamp = pose.header.stamp


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
