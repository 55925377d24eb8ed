"""Registration of two clouds: globally without a guess (kiss-matcher), then finely (small_gicp).

Target and source are those of small_gicp: T_target_source takes points of the source to the
target. In a loop closure the match is the target and the query the source.
"""

from dataclasses import dataclass
from typing import Any

import kiss_matcher
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
import small_gicp

from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import CloudError
from lpr_ros.core.keyframes import thin

FARTHEST_M = 1e4  # no LiDAR sees farther; beyond, voxel numbers would overflow inside small_gicp
NEIGHBOURS = 20  # from which the surface at a point is estimated: 10 lie on one ring of 16 beams
THICKNESS_SAMPLES = 500
NORMAL_RADIUS_VOXELS = 3.0  # kiss-matcher's default: surfaces are estimated within this,
FEWEST_NEIGHBOURS = 4  # from at least so many other points;
FEWEST_FEATURES = 50  # where hardly any point has them, kiss-matcher 1.0.2 ends the process
SIX_FROM_THREE_THREE = (3, 4, 5, 0, 1, 2)  # small_gicp puts rotation first, we put position first


@dataclass(frozen=True)
class RegistrationConfig(Config):
    """How clouds are thinned and registered; measured by benchmarks/registration.py."""

    voxel_m: float = option(0.5, 'one point is kept per voxel', unit='m', low=0.05, high=5.0)
    fewest_points: int = option(100, 'fewer, after thinning, are not registered', low=10)
    upright_cell_m: float = option(1.0, 'side of a column', unit='m', low=0.1, high=10.0)
    upright_height_m: float = option(
        0.5, 'columns lower than this are ground, which says nothing about the place; 0 keeps all',
        unit='m', low=0.0, high=10.0,
    )  # fmt: skip
    search_voxel_m: float = option(
        1.0, 'one point is kept per voxel in the search without a guess', unit='m', low=0.05,
        high=5.0,
    )  # fmt: skip
    search_points: int = option(
        3000, 'and of these the nearest: more take longer, and overlap less', low=100
    )
    reach_m: float = option(2.0, 'farthest correspondence at first', unit='m', low=0.1, high=20.0)
    last_reach_m: float = option(1.0, 'and at last', unit='m', low=0.1, high=20.0)
    iterations: int = option(30, 'most steps of the refinement', low=1, high=1000)
    threads: int = option(1, 'threads of the refinement', low=1, high=64)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A cloud ready to be registered; made once, used with many others."""

    points: NDArray[np.float32]  # (N, 3), thinned
    upright: NDArray[np.float32]  # (M, 3), of them what stands above the ground
    sketch: NDArray[np.float32]  # (K, 3), few, for the search without a guess
    surfaces: Any  # small_gicp.PointCloud: points and the covariance of the surface at each
    tree: Any  # small_gicp.KdTree
    thickness_m: float  # of the surfaces: walls are thin, crowns of trees are thick


@dataclass(frozen=True, eq=False)
class GlobalResult:
    """What the search without a guess found."""

    T_target_source: NDArray[np.float64]  # (4, 4)
    inliers: int  # correspondences that agree with it


@dataclass(frozen=True, eq=False)
class Refinement:
    """What the refinement found."""

    T_target_source: NDArray[np.float64]  # (4, 4)
    information: NDArray[np.float64]  # (6, 6), x y z roll pitch yaw of a small motion on the right
    inliers: int
    converged: bool


def finite_points(points: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Return the points with finite coordinates that a LiDAR can see; refuse another shape."""
    array = np.asarray(points)
    if array.ndim != 2 or array.shape[1] != 3:
        raise CloudError(f'expected points of shape (N, 3), got {array.shape}')
    with np.errstate(invalid='ignore', over='ignore'):
        array = array.astype(np.float32, copy=False)
        kept: NDArray[np.float32] = array[(np.abs(array) < FARTHEST_M).all(axis=1)]
    return kept


def upright_points(
    points: NDArray[np.float32], cell_m: float, height_m: float
) -> NDArray[np.float32]:
    """Keep the points of columns that are tall: walls, trunks, cars; not ground, not roofs."""
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


def prepare(points: NDArray[np.floating[Any]], config: RegistrationConfig) -> Prepared | None:
    """Clean and thin a cloud and estimate its surfaces; None if too few points remain."""
    thinned = thin(finite_points(points), config.voxel_m)
    if len(thinned) < config.fewest_points:
        return None
    upright = upright_points(thinned, config.upright_cell_m, config.upright_height_m)
    # Thinned already: a second, finer grid keeps every point as it is.
    surfaces, tree = small_gicp.preprocess_points(
        thinned.astype(np.float64), config.voxel_m, NEIGHBOURS, config.threads
    )
    sketch = nearest(thin(thinned, config.search_voxel_m), config.search_points)
    return Prepared(thinned, upright, sketch, surfaces, tree, mean_thickness_m(surfaces, tree))


def mean_thickness_m(surfaces: Any, tree: Any) -> float:
    """Return how far points lie beside the plane through their neighbours, a mean of some."""
    points = np.asarray(surfaces.points())[:, :3]  # in the order that the tree counts them
    some = points[np.linspace(0, len(points) - 1, THICKNESS_SAMPLES).astype(np.int64)]
    count = min(NEIGHBOURS, len(points))
    indices, _ = tree.batch_knn_search(some, count)
    near = points[np.asarray(indices)]
    near -= near.mean(axis=1, keepdims=True)
    covariances = near.transpose(0, 2, 1) @ near / count
    thinnest = np.linalg.eigvalsh(covariances)[:, 0]
    return float(np.sqrt(np.maximum(thinnest, 0.0)).mean())


def nearest(points: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """Keep the points nearest to the sensor, in the order of the input."""
    if len(points) <= count:
        return points
    chosen = np.argpartition(np.square(points).sum(axis=1), count)[:count]
    kept: NDArray[np.float32] = points[np.sort(chosen)]
    return kept


def register_globally(
    target: NDArray[np.float32], source: NDArray[np.float32], voxel_m: float
) -> GlobalResult | None:
    """Register clouds thinned to voxel_m without a guess, whatever the yaw; None if it fails."""
    target, source = (_with_neighbours(cloud, voxel_m) for cloud in (target, source))
    if min(len(target), len(source)) < FEWEST_FEATURES:
        return None
    settings = kiss_matcher.KISSMatcherConfig(voxel_size=voxel_m, use_voxel_sampling=False)
    matcher = kiss_matcher.KISSMatcher(settings)
    solution = matcher.estimate(source, target)
    T_target_source = np.eye(4)
    T_target_source[:3, :3] = solution.rotation
    T_target_source[:3, 3] = np.ravel(solution.translation)
    inliers = int(matcher.get_num_final_inliers())
    if not solution.valid or not np.isfinite(T_target_source).all():
        return None
    return GlobalResult(T_target_source, inliers)


def _with_neighbours(points: NDArray[np.float32], voxel_m: float) -> NDArray[np.float32]:
    """Leave out lone points, at which no surface can be estimated."""
    if len(points) <= FEWEST_NEIGHBOURS:
        return points[:0]
    radius_m = NORMAL_RADIUS_VOXELS * voxel_m
    distances, _ = cKDTree(points).query(
        points, k=[FEWEST_NEIGHBOURS + 1], distance_upper_bound=radius_m
    )
    kept: NDArray[np.float32] = points[np.isfinite(distances[:, 0])]
    return kept


def refine(
    target: Prepared, source: Prepared, T_guess: NDArray[np.float64], config: RegistrationConfig
) -> Refinement | None:
    """Refine a guess with GICP, first with a long reach, then with a short one."""
    T_target_source = T_guess
    for reach_m in (config.reach_m, config.last_reach_m):
        result = small_gicp.align(
            target.surfaces,
            source.surfaces,
            target.tree,
            T_target_source,
            max_correspondence_distance=reach_m,
            num_threads=config.threads,
            max_iterations=config.iterations,
        )
        T_target_source = np.asarray(result.T_target_source)
        if result.num_inliers == 0 or not np.isfinite(T_target_source).all():
            return None
    return Refinement(
        T_target_source,
        np.asarray(result.H)[np.ix_(SIX_FROM_THREE_THREE, SIX_FROM_THREE_THREE)],
        int(result.num_inliers),
        bool(result.converged),
    )
