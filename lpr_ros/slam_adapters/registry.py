"""The registry of SLAM adapters, and the adapters a node uses.

To add one, write a module with its configuration and class, and add an entry to ADAPTERS. Its
parameters then appear below `adapters.<name>`, and `backends` accepts the name.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, make_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node

from lpr_ros.core.config import Config
from lpr_ros.core.errors import InterfaceError, error_with_type
from lpr_ros.core.geometry.se3 import adjoint, invert, propagate
from lpr_ros.core.types import LoopClosure, Place
from lpr_ros.slam_adapters.base import Adapter
from lpr_ros.slam_adapters.lio_sam import LioSam, LioSamConfig
from lpr_ros.slam_adapters.pose_graph_tools import PoseGraphTools, PoseGraphToolsConfig
from lpr_ros.slam_adapters.rtabmap import Rtabmap, RtabmapConfig
from lpr_ros.slam_adapters.swarm_slam import SwarmSlam, SwarmSlamConfig

OnProblem = Callable[[str, str], None]  # name of the adapter, reason


@dataclass(frozen=True)
class AdapterEntry:
    """The class of an adapter, called with the node and its settings, and that of the settings."""

    adapter: Callable[[Node, Any], Adapter]
    config: type[Config] = Config  # no settings


ADAPTERS: dict[str, AdapterEntry] = {
    'lio_sam': AdapterEntry(LioSam, LioSamConfig),
    'pose_graph_tools': AdapterEntry(PoseGraphTools, PoseGraphToolsConfig),
    'rtabmap': AdapterEntry(Rtabmap, RtabmapConfig),
    'swarm_slam': AdapterEntry(SwarmSlam, SwarmSlamConfig),
}


def adapters_config(entries: Mapping[str, AdapterEntry]) -> type[Config]:
    """Build the configuration that holds one section per adapter."""
    sections = [(name, e.config, field(default_factory=e.config)) for name, e in entries.items()]
    namespace = {'__doc__': 'Settings of the SLAM adapters.', '__module__': __name__}
    return make_dataclass(
        'AdaptersConfig', sections, bases=(Config,), frozen=True, namespace=namespace
    )


class SlamAdapters:
    """The selected adapters; `missing` maps each unavailable one to the reason.

    `on_drop` is called with the name and the reason for each loop closure an adapter drops, and
    `on_keep` (by default the same) for each retracted one that a back-end may keep.
    """

    def __init__(
        self,
        node: Node,
        names: Iterable[str],
        config: Config,
        on_drop: OnProblem,
        on_keep: OnProblem | None = None,
    ):
        self._on_drop, self._on_keep = on_drop, on_keep or on_drop
        self._adapters: dict[str, Adapter] = {}
        self.missing: dict[str, str] = {}
        for name in dict.fromkeys(names):
            try:
                self._adapters[name] = ADAPTERS[name].adapter(node, getattr(config, name))
            except InterfaceError as error:
                self.missing[name] = str(error)

    @property
    def names(self) -> tuple[str, ...]:
        """The adapters in use."""
        return tuple(self._adapters)

    def publish(
        self,
        loop: LoopClosure,
        query: Place,
        match: Place,
        T_base_query: NDArray[np.float64],
        T_base_match: NDArray[np.float64],
    ) -> None:
        """Send a loop closure to every back-end; one that drops it does not affect the others.

        `T_base_*` are the mounting poses of the sensors that took the query and the match.
        """
        moved = move_query_to_match_sensor(loop, query, T_base_query, T_base_match)
        for name, adapter in self._adapters.items():
            with self._report(name, self._on_drop, f'loop {loop.query_id} to {loop.match_id}'):
                adapter.publish(*moved, match, T_base_match)

    def retract(
        self,
        loop: LoopClosure,
        query: Place,
        match: Place,
        T_base_query: NDArray[np.float64],
        T_base_match: NDArray[np.float64],
    ) -> None:
        """Take back a loop closure from every back-end that can; arguments as for `publish`."""
        moved = move_query_to_match_sensor(loop, query, T_base_query, T_base_match)
        what = f'retracted loop {loop.query_id} to {loop.match_id}'
        for name, adapter in self._adapters.items():
            with self._report(name, self._on_keep, what):
                adapter.retract(*moved, match, T_base_match)

    def close(self) -> None:
        """Close all adapters."""
        for adapter in self._adapters.values():
            adapter.close()
        self._adapters = {}

    @staticmethod
    @contextmanager
    def _report(name: str, on_problem: OnProblem, what: str) -> Iterator[None]:
        """Report what an adapter raises instead of passing it on to the other adapters."""
        try:
            yield
        except Exception as error:  # also a message that rclpy rejects
            on_problem(name, f'{what}: {error_with_type(error)}')


def move_query_to_match_sensor(
    loop: LoopClosure,
    query: Place,
    T_base_query: NDArray[np.float64],
    T_base_match: NDArray[np.float64],
) -> tuple[LoopClosure, Place]:
    """Return the loop closure and its query as if the sensor of the match had taken the query.

    `T_base_*` are the mounting poses of the two sensors, on a robot with several LiDARs.
    """
    T_query_match_sensor = invert(T_base_query) @ T_base_match
    T_odom_query = query.T_odom_sensor
    moved = replace(
        loop,
        T_match_query=loop.T_match_query @ T_query_match_sensor,
        covariance=propagate(adjoint(invert(T_query_match_sensor)), loop.covariance),
    )
    T_odom_sensor = None if T_odom_query is None else T_odom_query @ T_query_match_sensor
    return moved, replace(query, T_odom_sensor=T_odom_sensor)
