"""Small motions of poses, and their covariances.

A small motion is six numbers, x y z roll pitch yaw (m, rad), applied on the right:
T_true = T @ exp(motion). It lives in the frame that T takes points from (in T_match_query: the
query's), as in gtsam, small_gicp and g2o.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from lpr_ros.core.geometry import invert


def motion_between(T: NDArray[np.float64], T_true: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the motion (..., 6) that takes T to T_true; exact in rotation, first order else."""
    step = invert(T) @ T_true
    turn = Rotation.from_matrix(step[..., :3, :3].reshape(-1, 3, 3)).as_rotvec()
    return np.concatenate([step[..., :3, 3], turn.reshape(*step.shape[:-2], 3)], axis=-1)


def adjoint(T_a_b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the (..., 6, 6) matrices that take motions of frame b to motions of frame a."""
    R = T_a_b[..., :3, :3]
    matrix = np.zeros((*T_a_b.shape[:-2], 6, 6))
    matrix[..., :3, :3] = matrix[..., 3:, 3:] = R
    matrix[..., :3, 3:] = _cross(T_a_b[..., :3, 3]) @ R
    return matrix


def propagate(
    matrix: NDArray[np.float64], covariance: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return A C A' for (..., 6, 6) arrays, exactly symmetric."""
    moved = matrix @ covariance @ np.swapaxes(matrix, -1, -2)
    symmetric: NDArray[np.float64] = 0.5 * (moved + np.swapaxes(moved, -1, -2))
    return symmetric


def covariance_in_parent(
    T_a_b: NDArray[np.float64], covariance: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Express the covariance of T_a_b along the axes of a, as ROS messages have it.

    There, position errors are along the axes of a and rotations about them, through b's origin.
    """
    turn = np.zeros((6, 6))
    turn[:3, :3] = turn[3:, 3:] = T_a_b[:3, :3]
    return propagate(turn, covariance)


def _cross(v: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (..., 3, 3) matrices M with M @ w = v x w."""
    matrix = np.zeros((*v.shape[:-1], 3, 3))
    matrix[..., 0, 1], matrix[..., 0, 2] = -v[..., 2], v[..., 1]
    matrix[..., 1, 0], matrix[..., 1, 2] = v[..., 2], -v[..., 0]
    matrix[..., 2, 0], matrix[..., 2, 1] = -v[..., 1], v[..., 0]
    return matrix
