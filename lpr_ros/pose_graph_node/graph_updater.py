"""Update the pose graph from the topics of lpr_node, in whatever order messages arrive.

The order of messages on two topics is not defined: a retraction may arrive before its loop
closure. A loop closure therefore stands if it was published more often than it was retracted.
"""

from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import Odometry, Path
import numpy as np

from lpr_ros.conversions.loops import loop_from_constraint
from lpr_ros.conversions.poses import pose_from_message
from lpr_ros.core.errors import GraphError, ScanError
from lpr_ros.core.geometry.odometry_noise import OdometryNoiseConfig
from lpr_ros.core.pose_graph.optimizer import PoseGraphOptimizer, PoseGraphOptimizerConfig
from lpr_ros.core.timing import stamp_ns
from lpr_ros.core.types import Keyframe, LoopClosure

MAX_PENDING_LOOPS = 1000  # as many as lpr_node keeps for late subscribers
EMPTY = np.empty((0, 3), dtype=np.float32)
Key = tuple[int, tuple[int, int, bytes]]  # stamp of the query, key of the loop closure
Loops = dict[Key, LoopClosure]


class GraphUpdater:
    """Adds new keyframes of complete paths, and loop closures once their keyframes are known."""

    def __init__(self, config: PoseGraphOptimizerConfig, noise: OdometryNoiseConfig | None = None):
        self._config, self._noise = config, noise
        self._pending: Loops = {}  # oldest first
        self._surplus: dict[Key, int] = {}  # publications minus retractions, where not 0
        self.rejected: list[str] = []  # reasons, until the caller clears them
        self._start_graph()

    def _start_graph(self) -> None:
        self.optimizer = PoseGraphOptimizer(self._config, self._noise)
        self.stamps_ns: list[int] = []  # of all keyframes, including those without a pose
        self.session: str | None = None  # of the newest keyframe
        self._loops: Loops = {}  # in the graph
        self._newest: Keyframe | None = None
        self._restarts = 0

    @property
    def loop_count(self) -> int:
        """Number of loop closures in the graph."""
        return len(self._loops)

    def add_path(self, path: Path) -> bool:
        """Add the new keyframes of the path; return whether the graph changed.

        A path that does not extend the last one comes from a restarted lpr_node: the graph is
        rebuilt, and loop closures are kept within the common beginning, a map it loaded again.
        """
        stamps = [stamp_ns(pose.header) for pose in path.poses]
        if stamps == self.stamps_ns:
            return False
        common = _common_prefix(stamps, self.stamps_ns)
        kept: Loops = {}
        if common < len(self.stamps_ns):
            kept = {key: x for key, x in self._loops.items() if _newest_id(x) < common}
            for gone in self._loops.keys() - kept.keys():
                self._surplus.pop(gone, None)
            self._start_graph()
        for keyframe_id in range(len(self.stamps_ns), len(stamps)):
            self._add_keyframe(keyframe_id, stamps[keyframe_id], path.poses[keyframe_id])
        for key, loop in kept.items():
            self._add_loop(key, loop)
        self._add_pending()
        return True

    def add_constraint(self, message: Odometry) -> bool:
        """Add a loop closure, or keep it until its keyframes arrive; return whether it was added.

        When too many are pending, the oldest is rejected.
        """
        read = self._read(message)
        if read is None:
            return False
        key, loop = read
        if self._count(key, 1) != 1:  # retracted already, or published again
            return False
        self._pending[key] = loop
        is_added = self._add_pending()
        if len(self._pending) > MAX_PENDING_LOOPS:
            oldest = next(iter(self._pending))
            self._reject(
                oldest,
                f'{_name(self._pending.pop(oldest))}: its keyframes have not arrived, and '
                f'{MAX_PENDING_LOOPS} newer loop closures are waiting',
            )
        return is_added

    def retract_constraint(self, message: Odometry) -> bool:
        """Remove a loop closure, or cancel one that has not arrived; return whether any was."""
        read = self._read(message)
        if read is None:
            return False
        key, loop = read
        if self._count(key, -1) != 0:
            return False
        self._pending.pop(key, None)
        if self._loops.pop(key, None) is None:
            return False
        self.optimizer.remove_loop(loop.query_id, loop.match_id)
        ends = key[1][:2]
        for other, rival in self._loops.items():  # the same pair at another pose
            if other[1][:2] == ends:
                self.optimizer.add_loop(rival)
        return True

    def _read(self, message: Odometry) -> tuple[Key, LoopClosure] | None:
        try:
            loop = loop_from_constraint(message)
        except GraphError as error:
            self.rejected.append(str(error))
            return None
        return (stamp_ns(message.header), loop.key), loop

    def _count(self, key: Key, change: int) -> int:
        """Count a publication or a retraction; return the publications not retracted."""
        surplus = self._surplus.pop(key, 0) + change
        if surplus:
            self._surplus[key] = surplus
        early = [k for k, n in self._surplus.items() if n < 0] if change < 0 else []
        if len(early) > MAX_PENDING_LOOPS:
            del self._surplus[early[0]]
        return surplus

    def _reject(self, key: Key, reason: str) -> None:
        self._surplus.pop(key, None)
        self.rejected.append(reason)

    def _add_keyframe(self, keyframe_id: int, stamp: int, pose: PoseStamped) -> None:
        self.stamps_ns.append(stamp)
        try:
            T_odom_sensor = pose_from_message(pose.pose)
        except ScanError:
            return  # without odometry it is not a node of the graph
        previous = self._newest
        if previous is not None and previous.stamp_ns >= stamp:
            self._restarts += 1  # time jumped back: new odometry, even under the same name
        session = f'{pose.header.frame_id}#{self._restarts}'
        traveled_m = 0.0
        if previous is not None and previous.session == session:
            step = T_odom_sensor[:3, 3] - previous.T_odom_sensor[:3, 3]
            traveled_m = previous.traveled_m + float(np.linalg.norm(step))
        keyframe = Keyframe(
            keyframe_id, session, stamp, EMPTY[:, 0], EMPTY, T_odom_sensor, traveled_m
        )
        self.optimizer.add_keyframe(keyframe)
        self._newest, self.session = keyframe, session

    def _add_pending(self) -> bool:
        """Add loop closures whose keyframes are known; the stamp rules out ids of another run."""
        pending, self._pending = self._pending, {}
        for key, loop in pending.items():
            is_known = _newest_id(loop) < len(self.stamps_ns)
            if is_known and self.stamps_ns[loop.query_id] == key[0]:
                self._add_loop(key, loop)
            else:
                self._pending[key] = loop
        return len(self._pending) < len(pending)

    def _add_loop(self, key: Key, loop: LoopClosure) -> None:
        try:
            self.optimizer.add_loop(loop)
        except GraphError as error:
            self._reject(key, str(error))
        else:
            self._loops[key] = loop


def _name(loop: LoopClosure) -> str:
    return f'loop closure {loop.query_id} to {loop.match_id}'


def _newest_id(loop: LoopClosure) -> int:
    return max(loop.query_id, loop.match_id)


def _common_prefix(a: list[int], b: list[int]) -> int:
    """Return the length of the common prefix."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))
