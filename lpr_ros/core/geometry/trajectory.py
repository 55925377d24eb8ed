"""Timed poses: interpolation, alignment and absolute trajectory error."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.transform import Rotation, Slerp


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Poses of one moving frame, sorted by stamp."""

    stamps_ns: NDArray[np.int64]  # (N,), strictly ascending
    T: NDArray[np.float64]  # (N, 4, 4)

    @classmethod
    def from_unordered(cls, stamps_ns: ArrayLike, T: ArrayLike) -> 'Trajectory':
        """Sort by stamp and keep the first of several poses with the same stamp."""
        stamps, first = np.unique(np.asarray(stamps_ns, dtype=np.int64), return_index=True)
        return cls(stamps, np.asarray(T, dtype=np.float64).reshape(-1, 4, 4)[first])

    def __len__(self) -> int:
        return len(self.stamps_ns)

    def at(self, stamp_ns: int, max_gap_ns: int | None = None) -> NDArray[np.float64] | None:
        """Interpolate the pose at a stamp: linear in position, slerp in rotation.

        Return None outside the trajectory (no extrapolation) and within gaps longer than
        max_gap_ns.
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
        """Interpolate at many stamps: poses (M, 4, 4) and a mask (M,) of where `at` has a pose."""
        first, last = self.stamps_ns[0], self.stamps_ns[-1]
        covered: NDArray[np.bool_] = (stamps_ns >= first) & (stamps_ns <= last)
        if max_gap_ns is not None:
            before = np.searchsorted(self.stamps_ns, stamps_ns, side='right') - 1
            after = np.searchsorted(self.stamps_ns, stamps_ns, side='left')
            ends = np.clip([before, after], 0, len(self) - 1)
            covered &= np.diff(self.stamps_ns[ends], axis=0)[0] <= max_gap_ns
        # Relative to the first stamp: float64 holds a hundred days of nanoseconds exactly.
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
    T_a_start: NDArray[np.float64], T_a_end: NDArray[np.float64], fraction: float
) -> NDArray[np.float64]:
    """Interpolate between two poses; fraction 0 is the start, 1 the end."""
    both = Rotation.from_matrix(np.stack([T_a_start[:3, :3], T_a_end[:3, :3]]))
    T = np.eye(4)
    T[:3, :3] = Slerp([0.0, 1.0], both)(fraction).as_matrix()
    T[:3, 3] = (1.0 - fraction) * T_a_start[:3, 3] + fraction * T_a_end[:3, 3]
    return T


def align(
    positions: NDArray[np.float64], true_positions: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return T_true_estimate (4, 4), the least-squares alignment of (N, 3) positions (Kabsch).

    No scale is fitted: LiDAR odometry observes scale, so a wrong scale is an error.
    """
    center, true_center = positions.mean(axis=0), true_positions.mean(axis=0)
    spread = (positions - center).T @ (true_positions - true_center)
    u, _, vt = np.linalg.svd(spread)
    is_reflection = np.linalg.det(vt.T @ u.T) < 0.0
    R = vt.T @ np.diag([1.0, 1.0, -1.0 if is_reflection else 1.0]) @ u.T
    T = np.eye(4)
    T[:3, :3] = R
    T[:3, 3] = true_center - R @ center
    return T


def position_errors_m(
    positions: NDArray[np.float64], true_positions: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the position errors (N,) after rigid alignment."""
    if len(positions) == 0:
        return np.zeros(0)
    T = align(positions, true_positions)
    moved = positions @ T[:3, :3].T + T[:3, 3]
    errors: NDArray[np.float64] = np.linalg.norm(moved - true_positions, axis=1)
    return errors


def root_mean_square(errors: NDArray[np.float64]) -> float:
    """Return the RMS, NaN without values."""
    return float(np.sqrt(np.mean(np.square(errors)))) if len(errors) else float('nan')
