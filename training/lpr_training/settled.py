"""Poses of a slow walk from its scans alone: each is fitted to the map of the scans before it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
import small_gicp
from tqdm import tqdm

from lpr_ros.core.geometry import transform_points
from lpr_ros.core.keyframes import thin

VOXEL_M = 0.25
NEIGHBOURS = 20  # from which the surface at a point is estimated
MAP_SCANS = 15  # the newest, enough to see every wall, too few to average a drift away
REACHES_M = (2.0, 1.0, 0.5)  # farthest correspondence: more than a step at first, then less


def settled_poses(clouds: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
    """Return T_world_sensor (N, 4, 4); a scan must lie within a metre of the one before."""
    clouds = [thin(points, VOXEL_M) for points in clouds]
    poses = [np.eye(4)]
    for i in tqdm(range(1, len(clouds)), desc='settle', unit='scan'):
        newest = range(max(0, i - MAP_SCANS), i)
        seen = np.concatenate([transform_points(poses[j], clouds[j]) for j in newest])
        target, tree = _surfaces(thin(seen.astype(np.float32), VOXEL_M))
        source, _ = _surfaces(clouds[i])
        pose = poses[-1]
        for reach_m in REACHES_M:
            fitted = small_gicp.align(
                target, source, tree, pose, max_correspondence_distance=reach_m
            )
            pose = np.asarray(fitted.T_target_source)
        poses.append(pose)
    return np.stack(poses)


def _surfaces(points: NDArray[np.float32]) -> tuple[small_gicp.PointCloud, small_gicp.KdTree]:
    # Thinned already: the grid of the same size keeps what it can.
    return small_gicp.preprocess_points(points.astype(np.float64), VOXEL_M, NEIGHBOURS)
