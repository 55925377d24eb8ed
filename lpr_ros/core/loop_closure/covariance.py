"""Covariance of a registration: what the two clouds show, and what they cannot show.

GICP pulls every source point toward its target point. At the registered pose the pulls cancel
out; how well they do tells how uncertain the pose is:

    covariance = A^-1 J A^-1 + d d' + S

A  curvature: how the sum of the pulls changes when the source moves and its points are matched
   again. The Hessian of GICP holds the matches fixed, which makes leaves, fences and the direction
   along a corridor look rigid.
J  scatter of the pulls. Points are not independent: a wall seen from elsewhere, a car that moved,
   and the curb between two beams shift all of their points together. So pulls are summed over
   cells of CELL_M first, and each sum is compared with what the rest of the scene says (the
   delete-one jackknife).
d  how far the last pass of GICP, which matches only the nearest points, moved the pose.
S  systematic errors, which move all points of a scan and so scatter nothing: scale and heading of
   the sensor, its mounting, distortion by motion, ground between two beams.

The first two need no scale fitted to errors. CELL_M is the size of things in the world; 8 m was
chosen among 1, 2, 4, 8, 16 and 32 m because errors agreed best with covariances on real and
simulated pairs. S is fitted to recorded poses of six real sets, whose own errors it contains
(docs/limitations.md).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.geometry.se3 import local_error, pose_from_rotation_vector, propagate
from lpr_ros.core.loop_closure.registration import PreparedCloud, Refinement

CELL_M = 8.0  # a house front, a row of parked cars, a tree crown
MAX_SIGMA_M = 10.0  # of a direction that nothing constrains, such as along a tunnel
CURVATURE_POINTS = 2500  # three times as many give the same figures
MAX_LEVERAGE = (
    0.9  # of one cell on the pose: beyond, there is no rest of the scene to compare with
)
SIGNIFICANCE = 3.0  # standard deviations

# Systematic standard deviations. In thick surfaces (bushes, distorted walls) they are larger.
SCALE_PER_THICKNESS = 0.04  # of the distance, per meter of thickness: 0.8 % outdoors
TILT_PER_THICKNESS = np.radians(0.03)  # per meter of distance and meter of thickness
HEADING_PER_THICKNESS = np.radians(0.5)  # per meter of thickness
# A cloud that downsampling hardly thins out has few points per surface. Fitted to lifted images,
# which have lost the slope of the road, and to 32 beams, whose recorded poses tilt themselves.
DENSE = 0.5  # sparsity of a scan of 64 beams, stored and registered with default voxels
SPARSE_M = 0.75  # per sparsity beyond DENSE
SPARSE_RAD = np.radians(1.0)  # per sparsity beyond DENSE
SLOPE_M = 3.3  # distance over which the sparse tilt grows as much again

Vectors = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Pulls:
    """Source points and how the target pulls them; all in the source frame."""

    points: Vectors  # (N, 3)
    pulls: Vectors  # (N, 6), force and torque about the sensor
    stiffness: Vectors  # (N, 3, 3), of each match


class _Surfaces:
    """The points and surface covariances of two clouds, as arrays."""

    def __init__(self, target: PreparedCloud, source: PreparedCloud, correspondence_m: float):
        self._tree = target.tree
        self._target, self._target_shapes = _points_and_shapes(target)
        self._source, self._source_shapes = _points_and_shapes(source)
        self._max_squared = correspondence_m**2

    def __len__(self) -> int:
        return len(self._source)

    def pulls(self, T_target_source: NDArray[np.float64], stride: int = 1) -> _Pulls:
        """Match every stride-th source point with the target; unmatched ones are not pulled."""
        R = T_target_source[:3, :3]
        points = self._source[::stride]
        moved = points @ R.T + T_target_source[:3, 3]
        nearest, squared = (np.asarray(x) for x in self._tree.batch_nearest_neighbor_search(moved))
        matched = np.flatnonzero(squared < self._max_squared)
        nearest = nearest[matched]
        residual = (self._target[nearest] - moved[matched]) @ R
        shapes = R.T @ self._target_shapes[nearest] @ R + self._source_shapes[::stride][matched]
        stiffness = np.zeros((len(points), 3, 3))
        stiffness[matched] = np.linalg.inv(shapes)
        force = np.zeros((len(points), 3))
        force[matched] = (stiffness[matched] @ residual[:, :, None])[:, :, 0]
        return _Pulls(points, np.concatenate([force, np.cross(points, force)], axis=1), stiffness)


def systematic_covariance(
    target: PreparedCloud, source: PreparedCloud, T_target_source: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the covariance (6, 6) of errors that move all points of a scan together."""
    distance_m = float(np.linalg.norm(T_target_source[:3, 3]))
    thickness_m = 0.5 * (target.thickness_m + source.thickness_m)
    sparse = max(0.0, 0.5 * (target.sparsity + source.sparsity) - DENSE)
    position = np.square(SCALE_PER_THICKNESS * thickness_m * distance_m)
    position += np.square(SPARSE_M * sparse)
    heading = np.square(HEADING_PER_THICKNESS * thickness_m) + np.square(SPARSE_RAD * sparse)
    tilt = np.square(TILT_PER_THICKNESS * thickness_m * distance_m)
    tilt += np.square(SPARSE_RAD * sparse) * (1.0 + np.square(distance_m / SLOPE_M))
    return np.diag([position, position, position, tilt, tilt, heading])


def estimate_covariance(
    target: PreparedCloud,
    source: PreparedCloud,
    refined: Refinement,
    correspondence_m: float,
    step_m: float,
) -> NDArray[np.float64]:
    """Return what the clouds show of the covariance (6, 6) of T_target_source.

    It is in the tangent space of the source frame. step_m, by which the source is moved to measure
    curvature, is about half the point spacing: less, and points keep their matches.
    """
    surfaces = _Surfaces(target, source, correspondence_m)
    at_rest = surfaces.pulls(refined.T_target_source)
    # Meters for rotations, too: how far they move a typical point.
    radius_m = float(np.sqrt(np.square(at_rest.points).sum(axis=1).mean()))
    unit = np.array([1.0, 1.0, 1.0, 1.0 / radius_m, 1.0 / radius_m, 1.0 / radius_m])
    sums, hessians = _sum_over_cells(at_rest, unit)
    errors = jackknife(sums, hessians)
    curvature, vectors = _curvature(surfaces, refined.T_target_source, step_m, unit)
    # Identical clouds have no scatter at all; the inverse must stay finite.
    scatter = errors.T @ errors + np.square(1e-6 * curvature.max()) * np.eye(6)
    spread = np.sqrt(np.einsum('ik,ij,jk->k', vectors, scatter, vectors))
    inverse = (vectors / np.maximum(curvature, spread / MAX_SIGMA_M)) @ vectors.T
    moved = local_error(refined.T_target_source, refined.T_previous) / unit
    return propagate(np.diag(unit), inverse @ scatter @ inverse + np.outer(moved, moved))


def _points_and_shapes(cloud: PreparedCloud) -> tuple[Vectors, Vectors]:
    """Return points (N, 3) and the covariance of the surface at each (N, 3, 3)."""
    points: Any = np.asarray(cloud.surfaces.points())[:, :3]
    shapes: Any = np.asarray(cloud.surfaces.covs())[:, :3, :3]
    return np.ascontiguousarray(points), np.ascontiguousarray(shapes)


def _sum_over_cells(at_rest: _Pulls, unit: Vectors) -> tuple[Vectors, Vectors]:
    """Return the pulls (C, 6) and Hessians (C, 6, 6) summed over the points of each cell."""
    cells = np.floor(at_rest.points / CELL_M).astype(np.int64)
    cells -= cells.min(axis=0)
    _, y, z = cells.max(axis=0) + 1
    keys = (cells[:, 0] * y + cells[:, 1]) * z + cells[:, 2]
    order = np.argsort(keys, kind='stable')
    starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
    # d(moved point) / d(pose): translation, and rotation about the sensor.
    jacobian = np.zeros((len(keys), 3, 6))
    jacobian[:, range(3), range(3)] = 1.0
    x, y, z = at_rest.points.T
    jacobian[:, 0, 4], jacobian[:, 0, 5] = z, -y
    jacobian[:, 1, 3], jacobian[:, 1, 5] = -z, x
    jacobian[:, 2, 3], jacobian[:, 2, 4] = y, -x
    jacobian *= unit
    hessians = jacobian.transpose(0, 2, 1) @ (at_rest.stiffness @ jacobian)
    return (
        np.add.reduceat((at_rest.pulls * unit)[order], starts),
        np.add.reduceat(hessians[order], starts),
    )


def jackknife(sums: Vectors, hessians: Vectors) -> Vectors:
    """Return the pull of each cell (C, 6) on a pose that is estimated without it.

    The cell took part in the estimate and so looks more consistent with it than it is.
    """
    total = hessians.sum(axis=0)
    leverage = hessians @ np.linalg.pinv(total)
    share = np.trace(leverage, axis1=1, axis2=2)
    scale = np.minimum(1.0, MAX_LEVERAGE / np.maximum(share, 1e-12))
    rest = np.eye(6) - scale[:, None, None] * leverage
    errors: Vectors = np.linalg.solve(rest, sums[:, :, None])[:, :, 0]
    return errors


def _curvature(
    surfaces: _Surfaces, T_target_source: NDArray[np.float64], step_m: float, unit: Vectors
) -> tuple[Vectors, Vectors]:
    """Return how the sum of the pulls changes along each principal direction, and those (6, 6).

    New matches change the pull of a point at random, too. What could be such a change only is no
    curvature.
    """
    stride = max(1, len(surfaces) // CURVATURE_POINTS)
    changes = []  # of the pull of each point, with the motion along each axis
    for axis in range(6):
        motion = np.zeros(6)
        motion[axis] = step_m * unit[axis]
        before, after = (
            surfaces.pulls(T_target_source @ pose_from_rotation_vector(m[:3], m[3:]), stride)
            for m in (-motion, motion)
        )
        changes.append(stride * (before.pulls - after.pulls) * unit / (2.0 * step_m))
    change = np.stack(changes, axis=1)
    total = change.sum(axis=0)
    values, vectors = np.linalg.eigh(0.5 * (total + total.T))
    along = np.einsum('ik,nij,jk->nk', vectors, change, vectors, optimize=True)
    noise = SIGNIFICANCE * np.sqrt(np.square(along).sum(axis=0))
    return values - np.square(noise) / np.maximum(values, noise), vectors
