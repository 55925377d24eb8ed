"""Rigid transforms as 4x4 matrices. T_a_b maps points from frame b to frame a."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.transform import Rotation

from lpr_ros.core.errors import DatabaseError

MAX_SKEW = 1e-3  # tolerates rotations printed with few digits
# Farther than any coordinate system on Earth reaches; the solver of the pose graph fails on more.
MAX_POSITION_M = 1e9

# Reorders (x y z roll pitch yaw) to (roll pitch yaw x y z) and back: gtsam and small_gicp put the
# rotation first.
SWAP_POSITION_ROTATION = (3, 4, 5, 0, 1, 2)


def pose_from_quaternion(xyz: ArrayLike, xyzw: ArrayLike) -> NDArray[np.float64]:
    """Build (..., 4, 4) poses from positions (..., 3) and quaternions (..., 4), x y z w."""
    position = np.asarray(xyz, dtype=np.float64)
    quaternion = np.asarray(xyzw, dtype=np.float64)
    # Prescaled: the squared norm of a huge quaternion would overflow.
    largest = np.abs(quaternion).max(axis=-1, keepdims=True, initial=0.0)
    quaternion = quaternion / np.where(largest > 0.0, largest, 1.0)
    T = np.zeros((*position.shape[:-1], 4, 4))
    T[..., :3, :3] = (
        Rotation.from_quat(quaternion.reshape(-1, 4))
        .as_matrix()
        .reshape(*position.shape[:-1], 3, 3)
    )
    T[..., :3, 3] = position
    T[..., 3, 3] = 1.0
    return T


def pose_from_euler(xyz: ArrayLike, roll_pitch_yaw_rad: ArrayLike) -> NDArray[np.float64]:
    """Build (..., 4, 4) poses; the rotation is Rz(yaw) Ry(pitch) Rx(roll)."""
    angles = np.asarray(roll_pitch_yaw_rad, dtype=np.float64)
    flat = Rotation.from_euler('xyz', angles.reshape(-1, 3)).as_quat()
    return pose_from_quaternion(xyz, flat.reshape(*angles.shape[:-1], 4))


def pose_from_rotation_vector(xyz: ArrayLike, rotation_rad: ArrayLike) -> NDArray[np.float64]:
    """Build a (4, 4) pose; the rotation is about the direction of the vector, by its length."""
    T = np.eye(4)
    T[:3, :3] = Rotation.from_rotvec(np.asarray(rotation_rad, dtype=np.float64)).as_matrix()
    T[:3, 3] = xyz
    return T


def quaternion_from_pose(T: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rotations of (..., 4, 4) poses as quaternions (..., 4), x y z w, with w >= 0."""
    flat = Rotation.from_matrix(T[..., :3, :3].reshape(-1, 3, 3)).as_quat()
    flat = np.where(flat[:, 3:] < 0.0, -flat, flat)
    quaternions: NDArray[np.float64] = flat.reshape(*T.shape[:-2], 4)
    return quaternions


def invert(T: NDArray[np.float64]) -> NDArray[np.float64]:
    """Invert rigid (..., 4, 4) transforms: T_b_a from T_a_b."""
    R_transposed = np.swapaxes(T[..., :3, :3], -1, -2)
    inverse = np.zeros_like(T)
    inverse[..., :3, :3] = R_transposed
    inverse[..., :3, 3] = -(R_transposed @ T[..., :3, 3:4])[..., 0]
    inverse[..., 3, 3] = 1.0
    return inverse


def transform_points(
    T_a_b: NDArray[np.float64], points_b: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Transform (N, 3) points from frame b to frame a in single precision."""
    moved: NDArray[np.float32] = points_b @ T_a_b[:3, :3].T.astype(np.float32)
    moved += T_a_b[:3, 3].astype(np.float32)
    return moved


def rotation_angle_rad(T: NDArray[np.float64]) -> float:
    """Return the rotation angle of T in [0, pi]."""
    return float(Rotation.from_matrix(T[:3, :3]).magnitude())


def checked_pose(T_odom_sensor: ArrayLike) -> NDArray[np.float64]:
    """Return a pose as (4, 4) float64; DatabaseError if it is not a rigid transform."""
    T = np.array(T_odom_sensor, dtype=np.float64)
    if T.shape != (4, 4) or not np.isfinite(T).all():
        raise DatabaseError(f'pose {T.tolist()}: expected a 4 x 4 matrix of finite numbers')
    if not is_pose(T):
        raise DatabaseError(
            f'pose {T.tolist()}: expected a rotation matrix and a position within '
            f'{MAX_POSITION_M:g} m'
        )
    return T


def is_pose(T: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which of (..., 4, 4) matrices have a right-handed rotation and a sane position."""
    R, position = T[..., :3, :3], T[..., :3, 3]
    with np.errstate(over='ignore', invalid='ignore'):  # NaN and huge values compare as False
        skew = np.abs(R @ np.swapaxes(R, -1, -2) - np.eye(3)).max(axis=(-2, -1))
        is_valid: NDArray[np.bool_] = (skew <= MAX_SKEW) & (np.linalg.det(R) > 0.0)
        is_valid &= (np.abs(position) <= MAX_POSITION_M).all(axis=-1)
    return is_valid


def local_error(T: NDArray[np.float64], T_true: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the tangent error (..., 6), position then rotation vector, of T in its own frame.

    Exact in rotation, first order in position.
    """
    step = invert(T) @ T_true
    turn = Rotation.from_matrix(step[..., :3, :3].reshape(-1, 3, 3)).as_rotvec()
    return np.concatenate([step[..., :3, 3], turn.reshape(*step.shape[:-2], 3)], axis=-1)


def adjoint(T_a_b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the (..., 6, 6) adjoints that map tangent vectors of frame b to frame a."""
    R = T_a_b[..., :3, :3]
    matrix = np.zeros((*T_a_b.shape[:-2], 6, 6))
    matrix[..., :3, :3] = matrix[..., 3:, 3:] = R
    matrix[..., :3, 3:] = _cross(T_a_b[..., :3, 3]) @ R
    return matrix


def propagate(matrix: NDArray[np.float64], covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return A C A' for (..., 6, 6) arrays, exactly symmetric."""
    moved = matrix @ covariance @ np.swapaxes(matrix, -1, -2)
    symmetric: NDArray[np.float64] = 0.5 * (moved + np.swapaxes(moved, -1, -2))
    return symmetric


def covariance_in_parent(
    T_a_b: NDArray[np.float64], covariance: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Rotate the covariance of T_a_b from the axes of b to those of a, as in ROS messages.

    Rotation errors are about the axes of a, through the origin of b.
    """
    turn = np.zeros((6, 6))
    turn[:3, :3] = turn[3:, 3:] = T_a_b[:3, :3]
    return propagate(turn, covariance)


def _cross(v: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the (..., 3, 3) cross-product matrices: M @ w = v x w."""
    matrix = np.zeros((*v.shape[:-1], 3, 3))
    matrix[..., 0, 1], matrix[..., 0, 2] = -v[..., 2], v[..., 1]
    matrix[..., 1, 0], matrix[..., 1, 2] = v[..., 2], -v[..., 0]
    matrix[..., 2, 0], matrix[..., 2, 1] = -v[..., 1], v[..., 0]
    return matrix


def yaw_matrix(angle_rad: float) -> NDArray[np.float32]:
    """Return the (3, 3) rotation about z."""
    c, s = math.cos(angle_rad), math.sin(angle_rad)
    return np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]], dtype=np.float32)
