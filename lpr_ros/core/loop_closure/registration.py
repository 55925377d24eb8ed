"""Preparation of clouds and local registration; the only file that imports small_gicp.

Target and source follow small_gicp: T_target_source maps source points into the target frame. In
a loop closure the match is the target and the query is the source.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
import small_gicp

from lpr_ros.core.config import Config, option
from lpr_ros.core.geometry.points import points_in_range, voxel_downsample

PASSES = 3  # of GICP, from coarse to fine matches
THICKNESS_SAMPLES = 500
NEIGHBORS = 20  # per surface estimate; with 10, all lie on one ring of a 16-beam sensor


@dataclass(frozen=True)
class RegistrationConfig(Config):
    """Downsampling and registration of clouds; defaults tuned with `benchmark.py registration`."""

    voxel_m: float = option(
        0.5, 'Voxel size of the clouds to register', unit='m', low=0.05, high=5.0
    )
    min_points: int = option(
        100, 'Minimum number of points after downsampling to attempt registration', low=10
    )
    upright_cell_m: float = option(
        1.0,
        'Cell size of the grid that separates upright structure from ground',
        unit='m',
        low=0.1,
        high=10.0,
    )
    upright_height_m: float = option(
        0.5,
        'Minimum height difference within a grid cell to count as upright structure; '
        '0 disables ground removal',
        unit='m',
        low=0.0,
        high=10.0,
    )
    search_voxel_m: float = option(
        1.0, 'Voxel size of the clouds in global registration', unit='m', low=0.05, high=5.0
    )
    search_points: int = option(
        3000,
        'Maximum number of points in global registration; the ones closest to the sensor are kept',
        low=100,
    )
    max_correspondence_m: float = option(
        2.0,
        'Maximum correspondence distance in the first pass of GICP',
        unit='m',
        low=0.1,
        high=20.0,
    )
    final_max_correspondence_m: float = option(
        0.5,
        'Maximum correspondence distance in the final pass of GICP',
        unit='m',
        low=0.1,
        high=20.0,
    )
    iterations: int = option(30, 'Maximum number of GICP iterations per pass', low=1, high=1000)
    threads: int = option(1, 'Number of GICP threads', low=1, high=64)


@dataclass(frozen=True, eq=False)
class PreparedCloud:
    """A downsampled cloud with its surfaces, ready for registration."""

    points: NDArray[np.float32]  # (N, 3), downsampled
    upright: NDArray[np.float32]  # (M, 3), the points above the ground
    sketch: NDArray[np.float32]  # (K, 3), the few points used in global registration
    surfaces: Any  # small_gicp.PointCloud: points with the covariance of the surface at each
    tree: Any  # small_gicp.KdTree
    thickness_m: float  # median thickness of the surfaces: walls are thin, bushes are thick
    sparsity: float  # points that downsampling left, as a fraction of those it was given


@dataclass(frozen=True, eq=False)
class Refinement:
    """The result of local registration."""

    T_target_source: NDArray[np.float64]  # (4, 4)
    T_previous: NDArray[np.float64]  # (4, 4), before the last pass of GICP
    inliers: int


def prepare(points: NDArray[np.floating[Any]], config: RegistrationConfig) -> PreparedCloud | None:
    """Clean and downsample a cloud and estimate its surfaces; None if too few points remain."""
    in_range = points_in_range(points)
    downsampled = voxel_downsample(in_range, config.voxel_m)
    if len(downsampled) < config.min_points:
        return None
    upright = upright_points(downsampled, config.upright_cell_m, config.upright_height_m)
    # Every voxel holds one point already, so small_gicp's own downsampling keeps all of them.
    surfaces, tree = small_gicp.preprocess_points(
        downsampled.astype(np.float64), config.voxel_m, NEIGHBORS, config.threads
    )
    coarse = voxel_downsample(downsampled, config.search_voxel_m)
    sketch = closest_points(coarse, config.search_points)
    thickness_m = median_thickness_m(surfaces, tree)
    sparsity = len(downsampled) / len(in_range)
    return PreparedCloud(downsampled, upright, sketch, surfaces, tree, thickness_m, sparsity)


def median_thickness_m(surfaces: Any, tree: Any) -> float:
    """Return the median standard deviation of points across the plane through their neighbors."""
    points = np.asarray(surfaces.points())[:, :3]  # in the order of the tree's indices
    sampled = points[np.linspace(0, len(points) - 1, THICKNESS_SAMPLES).astype(np.int64)]
    count = min(NEIGHBORS, len(points))
    indices, _ = tree.batch_knn_search(sampled, count)
    neighbors = points[np.asarray(indices)]
    neighbors -= neighbors.mean(axis=1, keepdims=True)
    smallest = np.linalg.eigvalsh(neighbors.transpose(0, 2, 1) @ neighbors / count)[:, 0]
    return float(np.median(np.sqrt(np.maximum(smallest, 0.0))))


def upright_points(
    points: NDArray[np.float32], cell_m: float, height_m: float
) -> NDArray[np.float32]:
    """Keep the points of grid cells with vertical extent: walls, trunks, cars; not the ground."""
    if height_m <= 0.0 or len(points) == 0:
        return points
    cells = np.floor(points[:, :2] / cell_m).astype(np.int64)
    cells -= cells.min(axis=0)
    columns = cells[:, 0] * (cells[:, 1].max() + 1) + cells[:, 1]
    order = np.argsort(columns, kind='stable')
    starts = np.flatnonzero(np.diff(columns[order], prepend=-1))
    z = points[order, 2]
    heights = np.maximum.reduceat(z, starts) - np.minimum.reduceat(z, starts)
    sizes = np.diff(starts, append=len(points))
    kept: NDArray[np.float32] = points[order[np.repeat(heights >= height_m, sizes)]]
    return kept


def closest_points(points: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """Keep the points closest to the sensor, in input order."""
    if len(points) <= count:
        return points
    chosen = np.argpartition(np.square(points).sum(axis=1), count)[:count]
    kept: NDArray[np.float32] = points[np.sort(chosen)]
    return kept


def refine(
    target: PreparedCloud,
    source: PreparedCloud,
    T_guess: NDArray[np.float64],
    config: RegistrationConfig,
) -> Refinement | None:
    """Refine an initial guess with GICP, coarse to fine; None if no correspondence remains."""
    T_target_source = T_previous = T_guess
    for max_correspondence_m in np.geomspace(
        config.max_correspondence_m, config.final_max_correspondence_m, PASSES
    ):
        T_previous = T_target_source
        result = small_gicp.align(
            target.surfaces,
            source.surfaces,
            target.tree,
            T_target_source,
            max_correspondence_distance=max_correspondence_m,
            num_threads=config.threads,
            max_iterations=config.iterations,
        )
        T_target_source = np.asarray(result.T_target_source)
        if result.num_inliers == 0 or not np.isfinite(T_target_source).all():
            return None
    return Refinement(T_target_source, T_previous, int(result.num_inliers))
