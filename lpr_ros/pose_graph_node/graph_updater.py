"""From the topics of lpr_node to the pose graph, in whatever order the messages come."""

from collections import deque

from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import Odometry, Path
import numpy as np

from lpr_ros.core.back_end import BackEnd, BackEndConfig
from lpr_ros.core.errors import GraphError, ScanError
from lpr_ros.core.pointcloud2 import stamp_ns
from lpr_ros.core.records import Keyframe, LoopClosure
from lpr_ros.loop_messages import loop_from_constraint
from lpr_ros.pose_messages import pose_from_message

WAITING = 1000  # loops whose keyframes have not come yet
NO_ARRAY = np.empty((0, 3), dtype=np.float32)


class GraphFeed:
    """Takes whole paths, of which the end is new, and loops, which may come before their ends."""

    def __init__(self, config: BackEndConfig):
        self._config = config
        self._waiting: deque[tuple[int, LoopClosure]] = deque(maxlen=WAITING)  # query stamp, loop
        self.rejected: list[str] = []  # what the graph did not take, to be told and cleared
        self._begin()

    def _begin(self) -> None:
        self.back_end = BackEnd(self._config)
        self.stamps_ns: list[int] = []  # of every keyframe, with a pose or without
        self.session: str | None = None  # of the newest keyframe
        self._loops: list[tuple[int, LoopClosure]] = []  # those in the graph, with query stamps
        self._newest: Keyframe | None = None
        self._restarts = 0

    def take_path(self, path: Path) -> bool:
        """Take the keyframes not seen before; say whether that changed the graph.

        A path that does not go on from the last one is that of a node that began anew. If it was
        killed and loaded its map, the beginning is the same, and so are the loops in it.
        """
        stamps = [stamp_ns(pose.header) for pose in path.poses]
        if stamps == self.stamps_ns:
            return False
        shared = _shared(stamps, self.stamps_ns)
        kept: list[tuple[int, LoopClosure]] = []
        if shared < len(self.stamps_ns):
            kept = [(s, loop) for s, loop in self._loops if _newest_end(loop) < shared]
            self._begin()
        for number in range(len(self.stamps_ns), len(stamps)):
            self._take_keyframe(number, stamps[number], path.poses[number])
        for stamp, loop in kept:
            self._add_loop(stamp, loop)
        self._add_waiting()
        return True

    def take_loop(self, message: Odometry) -> bool:
        """Take a constraint; say whether it changed the graph already."""
        try:
            loop = loop_from_constraint(message)
        except GraphError as error:
            self.rejected.append(str(error))
            return False
        self._waiting.append((stamp_ns(message.header), loop))
        return self._add_waiting()

    def _take_keyframe(self, number: int, stamp: int, pose: PoseStamped) -> None:
        self.stamps_ns.append(stamp)
        try:
            T_odom_sensor = pose_from_message(pose.pose)
        except ScanError:
            return  # without odometry it has no place in the graph
        name, before = pose.header.frame_id, self._newest
        if before is not None and before.stamp_ns >= stamp:
            self._restarts += 1  # time went back: odometry began anew, whatever it is called
        session = f'{name}#{self._restarts}'
        travelled_m = 0.0
        if before is not None and before.session == session:
            step = T_odom_sensor[:3, 3] - before.T_odom_sensor[:3, 3]
            travelled_m = before.travelled_m + float(np.linalg.norm(step))
        keyframe = Keyframe(
            number, session, stamp, NO_ARRAY[:, 0], NO_ARRAY, T_odom_sensor, travelled_m
        )
        self.back_end.add_keyframe(keyframe)
        self._newest, self.session = keyframe, session

    def _add_waiting(self) -> bool:
        """Add the loops whose ends are there; ids of another run are told by the stamp."""
        waiting, self._waiting = self._waiting, deque(maxlen=WAITING)
        for stamp, loop in waiting:
            is_there = _newest_end(loop) < len(self.stamps_ns)
            if is_there and self.stamps_ns[loop.query_id] == stamp:
                self._add_loop(stamp, loop)
            else:
                self._waiting.append((stamp, loop))
        return len(self._waiting) < len(waiting)

    def _add_loop(self, stamp: int, loop: LoopClosure) -> None:
        try:
            self.back_end.add_loop(loop)
        except GraphError as error:
            self.rejected.append(str(error))
        else:
            self._loops.append((stamp, loop))


def _newest_end(loop: LoopClosure) -> int:
    return max(loop.query_id, loop.match_id)


def _shared(a: list[int], b: list[int]) -> int:
    """Return how many numbers are the same from the beginning."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))
