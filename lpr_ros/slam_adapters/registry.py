"""The adapters a node uses, by name."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node

from lpr_ros.backends.base import Adapter, seen_by_one_sensor
from lpr_ros.backends.lio_sam import LioSam, LioSamConfig
from lpr_ros.backends.pose_graph_tools import PoseGraphTools, PoseGraphToolsConfig
from lpr_ros.backends.rtabmap import Rtabmap, RtabmapConfig
from lpr_ros.backends.swarm_slam import SwarmSlam, SwarmSlamConfig
from lpr_ros.core.config import Config
from lpr_ros.core.errors import BackendError, LprError
from lpr_ros.core.records import LoopClosure, Place

ADAPTERS: dict[str, Callable[[Node, Any], Adapter]] = {
    'lio_sam': LioSam,
    'pose_graph_tools': PoseGraphTools,
    'rtabmap': Rtabmap,
    'swarm_slam': SwarmSlam,
}


@dataclass(frozen=True)
class AdaptersConfig(Config):
    """The settings of every adapter, used or not."""

    lio_sam: LioSamConfig = field(default_factory=LioSamConfig)
    pose_graph_tools: PoseGraphToolsConfig = field(default_factory=PoseGraphToolsConfig)
    rtabmap: RtabmapConfig = field(default_factory=RtabmapConfig)
    swarm_slam: SwarmSlamConfig = field(default_factory=SwarmSlamConfig)


class Backends:
    """The chosen adapters; `missing` says of each that cannot be used why.

    `on_drop` hears of each loop that a back-end did not take: its name and the reason.
    """

    def __init__(
        self,
        node: Node,
        names: Iterable[str],
        config: AdaptersConfig,
        on_drop: Callable[[str, str], None],
    ):
        self._on_drop = on_drop
        self._adapters: dict[str, Adapter] = {}
        self.missing: dict[str, str] = {}
        for name in dict.fromkeys(names):
            try:
                self._adapters[name] = ADAPTERS[name](node, getattr(config, name))
            except BackendError as error:
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
        """Hand a loop to every back-end, whether or not the others can take it.

        `T_base_*` is where the sensor sits that saw the query, and that saw the match.
        """
        loop, query = seen_by_one_sensor(loop, query, T_base_query, T_base_match)
        for name, adapter in self._adapters.items():
            try:
                adapter.publish(loop, query, match, T_base_match)
            except LprError as error:
                self._on_drop(
                    f'loop.{name}', f'loop {loop.query_id} to {loop.match_id}: {error}'
                )

    def close(self) -> None:
        """Take everything off the node."""
        for adapter in self._adapters.values():
            adapter.close()
        self._adapters = {}
