"""Rigid transforms as 4x4 matrices, and poses in time. T_a_b takes points of b to a."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.transform import Rotation, Slerp


def pose_from_quaternion(xyz: ArrayLike, xyzw: ArrayLike) -> NDArray[np.float64]:
    """Build (..., 4, 4) poses from positions (..., 3) and quaternions (..., 4), x y z w."""
    position = np.asarray(xyz, dtype=np.float64)
    quaternion = np.asarray(xyzw, dtype=np.float64)
    # Its length does not matter, and the square of a huge one would not be finite.
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
    """Take (N, 3) points from frame b to frame a, in single precision."""
    moved: NDArray[np.float32] = points_b @ T_a_b[:3, :3].T.astype(np.float32)
    moved += T_a_b[:3, 3].astype(np.float32)
    return moved


def rotation_angle_rad(T: NDArray[np.float64]) -> float:
    """Return by how much the rotation of T turns, in [0, pi]."""
    return float(Rotation.from_matrix(T[:3, :3]).magnitude())


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Poses of one moving frame in time, in ascending order of stamps."""

    stamps_ns: NDArray[np.int64]  # (N,), strictly ascending
    T: NDArray[np.float64]  # (N, 4, 4)

    @classmethod
    def from_unordered(cls, stamps_ns: ArrayLike, T: ArrayLike) -> 'Trajectory':
        """Sort by stamp; of several poses with one stamp the first is kept."""
        stamps, first = np.unique(np.asarray(stamps_ns, dtype=np.int64), return_index=True)
        return cls(stamps, np.asarray(T, dtype=np.float64).reshape(-1, 4, 4)[first])

    def __len__(self) -> int:
        return len(self.stamps_ns)

    def at(self, stamp_ns: int, max_gap_ns: int | None = None) -> NDArray[np.float64] | None:
        """Interpolate the pose at a time: linear in position, along the arc in rotation.

        None before the first and after the last pose (nothing is extrapolated), and between two
        poses further apart than max_gap_ns.
        """
        after = int(np.searchsorted(self.stamps_ns, stamp_ns))
        if after < len(self) and self.stamps_ns[after] == stamp_ns:
            exact: NDArray[np.float64] = self.T[after].copy()
            return exact
        if after == 0 or after == len(self):
            return None
        start, end = int(self.stamps_ns[after - 1]), int(self.stamps_ns[after])
        if max_gap_ns is not None and end - start > max_gap_ns:
            return None
        return interpolate(self.T[after - 1], self.T[after], (stamp_ns - start) / (end - start))


    def sample(
        self, stamps_ns: NDArray[np.int64], max_gap_ns: int | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Do the same at many times at once: (M, 4, 4), and (M,) whether `at` has a pose."""
        first, last = self.stamps_ns[0], self.stamps_ns[-1]
        covered: NDArray[np.bool_] = (stamps_ns >= first) & (stamps_ns <= last)
        if max_gap_ns is not None:
            before = np.searchsorted(self.stamps_ns, stamps_ns, side='right') - 1
            after = np.searchsorted(self.stamps_ns, stamps_ns, side='left')
            ends = np.clip([before, after], 0, len(self) - 1)
            covered &= np.diff(self.stamps_ns[ends], axis=0)[0] <= max_gap_ns
        # Relative nanoseconds are exact in a float for a hundred days.
        known = (self.stamps_ns - first).astype(np.float64)
        wanted = (np.clip(stamps_ns, first, last) - first).astype(np.float64)
        T = np.tile(np.eye(4), (len(stamps_ns), 1, 1))
        if len(self) == 1:
            T[:] = self.T[0]
            return T, covered
        T[:, :3, :3] = Slerp(known, Rotation.from_matrix(self.T[:, :3, :3]))(wanted).as_matrix()
        for axis in range(3):
            T[:, axis, 3] = np.interp(wanted, known, self.T[:, axis, 3])
        return T, covered


def interpolate(
    T_a_start: NDArray[np.float64], T_a_end: NDArray[np.float64], share: float
) -> NDArray[np.float64]:
    """Return the pose at `share` of the way (0: start, 1: end)."""
    both = Rotation.from_matrix(np.stack([T_a_start[:3, :3], T_a_end[:3, :3]]))
    T = np.eye(4)
    T[:3, :3] = Slerp([0.0, 1.0], both)(share).as_matrix()
    T[:3, 3] = (1.0 - share) * T_a_start[:3, 3] + share * T_a_end[:3, 3]
    return T
