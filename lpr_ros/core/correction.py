"""The pose graph of a whole drive, optimised once all its loops are known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.back_end import BackEnd, BackEndConfig
from lpr_ros.core.database import PlaceDatabase
from lpr_ros.core.pose_graph import Edge
from lpr_ros.core.records import LoopClosure


@dataclass(frozen=True, eq=False)
class Correction:
    """Where the keyframes are by odometry and loops together."""

    poses: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)  # T_map_sensor by id
    edges: tuple[Edge, ...] = ()  # odometry and loops
    refused: tuple[tuple[int, int], ...] = ()  # (query, match) of loops the optimiser rejects


def correct(
    database: PlaceDatabase, loops: Sequence[LoopClosure], config: BackEndConfig | None = None
) -> Correction:
    """Optimise all keyframes of a map that have odometry, in order, with the loops among them."""
    by_query: dict[int, list[LoopClosure]] = {}
    for loop in loops:
        by_query.setdefault(loop.query_id, []).append(loop)
    back_end = BackEnd(config)
    for keyframe_id in range(len(database)):
        keyframe = database[keyframe_id]
        if keyframe.T_odom_sensor is None:
            continue
        back_end.add_keyframe(keyframe)
        for loop in by_query.get(keyframe_id, ()):
            if loop.match_id in back_end.graph.poses:
                back_end.add_loop(loop)
    refused = back_end.finish()
    return Correction(
        back_end.poses,
        tuple(back_end.graph.edges),
        tuple((edge.to_id, edge.from_id) for edge in refused),
    )
