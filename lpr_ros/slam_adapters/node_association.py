"""Association of our keyframes with the nodes of a back-end's own pose graph.

The back-end creates nodes from other scans than our keyframes. Each end of a loop closure is
carried by odometry to the node nearest in time, so both must use the same odometry.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import AdapterError
from lpr_ros.core.geometry.se3 import adjoint, invert, propagate
from lpr_ros.core.timing import NS_PER_S
from lpr_ros.core.types import LoopClosure, Place
from lpr_ros.slam_adapters.base import loop_between_base_poses


@dataclass(frozen=True)
class NodeAssociationConfig(Config):
    """Association of keyframes with nodes of the back-end."""

    max_gap_s: float = option(
        2.0,
        'Maximum time between a keyframe and the back-end node that represents it',
        unit='s',
        low=0.0,
        high=60.0,
        fixed=True,
    )
    max_offset_m: float = option(
        5.0,
        'Maximum distance by odometry between a keyframe and the back-end node that represents '
        'it; a larger one indicates different odometry sources',
        unit='m',
        low=0.0,
        fixed=True,
    )


@dataclass(frozen=True, eq=False)
class NodeLoop:
    """A loop closure between the base poses of two back-end nodes."""

    match_id: int
    query_id: int
    T_match_query: NDArray[np.float64]  # (4, 4)
    covariance: NDArray[np.float64]  # (6, 6), of a local perturbation in the query's base frame


class NodeAssociation:
    """Stores the nodes of a back-end and transfers loop closures to them."""

    def __init__(self, config: NodeAssociationConfig):
        self._config = config
        self._by_stamp: list[tuple[int, int]] = []  # stamp_ns, node id
        self._poses: dict[int, NDArray[np.float64]] = {}
        self._lock = Lock()  # nodes come from the executor, loop closures from the worker

    def add_node(self, node_id: int, stamp_ns: int, T_odom_base: NDArray[np.float64]) -> None:
        """Add a node; a known id keeps its first stamp and pose."""
        with self._lock:
            if node_id not in self._poses:
                insort(self._by_stamp, (stamp_ns, node_id))
                self._poses[node_id] = T_odom_base

    def transfer(
        self, loop: LoopClosure, query: Place, match: Place, T_base_sensor: NDArray[np.float64]
    ) -> NodeLoop:
        """Return the loop closure between the nodes nearest in time to its two keyframes.

        AdapterError if a keyframe has no node nearby.
        """
        match_id, T_match_node = self._nearest_node(match, T_base_sensor)
        query_id, T_query_node = self._nearest_node(query, T_base_sensor)
        if match_id == query_id:
            raise AdapterError(
                f'keyframes {match.id} and {query.id} are both nearest to node {match_id}'
            )
        base = loop_between_base_poses(loop, T_base_sensor)
        T = invert(T_match_node) @ base.T_match_query @ T_query_node
        covariance = propagate(adjoint(invert(T_query_node)), base.covariance)
        return NodeLoop(match_id, query_id, T, covariance)

    def _nearest_node(
        self, keyframe: Place, T_base_sensor: NDArray[np.float64]
    ) -> tuple[int, NDArray[np.float64]]:
        """Return the id of the node nearest in time, and its pose in the keyframe's base frame."""
        if keyframe.T_odom_sensor is None:
            raise AdapterError(f'keyframe {keyframe.id} has no odometry')
        with self._lock:
            index = bisect_left(self._by_stamp, (keyframe.stamp_ns, 0))
            neighbors = self._by_stamp[max(0, index - 1) : index + 1]
            if not neighbors:
                raise AdapterError('no nodes received from the back-end yet')
            stamp_ns, node_id = min(neighbors, key=lambda node: abs(node[0] - keyframe.stamp_ns))
            T_odom_node = self._poses[node_id]
        T_base_node = T_base_sensor @ invert(keyframe.T_odom_sensor) @ T_odom_node
        gap_s = abs(stamp_ns - keyframe.stamp_ns) / NS_PER_S
        offset_m = float(np.linalg.norm(T_base_node[:3, 3]))
        if gap_s > self._config.max_gap_s or offset_m > self._config.max_offset_m:
            raise AdapterError(
                f'keyframe {keyframe.id}: nearest node {node_id} is {gap_s:.2f} s and '
                f'{offset_m:.1f} m away, expected at most {self._config.max_gap_s} s and '
                f'{self._config.max_offset_m} m'
            )
        return node_id, T_base_node
