"""Metrics of the loop closures of a drive against ground truth.

`lpr_ros.core.offline.evaluation` defines them; every drive is evaluated as the offline command
would. Only the trajectory errors (ATE) are extended: they are the RMSE over the odometry of the
drive and further draws of the same noise model (`RecordedDrive.trajectory_draws`) with the same
loops, because a single draw may be lucky.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.database.place_database import DatabaseConfig, PlaceDatabase
from lpr_ros.core.offline.evaluation import (
    absolute_error_m,
    evaluate_drive,
    find_recalled,
    revisit_pairs,
)
from lpr_ros.core.offline.result import DriveResult
from lpr_ros.core.pose_graph.optimizer import PoseGraphOptimizer
from lpr_ros.core.types import Keyframe, LoopClosure
from lpr_training.benchmarks.loops.recorded_drive import RecordedDrive

NO_DESCRIPTOR = np.zeros(1, np.float32)
NO_CLOUD = np.zeros((1, 3), np.float32)


def drive_result(drive: RecordedDrive, loops: Sequence[LoopClosure] = ()) -> DriveResult:
    """Return a drive and its loops as a result to evaluate; keyframe IDs are scan indices."""
    exclusion = drive.exclusion
    config = DatabaseConfig(exclude_s=exclusion.exclude_s, exclude_m=exclusion.exclude_m)
    database = PlaceDatabase(config, len(NO_DESCRIPTOR))
    for index, scan in enumerate(drive.scans):
        keyframe = database.make_keyframe(
            NO_DESCRIPTOR,
            NO_CLOUD,
            session=f'{drive.name} {drive.session_of(index)}',
            stamp_ns=scan.stamp_ns,
            T_odom_sensor=scan.T_odom_sensor,
        )
        database.add(keyframe)
    truth = dict(enumerate(drive.T_world_sensor))
    return DriveResult(drive.name, database, tuple(loops), T_world_sensor=truth)


def revisits(drive: RecordedDrive) -> NDArray[np.bool_]:
    """Return a mask of pairs (later, earlier): whether the later keyframe revisits the earlier."""
    mask = np.zeros((len(drive.scans), len(drive.scans)), dtype=bool)
    for later, earlier in find_revisits(drive, drive_result(drive)).items():
        mask[later, earlier] = True
    return mask


def find_revisits(drive: RecordedDrive, result: DriveResult) -> dict[int, NDArray[np.int64]]:
    """Return the revisits of a drive, each with the earlier keyframes that it is a revisit of."""
    return revisit_pairs(result.database, result.T_world_sensor, drive.revisit_radius_m)


def may_match(drive: RecordedDrive) -> NDArray[np.bool_]:
    """Return a mask of pairs (later, earlier): whether the database may return the earlier one."""
    database = drive_result(drive).database
    return np.stack([database.eligible(database.place(i)) for i in range(len(database))])


def recall_metrics(drive: RecordedDrive, found: NDArray[np.bool_]) -> dict[str, Any]:
    """Return revisits and recall; `found` (N,) marks keyframes with a correct loop."""
    result = drive_result(drive)
    pairs = find_revisits(drive, result)
    correct = np.flatnonzero(found).tolist()
    return find_recalled(result.database, result.T_world_sensor, pairs, correct).metrics


def loop_metrics(drive: RecordedDrive, loops: Sequence[LoopClosure]) -> dict[str, Any]:
    """Return precision, recall and errors of published loops; IDs are scan indices."""
    evaluation = evaluate_drive(drive_result(drive, loops), drive.revisit_radius_m)
    assert evaluation is not None  # every keyframe has a true pose
    return {
        'loops': len(loops),
        'wrong': int((~evaluation.errors.is_correct).sum()),
        **evaluation.loop_metrics,
    }


def trajectory_metrics(
    drive: RecordedDrive, keyframes: Sequence[Keyframe], loops: Sequence[LoopClosure]
) -> dict[str, float]:
    """Return the ATE of odometry and of the optimized pose graph, over all draws."""
    errors = [_trajectory_errors_m(drive, keyframes, loops)]
    for seed in range(1, drive.trajectory_draws):
        odometry = drive.draw_odometry(np.random.default_rng(seed))
        redrawn = [replace(k, T_odom_sensor=odometry[k.id]) for k in keyframes]
        errors.append(_trajectory_errors_m(drive, redrawn, loops))
    odometry_m, corrected_m = np.sqrt(np.square(errors).mean(axis=0))
    return {'ate_odometry_m': float(odometry_m), 'ate_corrected_m': float(corrected_m)}


def _trajectory_errors_m(
    drive: RecordedDrive, keyframes: Sequence[Keyframe], loops: Sequence[LoopClosure]
) -> tuple[float, float]:
    """Return the ATE of the odometry and of the optimized trajectory."""
    optimizer = PoseGraphOptimizer(noise=drive.odometry_noise)
    for keyframe in keyframes:
        optimizer.add_keyframe(keyframe)
    odometry = dict(optimizer.poses)
    for loop in loops:
        optimizer.add_loop(loop)
    optimizer.optimize_robust()
    result = drive_result(drive)
    return absolute_error_m(result, odometry), absolute_error_m(result, optimizer.poses)
