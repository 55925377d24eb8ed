"""Evaluation of a drive against ground truth.

The definitions below are those of summary.json, the report, the demo and `benchmark.py loops`:

correct loop    its relative pose is within MAX_LOOP_ERROR_M of the true one
precision       fraction of the loops that are correct
revisit         a keyframe truly within REVISIT_RADIUS_M of an earlier one that the database was
                allowed to return for it, that is, outside of the exclusion window
recall          fraction of the revisits with a correct loop at most RECALL_WINDOW_M of true
                travel before or after: loops are thinned, and the first ones wait for evidence
recall_each     fraction of the revisits with a correct loop of their own
pose_error_*    errors of the relative poses of all loops, wrong ones included
nees_per_dim    normalized estimation error squared, per dimension, mean over the correct loops; 1
                if the covariances are right, larger if they are overconfident
retracted_*     correct and wrong loops among those that were published and taken back; all other
                metrics are of the loops that stand at the end
ate_*           absolute trajectory error: RMSE of the keyframe positions, each session aligned
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.database.place_database import PlaceDatabase
from lpr_ros.core.geometry.se3 import invert, local_error, rotation_angle_rad
from lpr_ros.core.geometry.trajectory import position_errors_m, root_mean_square
from lpr_ros.core.offline.precision_recall import Detections, sweep_detections
from lpr_ros.core.offline.result import DriveResult
from lpr_ros.core.offline.statistics import fraction_of, mean_of, median_of, percentile_of
from lpr_ros.core.types import LoopClosure

REVISIT_RADIUS_M = 5.0
MAX_LOOP_ERROR_M = 1.0
RECALL_WINDOW_M = 6.0

Poses = Mapping[int, NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class LoopErrors:
    """Loops between keyframes of known true pose, and their errors."""

    loops: tuple[LoopClosure, ...]
    meters: NDArray[np.float64]  # (L,)
    degrees: NDArray[np.float64]  # (L,)
    nees: NDArray[np.float64]  # (L,), per dimension

    @property
    def is_correct(self) -> NDArray[np.bool_]:
        """Whether each loop is correct, (L,)."""
        correct: NDArray[np.bool_] = self.meters <= MAX_LOOP_ERROR_M
        return correct

    @property
    def correct(self) -> list[LoopClosure]:
        """The correct loops."""
        return [loop for loop, ok in zip(self.loops, self.is_correct, strict=True) if ok]


@dataclass(frozen=True)
class Revisits:
    """The revisits of a drive, and which of them have loops."""

    ids: frozenset[int]  # keyframes
    matched: frozenset[int]  # of them, those with a correct loop of their own
    recalled: frozenset[int]  # of them, those with a correct loop within RECALL_WINDOW_M of travel

    @property
    def metrics(self) -> dict[str, Any]:
        """The number of revisits and both recalls."""
        return {
            'revisits': len(self.ids),
            'recall': fraction_of(len(self.recalled), len(self.ids)),
            'recall_each': fraction_of(len(self.matched), len(self.ids)),
        }


@dataclass(frozen=True, eq=False)
class DriveEvaluation:
    """Accuracy of a drive; NaN where it is undefined."""

    errors: LoopErrors
    revisits: Revisits
    detections: Detections | None  # of revisits, by the nearest descriptor alone
    ate_odometry_m: float
    ate_corrected_m: float
    retracted: LoopErrors  # of the loops that were taken back, which count nowhere else

    @property
    def loop_metrics(self) -> dict[str, Any]:
        """The metrics of the loops, by the names defined above."""
        errors = self.errors
        return {
            'precision': mean_of(errors.is_correct),
            **self.revisits.metrics,
            'pose_error_median_m': median_of(errors.meters),
            'pose_error_median_deg': median_of(errors.degrees),
            'pose_error_p99_m': percentile_of(errors.meters, 99.0),
            'nees_per_dim': mean_of(errors.nees[errors.is_correct]),
        }


def evaluate_drive(
    result: DriveResult, radius_m: float = REVISIT_RADIUS_M
) -> DriveEvaluation | None:
    """Evaluate a drive; None without ground truth."""
    truth = result.T_world_sensor
    if not truth:
        return None
    errors = loop_errors(result.loops, truth)
    pairs = revisit_pairs(result.database, truth, radius_m)
    odometry = {p.id: p.T_odom_sensor for p in result.places if p.T_odom_sensor is not None}
    return DriveEvaluation(
        errors,
        find_recalled(result.database, truth, pairs.keys(), {x.query_id for x in errors.correct}),
        _descriptor_detections(result, pairs.keys(), radius_m),
        absolute_error_m(result, odometry),
        absolute_error_m(result, result.correction.poses),
        loop_errors(result.retracted, truth),
    )


def loop_errors(loops: Sequence[LoopClosure], truth: Poses) -> LoopErrors:
    """Compare loops with the true relative poses, where both ends have one."""
    known = tuple(x for x in loops if x.query_id in truth and x.match_id in truth)
    meters, degrees, nees = (np.zeros(len(known)) for _ in range(3))
    for i, loop in enumerate(known):
        T_true = invert(truth[loop.match_id]) @ truth[loop.query_id]
        meters[i] = np.linalg.norm(loop.T_match_query[:3, 3] - T_true[:3, 3])
        degrees[i] = np.degrees(rotation_angle_rad(invert(T_true) @ loop.T_match_query))
        error = local_error(loop.T_match_query, T_true)
        nees[i] = error @ np.linalg.solve(loop.covariance, error) / 6.0
    return LoopErrors(known, meters, degrees, nees)


def revisit_pairs(
    database: PlaceDatabase, truth: Poses, radius_m: float = REVISIT_RADIUS_M
) -> dict[int, NDArray[np.int64]]:
    """Return the revisits, each with the earlier keyframes that it is a revisit of."""
    ids = np.array(sorted(truth), dtype=np.int64)
    positions = np.stack([truth[i][:3, 3] for i in ids])
    pairs = {}
    for row, query_id in enumerate(ids.tolist()):
        is_eligible = database.eligible(database.place(query_id))[ids[:row]]
        is_near = np.linalg.norm(positions[:row] - positions[row], axis=1) <= radius_m
        earlier = ids[:row][is_eligible & is_near]
        if len(earlier):
            pairs[query_id] = earlier
    return pairs


def find_recalled(
    database: PlaceDatabase, truth: Poses, revisits: Collection[int], correct: Collection[int]
) -> Revisits:
    """Return which revisits have a correct loop, given the queries of all correct loops."""
    traveled_m = true_traveled_m(database, truth)
    loops_m: dict[str, list[float]] = {}  # where the correct loops are, by session
    for query_id in correct:
        loops_m.setdefault(database.place(query_id).session, []).append(traveled_m[query_id])
    recalled = set()
    for query_id in revisits:
        in_session = np.array(loops_m.get(database.place(query_id).session, []))
        if (np.abs(in_session - traveled_m[query_id]) <= RECALL_WINDOW_M).any():
            recalled.add(query_id)
    ids = frozenset(revisits)
    return Revisits(ids, ids & frozenset(correct), frozenset(recalled))


def true_traveled_m(database: PlaceDatabase, truth: Poses) -> dict[int, float]:
    """Return the true distance traveled in its session at each keyframe of known true pose."""
    traveled_m: dict[int, float] = {}
    previous: dict[str, int] = {}  # by session
    for keyframe_id in sorted(truth):
        session = database.place(keyframe_id).session
        last = previous.get(session)
        step_m = 0.0
        if last is not None:
            step_m = float(np.linalg.norm((truth[keyframe_id] - truth[last])[:3, 3]))
        traveled_m[keyframe_id] = step_m + (0.0 if last is None else traveled_m[last])
        previous[session] = keyframe_id
    return traveled_m


def absolute_error_m(result: DriveResult, poses: Poses) -> float:
    """Return the absolute trajectory error, RMSE over keyframes, each session aligned."""
    truth = result.T_world_sensor
    sessions: dict[str, list[int]] = {}
    for place in result.places:
        if place.id in truth and place.id in poses:
            sessions.setdefault(place.session, []).append(place.id)
    errors = [
        position_errors_m(
            np.stack([poses[i][:3, 3] for i in ids]), np.stack([truth[i][:3, 3] for i in ids])
        )
        for ids in sessions.values()
    ]
    return root_mean_square(np.concatenate(errors)) if errors else float('nan')


def _descriptor_detections(
    result: DriveResult, revisits: Collection[int], radius_m: float
) -> Detections | None:
    """Count the revisits that the nearest descriptor alone detects, at every threshold."""
    truth = result.T_world_sensor
    queries = [
        o
        for o in result.outcomes
        if o.query_id in truth and o.matches and o.matches[0].keyframe_id in truth
    ]
    if not queries:
        return None
    distances_m = [
        np.linalg.norm(truth[o.query_id][:3, 3] - truth[o.matches[0].keyframe_id][:3, 3])
        for o in queries
    ]
    return sweep_detections(
        np.array([o.matches[0].distance for o in queries]),
        np.array(distances_m) <= radius_m,
        np.array([o.query_id in revisits for o in queries]),
    )
