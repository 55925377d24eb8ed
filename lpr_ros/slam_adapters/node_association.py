"""The nodes of a back-end that has a graph of its own, and loops between them.

Its nodes are not at our keyframes: it takes other scans. Odometry carries the ends of a loop over
to the nodes nearest in time, so the back-end and our node must be given the same odometry.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from lpr_ros.backends.base import seen_from_base
from lpr_ros.core.clock import NS_PER_S
from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import BackendError
from lpr_ros.core.geometry import invert
from lpr_ros.core.records import LoopClosure, Place
from lpr_ros.core.tangent import adjoint, propagate


@dataclass(frozen=True)
class ForeignNodesConfig(Config):
    """Which node of the back-end stands for a keyframe."""

    max_gap_s: float = option(
        2.0, 'nodes further away in time are not taken', unit='s', low=0.0, high=60.0, fixed=True
    )
    max_offset_m: float = option(
        5.0, 'nor nodes further away by odometry: it is not the same as ours then', unit='m',
        low=0.0, fixed=True,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class ForeignLoop:
    """A loop between two nodes of the back-end, in its base frame."""

    match_id: int
    query_id: int
    T_match_query: NDArray[np.float64]  # (4, 4)
    covariance: NDArray[np.float64]  # (6, 6), of a small motion on the right


class ForeignNodes:
    """Collects nodes (id, time, pose in odometry) and moves loops to them."""

    def __init__(self, config: ForeignNodesConfig):
        self._config = config
        self._by_time: list[tuple[int, int]] = []  # stamp, id
        self._poses: dict[int, NDArray[np.float64]] = {}
        self._lock = Lock()  # nodes come from the executor, loops from the worker

    def add(self, node_id: int, stamp_ns: int, T_odom_base: NDArray[np.float64]) -> None:
        """Take a node; one that is known already is left as it is."""
        with self._lock:
            if node_id not in self._poses:
                insort(self._by_time, (stamp_ns, node_id))
                self._poses[node_id] = T_odom_base

    def move(
        self, loop: LoopClosure, query: Place, match: Place, T_base_sensor: NDArray[np.float64]
    ) -> ForeignLoop:
        """Return the loop between the nodes nearest to its ends; BackendError if there are none.

        With T between the base at the keyframes and offsets from odometry: T_node_node' = A T B.
        """
        match_id, T_match_node = self._nearest(match, T_base_sensor)
        query_id, T_query_node = self._nearest(query, T_base_sensor)
        if match_id == query_id:
            raise BackendError(f'keyframes {match.id} and {query.id} are both at node {match_id}')
        base = seen_from_base(loop, T_base_sensor)
        T = invert(T_match_node) @ base.T_match_query @ T_query_node
        to_node = adjoint(invert(T_query_node))  # a motion of the base, seen from the node
        return ForeignLoop(match_id, query_id, T, propagate(to_node, base.covariance))

    def _nearest(
        self, keyframe: Place, T_base_sensor: NDArray[np.float64]
    ) -> tuple[int, NDArray[np.float64]]:
        """Return the node nearest in time, and its pose seen from the base at the keyframe."""
        if keyframe.T_odom_sensor is None:
            raise BackendError(f'keyframe {keyframe.id} has no odometry')
        with self._lock:
            place = bisect_left(self._by_time, (keyframe.stamp_ns, 0))
            around = self._by_time[max(0, place - 1) : place + 1]
            if not around:
                raise BackendError('the back-end has not told its nodes yet')
            stamp_ns, node_id = min(around, key=lambda node: abs(node[0] - keyframe.stamp_ns))
            T_odom_node = self._poses[node_id]
        T_base_node = T_base_sensor @ invert(keyframe.T_odom_sensor) @ T_odom_node
        gap_s = abs(stamp_ns - keyframe.stamp_ns) / NS_PER_S
        offset_m = float(np.linalg.norm(T_base_node[:3, 3]))
        if gap_s > self._config.max_gap_s or offset_m > self._config.max_offset_m:
            raise BackendError(
                f'keyframe {keyframe.id}: node {node_id} is {gap_s:.2f} s and {offset_m:.1f} m '
                f'away, expected at most {self._config.max_gap_s} s and '
                f'{self._config.max_offset_m} m'
            )
        return node_id, T_base_node
