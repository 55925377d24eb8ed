"""How far a trajectory is from the truth, once laid on it as well as a rigid motion can."""

import numpy as np
from numpy.typing import NDArray


def align(
    positions: NDArray[np.float64], true_positions: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return T_true_estimate (4, 4): the rigid motion with the least squared distances (Kabsch).

    Both are (N, 3), N above 0. No scale is fitted: a wrong scale is an error of LiDAR odometry.
    """
    centre, true_centre = positions.mean(axis=0), true_positions.mean(axis=0)
    spread = (positions - centre).T @ (true_positions - true_centre)
    u, _, vt = np.linalg.svd(spread)
    mirrored = np.linalg.det(vt.T @ u.T) < 0.0
    R = vt.T @ np.diag([1.0, 1.0, -1.0 if mirrored else 1.0]) @ u.T
    T = np.eye(4)
    T[:3, :3] = R
    T[:3, 3] = true_centre - R @ centre
    return T


def position_errors_m(
    positions: NDArray[np.float64], true_positions: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the distance of each position from the truth after alignment, (N,)."""
    if len(positions) == 0:
        return np.zeros(0)
    T = align(positions, true_positions)
    moved = positions @ T[:3, :3].T + T[:3, 3]
    errors: NDArray[np.float64] = np.linalg.norm(moved - true_positions, axis=1)
    return errors


def root_mean_square(errors: NDArray[np.float64]) -> float:
    """Return the RMS; NaN of nothing."""
    return float(np.sqrt(np.mean(np.square(errors)))) if len(errors) else float('nan')
