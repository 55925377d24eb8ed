"""Global registration without an initial guess; the only file that imports kiss_matcher."""

import kiss_matcher
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

NORMAL_RADIUS_VOXELS = 3.0  # kiss-matcher's default radius for estimating normals
MIN_NEIGHBORS = 4  # within that radius, for a normal to be defined
MIN_FEATURES = 50  # kiss-matcher 1.0.2 aborts the process if almost no point has a normal


def register_globally(
    target: NDArray[np.float32], source: NDArray[np.float32], voxel_m: float
) -> NDArray[np.float64] | None:
    """Return T_target_source of two clouds downsampled to voxel_m, at any yaw; None on failure."""
    target, source = (_drop_isolated_points(cloud, voxel_m) for cloud in (target, source))
    if min(len(target), len(source)) < MIN_FEATURES:
        return None
    settings = kiss_matcher.KISSMatcherConfig(voxel_size=voxel_m, use_voxel_sampling=False)
    solution = kiss_matcher.KISSMatcher(settings).estimate(source, target)
    T_target_source = np.eye(4)
    T_target_source[:3, :3] = solution.rotation
    T_target_source[:3, 3] = np.ravel(solution.translation)
    return T_target_source if solution.valid and np.isfinite(T_target_source).all() else None


def _drop_isolated_points(points: NDArray[np.float32], voxel_m: float) -> NDArray[np.float32]:
    """Remove points with too few neighbors to estimate a normal."""
    if len(points) <= MIN_NEIGHBORS:
        return points[:0]
    radius_m = NORMAL_RADIUS_VOXELS * voxel_m
    distances, _ = cKDTree(points).query(
        points, k=[MIN_NEIGHBORS + 1], distance_upper_bound=radius_m
    )
    kept: NDArray[np.float32] = points[np.isfinite(distances[:, 0])]
    return kept
