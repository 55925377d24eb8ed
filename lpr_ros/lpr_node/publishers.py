"""What RViz shows: keyframes as points, loops as lines, green when accepted, red when not."""

from collections.abc import Iterable, Mapping

from geometry_msgs.msg import Point
import numpy as np
from numpy.typing import NDArray
from std_msgs.msg import ColorRGBA
from visualization_msgs.msg import Marker, MarkerArray

from lpr_ros.pose_messages import header_message

Pair = tuple[int, int]  # query, match

KEYFRAME_COLOUR = ColorRGBA(r=0.3, g=0.6, b=1.0, a=1.0)
ACCEPTED_COLOUR = ColorRGBA(r=0.1, g=0.9, b=0.2, a=1.0)
REJECTED_COLOUR = ColorRGBA(r=0.9, g=0.2, b=0.1, a=0.5)


def markers_message(
    stamp_ns: int,
    frame_id: str,
    poses: Mapping[int, NDArray[np.float64]],
    accepted: Iterable[Pair],
    rejected: Iterable[Pair],
) -> MarkerArray:
    """Draw keyframes at these poses (T_frame_sensor by id) and the pairs between them.

    Pairs with an end that has no pose here, as of another session, are left out.
    """
    header = header_message(stamp_ns, frame_id)

    def marker(name: str, kind: int, width_m: float, colour: ColorRGBA) -> Marker:
        made = Marker(header=header, ns=name, type=kind, action=Marker.ADD, color=colour)
        made.pose.orientation.w = 1.0
        made.scale.x = made.scale.y = made.scale.z = width_m
        return made

    def ends(pairs: Iterable[Pair]) -> list[Point]:
        known = [pair for pair in pairs if pair[0] in poses and pair[1] in poses]
        return [_point(poses[i]) for pair in known for i in pair]

    keyframes = marker('keyframes', Marker.SPHERE_LIST, 0.6, KEYFRAME_COLOUR)
    keyframes.points = [_point(T) for T in poses.values()]
    right = marker('accepted', Marker.LINE_LIST, 0.25, ACCEPTED_COLOUR)
    right.points = ends(accepted)
    wrong = marker('rejected', Marker.LINE_LIST, 0.1, REJECTED_COLOUR)
    wrong.points = ends(rejected)
    return MarkerArray(markers=[keyframes, right, wrong])


def _point(T: NDArray[np.float64]) -> Point:
    x, y, z = map(float, T[:3, 3])
    return Point(x=x, y=y, z=z)
