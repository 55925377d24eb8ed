"""The pose graph: keyframes, odometry between them, loop closures. It optimises nothing itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import GraphError
from lpr_ros.core.geometry import invert
from lpr_ros.core.odometry_noise import OdometryNoiseConfig, drift_covariance
from lpr_ros.core.records import Keyframe, LoopClosure


@dataclass(frozen=True, eq=False)
class Edge:
    """A measured relative pose; the covariance is of a small motion on its right (tangent.py)."""

    from_id: int
    to_id: int
    T_from_to: NDArray[np.float64]  # (4, 4)
    covariance: NDArray[np.float64]  # (6, 6), x y z roll pitch yaw
    is_loop: bool = False


class PoseGraph:
    """Keyframes by id, in the odometry frame of their session, and the edges between them."""

    def __init__(self, noise: OdometryNoiseConfig | None = None):
        self._noise = noise or OdometryNoiseConfig()
        self._poses: dict[int, NDArray[np.float64]] = {}
        self._newest: dict[str, Keyframe] = {}
        self.edges: list[Edge] = []

    @property
    def poses(self) -> Mapping[int, NDArray[np.float64]]:
        """T_odom_sensor of every keyframe, in order of arrival."""
        return MappingProxyType(self._poses)

    def newest_of(self, session: str) -> int | None:
        """Return the id of the newest keyframe of a session, or None."""
        return self._newest[session].id if session in self._newest else None

    def add_keyframe(self, keyframe: Keyframe) -> Edge | None:
        """Take a keyframe; return the odometry edge from the one before it in its session.

        None for the first, and after a jump of odometry: what follows hangs on loops alone.
        """
        T_odom_sensor = keyframe.T_odom_sensor
        if T_odom_sensor is None or not np.isfinite(T_odom_sensor).all():
            raise GraphError(
                f'keyframe {keyframe.id}: expected a finite pose, got {T_odom_sensor}'
            )
        if keyframe.id in self._poses:
            raise GraphError(f'keyframe {keyframe.id}: is in the graph already')
        before = self._newest.get(keyframe.session)
        self._poses[keyframe.id] = T_odom_sensor
        self._newest[keyframe.session] = keyframe
        edge = None if before is None else self._odometry_edge(before, keyframe)
        if edge is not None:
            self.edges.append(edge)
        return edge

    def add_loop(self, loop: LoopClosure) -> Edge:
        """Take a loop closure between two keyframes of the graph."""
        for keyframe_id in (loop.match_id, loop.query_id):
            if keyframe_id not in self._poses:
                raise GraphError(f'loop closure: keyframe {keyframe_id} is not in the graph')
        if loop.match_id == loop.query_id:
            raise GraphError(f'loop closure: keyframe {loop.query_id} with itself')
        if not np.isfinite(loop.T_match_query).all() or not is_covariance(loop.covariance):
            raise GraphError(
                f'loop closure {loop.query_id} to {loop.match_id}: expected a finite pose and a '
                f'positive definite covariance, got {loop.T_match_query} and {loop.covariance}'
            )
        edge = Edge(loop.match_id, loop.query_id, loop.T_match_query, loop.covariance, True)
        self.edges.append(edge)
        return edge

    def _odometry_edge(self, before: Keyframe, after: Keyframe) -> Edge | None:
        T_before_after = invert(self._poses[before.id]) @ self._poses[after.id]
        step_m = float(np.linalg.norm(T_before_after[:3, 3]))
        if step_m > self._noise.jump_m:
            return None
        way_m = max(step_m, after.travelled_m - before.travelled_m)
        return Edge(before.id, after.id, T_before_after, drift_covariance(way_m, self._noise))


def is_covariance(matrix: NDArray[np.float64]) -> bool:
    """Say whether a matrix is 6x6, finite, symmetric and positive definite."""
    if matrix.shape != (6, 6) or not np.isfinite(matrix).all():
        return False
    if not np.allclose(matrix, matrix.T, rtol=1e-6, atol=1e-12):
        return False
    return bool((np.linalg.eigvalsh(matrix) > 0.0).all())
