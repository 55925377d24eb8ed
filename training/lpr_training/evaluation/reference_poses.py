"""Reference poses of a recording from its scans alone, by registration with many scans at once.

Recorded poses are no truth for loop closures that are good to a centimeter: LiDAR odometry of 32
beams tilts by a degree within 10 m, and GNSS/INS poses are off by 1 % of the way and by the
extrinsic calibration. A map of a dozen scans, before and after, is.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
import small_gicp
from tqdm import tqdm

from lpr_ros.core.geometry.points import voxel_downsample
from lpr_ros.core.geometry.se3 import invert, transform_points

VOXEL_M = 0.25
NEIGHBORS = 20  # for the covariance of a point
MAP_SCANS = 15  # covers every wall, yet too few to average out drift
# Coarse to fine; the first must exceed the motion between two scans.
MAX_CORRESPONDENCE_M = (2.0, 1.0, 0.5)
REACH_M = 12.0  # distance of the scans that a pose is settled with
SWEEPS = 2


def scan_to_map_poses(
    clouds: Sequence[NDArray[np.float32]], T_recorded: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Return T_world_sensor (N, 4, 4), each scan registered with a map of those before it.

    Without recorded poses as initial guesses, consecutive scans must be less than 1 m apart.
    """
    clouds = [voxel_downsample(points, VOXEL_M) for points in clouds]
    poses = [np.eye(4) if T_recorded is None else T_recorded[0]]
    for i in tqdm(range(1, len(clouds)), desc='register', unit='scan'):
        recent = range(max(0, i - MAP_SCANS), i)
        guess = poses[-1]
        if T_recorded is not None:
            guess = guess @ invert(T_recorded[i - 1]) @ T_recorded[i]
        poses.append(_register(clouds, poses, recent, i, guess, MAX_CORRESPONDENCE_M))
    return np.stack(poses)


def settle_poses(
    clouds: Sequence[NDArray[np.float32]], T_world_sensor: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Register every scan with those around it, from all visits, until they agree."""
    clouds = [voxel_downsample(points, VOXEL_M) for points in clouds]
    poses = list(T_world_sensor)
    for i in tqdm(list(range(len(clouds))) * SWEEPS, desc='settle', unit='scan'):
        distance_m = np.linalg.norm(np.stack(poses)[:, :3, 3] - poses[i][:3, 3], axis=1)
        around = np.flatnonzero((distance_m < REACH_M) & (np.arange(len(poses)) != i))
        if len(around):
            chosen = np.unique(np.linspace(0, len(around) - 1, MAP_SCANS).astype(np.int64))
            poses[i] = _register(
                clouds, poses, around[chosen], i, poses[i], MAX_CORRESPONDENCE_M[1:]
            )
    return np.stack(poses)


def _register(
    clouds: Sequence[NDArray[np.float32]],
    poses: Sequence[NDArray[np.float64]],
    map_scans: Sequence[int] | NDArray[np.int64],
    index: int,
    guess: NDArray[np.float64],
    max_correspondences_m: Sequence[float],
) -> NDArray[np.float64]:
    """Return the pose of one scan in a map of others."""
    local_map = np.concatenate([transform_points(poses[j], clouds[j]) for j in map_scans])
    target, tree = _preprocess(voxel_downsample(local_map.astype(np.float32), VOXEL_M))
    source, _ = _preprocess(clouds[index])
    for max_correspondence_m in max_correspondences_m:
        aligned = small_gicp.align(
            target, source, tree, guess, max_correspondence_distance=max_correspondence_m
        )
        guess = np.asarray(aligned.T_target_source)
    return guess


def _preprocess(points: NDArray[np.float32]) -> tuple[small_gicp.PointCloud, small_gicp.KdTree]:
    return small_gicp.preprocess_points(points.astype(np.float64), VOXEL_M, NEIGHBORS)
