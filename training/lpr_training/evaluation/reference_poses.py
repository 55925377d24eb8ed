"""Reference poses of a slow recording from its scans alone, by scan-to-map registration."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
import small_gicp
from tqdm import tqdm

from lpr_ros.core.geometry.points import voxel_downsample
from lpr_ros.core.geometry.se3 import transform_points

VOXEL_M = 0.25
NEIGHBORS = 20  # for the covariance of a point
MAP_SCANS = 15  # covers every wall, yet too few to average out drift
# Coarse to fine; the first must exceed the motion between two scans.
MAX_CORRESPONDENCE_M = (2.0, 1.0, 0.5)


def scan_to_map_poses(clouds: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
    """Return T_world_sensor (N, 4, 4); consecutive scans must be less than 1 m apart."""
    clouds = [voxel_downsample(points, VOXEL_M) for points in clouds]
    poses = [np.eye(4)]
    for i in tqdm(range(1, len(clouds)), desc='register', unit='scan'):
        recent = range(max(0, i - MAP_SCANS), i)
        local_map = np.concatenate([transform_points(poses[j], clouds[j]) for j in recent])
        target, tree = _preprocess(voxel_downsample(local_map.astype(np.float32), VOXEL_M))
        source, _ = _preprocess(clouds[i])
        pose = poses[-1]
        for max_correspondence_m in MAX_CORRESPONDENCE_M:
            aligned = small_gicp.align(
                target, source, tree, pose, max_correspondence_distance=max_correspondence_m
            )
            pose = np.asarray(aligned.T_target_source)
        poses.append(pose)
    return np.stack(poses)


def _preprocess(points: NDArray[np.float32]) -> tuple[small_gicp.PointCloud, small_gicp.KdTree]:
    return small_gicp.preprocess_points(points.astype(np.float64), VOXEL_M, NEIGHBORS)
