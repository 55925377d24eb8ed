"""The reference back-end: the pose graph optimised by gtsam, loops under a robust kernel.

Online, iSAM2 with a Cauchy kernel: milliseconds per loop, and one wrong loop among several right
ones has little say. At the end, graduated non-convexity over the whole graph: seconds, and a wrong
loop has none. Measured on 2000 keyframes, 350 loops and 70 wrong ones: 0.1 s at most and 5 s,
0.9 m and 0.3 m of a drift of 17 m. Kernels that fall faster ignore the first true loop.
"""

from dataclasses import dataclass, field
from typing import Any

import gtsam
import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.config import Config, option
from lpr_ros.core.geometry import invert
from lpr_ros.core.odometry_noise import OdometryNoiseConfig
from lpr_ros.core.pose_graph import Edge, PoseGraph
from lpr_ros.core.records import Keyframe, LoopClosure

ROTATION_FIRST = (3, 4, 5, 0, 1, 2)  # gtsam's order of a small motion
ANCHOR_SIGMA = 1e-4  # of the keyframe that holds a map in place, m and rad
MOST_STEPS = 100  # of iSAM2 for loops that come together: a thousand of them are settled by then


@dataclass(frozen=True)
class BackEndConfig(Config):
    """How the pose graph is optimised."""

    kernel_width: float = option(1.0, 'sigmas at which the Cauchy kernel bends', low=0.01)
    inlier_probability: float = option(
        0.999, 'share of true loops within the bounds of the last optimisation', low=0.5,
        high=0.9999999,
    )  # fmt: skip
    extra_iterations: int = option(2, 'more steps of iSAM2 after a loop', low=0, high=100)
    odometry: OdometryNoiseConfig = field(default_factory=OdometryNoiseConfig)


class BackEnd:
    """Takes keyframes and loops as they come, and corrects the poses when told to settle.

    Every step of iSAM2 costs time that grows with the graph: what is known together, such as all
    of a map that was loaded, is settled at once.

    Sessions share no frame until a loop joins them: until then each has a map of its own, whose
    frame is its odometry's; so has what follows a jump of odometry. When joined, the map of the
    older keyframes stays where it is.
    """

    def __init__(self, config: BackEndConfig | None = None):
        self._config = config or BackEndConfig()
        self.graph = PoseGraph(self._config.odometry)
        self._poses: dict[int, NDArray[np.float64]] = {}
        self._maps: dict[int, int] = {}  # keyframe -> the keyframe that anchors its map
        self._kernel = gtsam.noiseModel.mEstimator.Cauchy.Create(self._config.kernel_width)
        self._isam = new_isam()
        self._new_factors, self._new_values = gtsam.NonlinearFactorGraph(), gtsam.Values()
        self._new_loops = 0  # since the poses were settled

    @property
    def poses(self) -> dict[int, NDArray[np.float64]]:
        """T_map_sensor of every keyframe, corrected by the loops settled so far."""
        return dict(self._poses)

    def T_map_odom(self, session: str) -> NDArray[np.float64]:
        """Return where the odometry frame of a session is in the map, by its newest keyframe."""
        newest = self.graph.newest_of(session)
        if newest is None:
            return np.eye(4)
        return self._poses[newest] @ invert(self.graph.poses[newest])

    def map_of(self, keyframe_id: int) -> int:
        """Return the keyframe that anchors the map of this one: one map has one anchor."""
        return self._maps[keyframe_id]

    def add_keyframe(self, keyframe: Keyframe) -> None:
        """Take a keyframe with its odometry."""
        edge = self.graph.add_keyframe(keyframe)
        if edge is None:
            self._maps[keyframe.id] = keyframe.id
            self._poses[keyframe.id] = self.graph.poses[keyframe.id]
            self._new_factors.add(self._anchor(keyframe.id))
        else:
            self._maps[keyframe.id] = self._maps[edge.from_id]
            self._poses[keyframe.id] = self._poses[edge.from_id] @ edge.T_from_to
            self._new_factors.add(self._factor(edge))
        self._new_values.insert(keyframe.id, gtsam.Pose3(self._poses[keyframe.id]))

    def add_loop(self, loop: LoopClosure) -> None:
        """Take a loop closure; poses are corrected by the next `settle`."""
        edge = self.graph.add_loop(loop)
        if self._maps[edge.from_id] != self._maps[edge.to_id]:
            self.settle()  # where the maps are to each other is read off their poses
            self._join(edge)
        else:
            self._new_factors.add(self._factor(edge))
        self._new_loops += 1

    def settle(self) -> None:
        """Correct the poses by the loops added since the last time."""
        if not self._new_loops:
            return
        # As many steps as they would have had one by one, within reason.
        steps = min(self._new_loops * (1 + self._config.extra_iterations), MOST_STEPS)
        self._isam.update(self._new_factors, self._new_values)
        for _ in range(1, steps):
            self._isam.update()
        self._new_factors, self._new_values = gtsam.NonlinearFactorGraph(), gtsam.Values()
        self._new_loops = 0
        self._read(self._isam.calculateEstimate())

    def finish(self) -> list[Edge]:
        """Optimise everything once more, robustly from scratch; return the loops it rejects."""
        if not any(edge.is_loop for edge in self.graph.edges):
            return []
        self.settle()
        factors, values = self._whole(robust=False)
        certain = [i for i, edge in enumerate(self.graph.edges) if not edge.is_loop]
        count = len(self.graph.edges)
        certain += range(count, factors.size())  # the anchors
        params = gtsam.GncLMParams()
        params.setLossType(gtsam.GncLossType.TLS)
        params.setKnownInliers(certain)
        optimiser = gtsam.GncLMOptimizer(factors, values, params)
        optimiser.setInlierCostThresholdsAtProbability(self._config.inlier_probability)
        self._read(optimiser.optimize())
        weights = optimiser.getWeights()[:count]
        return [e for e, w in zip(self.graph.edges, weights, strict=True) if w < 0.5]

    def _join(self, edge: Edge) -> None:
        """Carry the newer of two maps over to the older, and begin iSAM2 anew with both."""
        T_loop = self._poses[edge.from_id] @ edge.T_from_to @ invert(self._poses[edge.to_id])
        kept, moved = self._maps[edge.from_id], self._maps[edge.to_id]
        if moved < kept:
            kept, moved, T_loop = moved, kept, invert(T_loop)
        for i in [i for i, anchor in self._maps.items() if anchor == moved]:
            self._maps[i] = kept
            self._poses[i] = T_loop @ self._poses[i]
        self._isam = new_isam()
        self._new_factors, self._new_values = self._whole(robust=True)

    def _whole(self, *, robust: bool) -> tuple[Any, Any]:
        """Return all edges, then the anchors, as factors; and the poses as they are."""
        factors, values = gtsam.NonlinearFactorGraph(), gtsam.Values()
        for edge in self.graph.edges:
            factors.add(self._factor(edge, robust))
        for anchor in sorted(set(self._maps.values())):
            factors.add(self._anchor(anchor))
        for i, T in self._poses.items():
            values.insert(i, gtsam.Pose3(T))
        return factors, values

    def _factor(self, edge: Edge, robust: bool = True) -> Any:
        covariance = edge.covariance[np.ix_(ROTATION_FIRST, ROTATION_FIRST)]
        noise: Any = gtsam.noiseModel.Gaussian.Covariance(covariance)
        if edge.is_loop and robust:
            noise = gtsam.noiseModel.Robust.Create(self._kernel, noise)
        pose = gtsam.Pose3(edge.T_from_to)
        return gtsam.BetweenFactorPose3(edge.from_id, edge.to_id, pose, noise)

    def _anchor(self, keyframe_id: int) -> Any:
        noise = gtsam.noiseModel.Isotropic.Sigma(6, ANCHOR_SIGMA)
        pose = gtsam.Pose3(self._poses[keyframe_id])
        return gtsam.PriorFactorPose3(keyframe_id, pose, noise)

    def _read(self, values: Any) -> None:
        self._poses = {i: values.atPose3(i).matrix() for i in self._poses}


def new_isam() -> Any:
    """Return an iSAM2 that linearises in every step: else nine in ten change nothing."""
    params = gtsam.ISAM2Params()
    params.relinearizeSkip = 1
    return gtsam.ISAM2(params)
