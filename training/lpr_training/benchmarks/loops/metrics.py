"""How good the loops of a drive are, against where its keyframes truly were.

A published loop is right when its relative pose is within 1 m of the truth; precision is the share
of right ones. A revisit is a keyframe that truly lies within 5 m of an older one outside
the window that is too recent to match. It is recalled when a right loop was published for it or
for a keyframe within 6 m of the way from it, before or after: loops are thinned on purpose, and
the first of a row waits for the others. Recall is the share of revisits recalled, `recall_each`
the share with a right loop of their own. Pose errors are of all published loops, wrong ones too;
nees_per_dim is of the right ones, the mean. The errors of the trajectory (ate) are root mean
squares over the keyframes after the best rigid alignment to the truth: of the odometry that the
pipeline had, and of others drawn with the same drift and given the same loops, as one draw may be
lucky.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.back_end import BackEnd
from lpr_ros.core.clock import NS_PER_S
from lpr_ros.core.drive_truth import RADIUS_M, loop_errors
from lpr_ros.core.records import Keyframe, LoopClosure
from lpr_ros.core.trajectory_error import position_errors_m, root_mean_square
from lpr_training.benchmarks.loop_drives import ODOMETRY, RecordedDrive
from lpr_training.simulator.odometry import drifting

WAY_M = 6.0
ODOMETRY_DRAWS = 5


def revisits(drive: RecordedDrive) -> NDArray[np.bool_]:
    """Say of every pair (later, older) whether the later truly is where the older was."""
    xyz = drive.T_world_sensor[:, :3, 3]
    near = np.linalg.norm(xyz[:, None] - xyz[None], axis=2) <= RADIUS_M
    return np.asarray(near & may_match(drive))


def may_match(drive: RecordedDrive) -> NDArray[np.bool_]:
    """Say of every pair (later, older) whether the older is old enough."""
    way_m = travelled_m(drive)
    stamps_ns = np.array([scan.stamp_ns for scan in drive.scans])
    older = stamps_ns[:, None] - stamps_ns[None] >= max(1, drive.recent.exclude_s * NS_PER_S)
    older &= way_m[:, None] - way_m[None] >= drive.recent.exclude_m
    return np.asarray(older)


def travelled_m(drive: RecordedDrive) -> NDArray[np.float64]:
    """Return the true way from the start to every scan."""
    steps = np.linalg.norm(np.diff(drive.T_world_sensor[:, :3, 3], axis=0), axis=1)
    return np.concatenate([[0.0], np.cumsum(steps)])


def recall_figures(drive: RecordedDrive, found: NDArray[np.bool_]) -> dict[str, Any]:
    """Return counts and recalls; `found` says which keyframes (N,) have a right loop."""
    is_revisit = revisits(drive).any(axis=1)
    way_m = travelled_m(drive)
    close = np.abs(way_m[:, None] - way_m[None]) <= WAY_M
    recalled = (close & found[None]).any(axis=1)
    return {
        'revisits': int(is_revisit.sum()),
        'recall': _mean(recalled[is_revisit]),
        'recall_each': _mean(found[is_revisit]),
    }


def loop_figures(drive: RecordedDrive, loops: Sequence[LoopClosure]) -> dict[str, Any]:
    """Return precision, recall and errors of published loops; ids are the numbers of the scans."""
    errors = loop_errors(loops, dict(enumerate(drive.T_world_sensor)))
    found = np.zeros(len(drive.scans), dtype=bool)
    found[[x.query_id for x, ok in zip(errors.loops, errors.is_right, strict=True) if ok]] = True
    return {
        'loops': len(loops),
        'wrong': int((~errors.is_right).sum()),
        'precision': _mean(errors.is_right),
        **recall_figures(drive, found),
        'pose_error_median_m': _quantile(errors.metres, 50),
        'pose_error_median_deg': _quantile(errors.degrees, 50),
        'pose_error_p99_m': _quantile(errors.metres, 99),
        'nees_per_dim': _mean(errors.nees[errors.is_right]),
    }


def trajectory_figures(
    drive: RecordedDrive, keyframes: Sequence[Keyframe], loops: Sequence[LoopClosure]
) -> dict[str, float]:
    """Return the errors of odometry and of the pose graph with the loops, over all draws."""
    errors = [_trajectory_errors_m(drive, keyframes, loops)]
    for seed in range(1, ODOMETRY_DRAWS):
        odometry = drifting(drive.T_world_sensor, ODOMETRY, np.random.default_rng(seed))
        again = [replace(k, T_odom_sensor=odometry[k.id]) for k in keyframes]
        errors.append(_trajectory_errors_m(drive, again, loops))
    odometry_m, corrected_m = np.sqrt(np.square(errors).mean(axis=0))
    return {'ate_odometry_m': float(odometry_m), 'ate_corrected_m': float(corrected_m)}


def _trajectory_errors_m(
    drive: RecordedDrive, keyframes: Sequence[Keyframe], loops: Sequence[LoopClosure]
) -> tuple[float, float]:
    """Return the error of the keyframes' odometry, and after the loops."""
    back_end = BackEnd()
    for keyframe in keyframes:
        back_end.add_keyframe(keyframe)
    odometry = np.stack([back_end.poses[k.id] for k in keyframes])
    for loop in loops:
        back_end.add_loop(loop)
    back_end.finish()
    corrected = np.stack([back_end.poses[k.id] for k in keyframes])
    truth = drive.T_world_sensor[:, :3, 3]
    return (
        root_mean_square(position_errors_m(odometry[:, :3, 3], truth)),
        root_mean_square(position_errors_m(corrected[:, :3, 3], truth)),
    )


def _mean(values: NDArray[Any]) -> float:
    return float(np.mean(values)) if len(values) else float('nan')


def _quantile(values: NDArray[np.float64], percent: float) -> float:
    return float(np.percentile(values, percent)) if len(values) else float('nan')
