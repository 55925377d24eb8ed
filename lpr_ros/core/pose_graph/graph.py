"""The pose graph: keyframes, odometry edges and loop closures, without optimization."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import GraphError
from lpr_ros.core.geometry.odometry_noise import OdometryNoiseConfig, drift_covariance
from lpr_ros.core.geometry.se3 import invert
from lpr_ros.core.types import Keyframe, LoopClosure


@dataclass(frozen=True, eq=False)
class Edge:
    """A measured relative pose, with its covariance in the tangent space of the `to` frame."""

    from_id: int
    to_id: int
    T_from_to: NDArray[np.float64]  # (4, 4)
    covariance: NDArray[np.float64]  # (6, 6), x y z roll pitch yaw, m and rad
    is_loop: bool = False


class PoseGraph:
    """Keyframes in the odometry frame of their session, and the edges between them."""

    def __init__(self, noise: OdometryNoiseConfig | None = None):
        self._noise = noise or OdometryNoiseConfig()
        self._poses: dict[int, NDArray[np.float64]] = {}
        self._latest: dict[str, Keyframe] = {}
        self.odometry: list[Edge] = []
        self.loops: list[Edge] = []

    @property
    def edges(self) -> list[Edge]:
        """All edges: odometry, then loop closures."""
        return self.odometry + self.loops

    @property
    def poses(self) -> Mapping[int, NDArray[np.float64]]:
        """T_odom_sensor of every keyframe by ID, in order of arrival."""
        return MappingProxyType(self._poses)

    def latest_of(self, session: str) -> int | None:
        """Return the ID of the latest keyframe of a session, or None."""
        return self._latest[session].id if session in self._latest else None

    def add_keyframe(self, keyframe: Keyframe) -> Edge | None:
        """Add a keyframe; return the odometry edge from the previous one of its session.

        None for the first keyframe of a session: only loop closures connect sessions.
        """
        T_odom_sensor = keyframe.T_odom_sensor
        if T_odom_sensor is None or not np.isfinite(T_odom_sensor).all():
            raise GraphError(
                f'keyframe {keyframe.id}: expected a finite pose, got {T_odom_sensor}'
            )
        if keyframe.id in self._poses:
            raise GraphError(f'keyframe {keyframe.id} is already in the graph')
        previous = self._latest.get(keyframe.session)
        self._poses[keyframe.id] = T_odom_sensor
        self._latest[keyframe.session] = keyframe
        edge = None if previous is None else self._odometry_edge(previous, keyframe)
        if edge is not None:
            self.odometry.append(edge)
        return edge

    def add_loop(self, loop: LoopClosure) -> Edge:
        """Add a loop closure between two keyframes of the graph."""
        for keyframe_id in (loop.match_id, loop.query_id):
            if keyframe_id not in self._poses:
                raise GraphError(f'loop closure: keyframe {keyframe_id} is not in the graph')
        if loop.match_id == loop.query_id:
            raise GraphError(f'loop closure: keyframe {loop.query_id} matches itself')
        if not np.isfinite(loop.T_match_query).all() or not is_covariance(loop.covariance):
            raise GraphError(
                f'loop closure {loop.query_id} to {loop.match_id}: expected a finite pose and a '
                f'positive definite covariance, got {loop.T_match_query} and {loop.covariance}'
            )
        edge = Edge(loop.match_id, loop.query_id, loop.T_match_query, loop.covariance, True)
        self.loops.append(edge)
        return edge

    def remove_loop(self, query_id: int, match_id: int) -> None:
        """Remove the loop closure between two keyframes; GraphError if there is none."""
        kept = [e for e in self.loops if (e.to_id, e.from_id) != (query_id, match_id)]
        if len(kept) == len(self.loops):
            raise GraphError(f'loop closure {query_id} to {match_id} is not in the graph')
        self.loops = kept

    def _odometry_edge(self, previous: Keyframe, keyframe: Keyframe) -> Edge:
        T_from_to = invert(self._poses[previous.id]) @ self._poses[keyframe.id]
        step_m = float(np.linalg.norm(T_from_to[:3, 3]))
        traveled_m = max(step_m, keyframe.traveled_m - previous.traveled_m)
        covariance = drift_covariance(traveled_m, self._noise)
        return Edge(previous.id, keyframe.id, T_from_to, covariance)


def is_covariance(matrix: NDArray[np.float64]) -> bool:
    """Return whether a matrix is 6x6, finite, symmetric and positive definite."""
    if matrix.shape != (6, 6) or not np.isfinite(matrix).all():
        return False
    if not np.allclose(matrix, matrix.T, rtol=1e-6, atol=1e-12):
        return False
    return bool((np.linalg.eigvalsh(matrix) > 0.0).all())
