"""A drive judged by its ground truth: which loops are right, which revisits were found.

A revisit is a keyframe that the database could have matched to one within `radius_m` of it. A
loop is right when its relative pose is within WRONG_LOOP_M of the true one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.detections import Detections, sweep_detections
from lpr_ros.core.drive_result import DriveResult
from lpr_ros.core.geometry import invert, rotation_angle_rad
from lpr_ros.core.records import LoopClosure
from lpr_ros.core.tangent import motion_between
from lpr_ros.core.trajectory_error import position_errors_m, root_mean_square

RADIUS_M = 5.0
WRONG_LOOP_M = 1.0

Poses = Mapping[int, NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class LoopErrors:
    """Loops between keyframes of known pose, and how far off they are."""

    loops: tuple[LoopClosure, ...]
    metres: NDArray[np.float64]  # (L,)
    degrees: NDArray[np.float64]  # (L,)
    nees: NDArray[np.float64]  # (L,), squared error in sigmas, per dimension

    @property
    def is_right(self) -> NDArray[np.bool_]:
        """Whether each is near enough to the true relative pose."""
        right: NDArray[np.bool_] = self.metres <= WRONG_LOOP_M
        return right


@dataclass(frozen=True, eq=False)
class Judgement:
    """What the truth says about a drive; NaN where it says nothing."""

    errors: LoopErrors
    revisits: frozenset[int]  # keyframes
    found: frozenset[int]  # of them, those with a right loop
    detections: Detections | None  # of revisits by the nearest descriptor alone
    ate_odometry_m: float
    ate_corrected_m: float

    @property
    def precision(self) -> float:
        """Share of the loops that are right."""
        return _share(int(self.errors.is_right.sum()), len(self.errors.loops))

    @property
    def recall(self) -> float:
        """Share of the revisits that have a right loop."""
        return _share(len(self.found), len(self.revisits))


def judge(result: DriveResult, radius_m: float = RADIUS_M) -> Judgement | None:
    """Judge a drive; None where no true pose is known."""
    truth = result.T_world_sensor
    if not truth:
        return None
    errors = loop_errors(result.loops, truth)
    right = [loop for loop, ok in zip(errors.loops, errors.is_right, strict=True) if ok]
    revisits = find_revisits(result, radius_m)
    return Judgement(
        errors,
        revisits,
        revisits & {loop.query_id for loop in right},
        _detections(result, revisits, radius_m),
        absolute_error_m(result, {p.id: p.T_odom_sensor for p in result.places
                                  if p.T_odom_sensor is not None}),
        absolute_error_m(result, result.correction.poses),
    )  # fmt: skip


def loop_errors(loops: Sequence[LoopClosure], truth: Poses) -> LoopErrors:
    """Compare loops with the true relative poses, where both ends have one."""
    known = tuple(p for p in loops if p.query_id in truth and p.match_id in truth)
    metres, degrees, nees = (np.zeros(len(known)) for _ in range(3))
    for i, loop in enumerate(known):
        T_true = invert(truth[loop.match_id]) @ truth[loop.query_id]
        metres[i] = np.linalg.norm(loop.T_match_query[:3, 3] - T_true[:3, 3])
        degrees[i] = np.degrees(rotation_angle_rad(invert(T_true) @ loop.T_match_query))
        motion = motion_between(loop.T_match_query, T_true)
        nees[i] = motion @ np.linalg.solve(loop.covariance, motion) / 6.0
    return LoopErrors(known, metres, degrees, nees)


def find_revisits(result: DriveResult, radius_m: float) -> frozenset[int]:
    """Return the keyframes that had an earlier one within the radius to be matched with."""
    truth = result.T_world_sensor
    ids = np.array(sorted(truth), dtype=np.int64)
    positions = np.stack([truth[i][:3, 3] for i in ids])
    found = []
    for row, query_id in enumerate(ids.tolist()):
        eligible = result.database.eligible(result.database.place(query_id))[ids]
        near = np.linalg.norm(positions - positions[row], axis=1) <= radius_m
        if (eligible & near)[:row].any():
            found.append(query_id)
    return frozenset(found)


def absolute_error_m(result: DriveResult, poses: Poses) -> float:
    """Return the absolute trajectory error, RMS over keyframes, each session aligned by itself."""
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


def _detections(
    result: DriveResult, revisits: frozenset[int], radius_m: float
) -> Detections | None:
    """Count what the nearest descriptor alone would find, at every threshold of distance."""
    truth = result.T_world_sensor
    asked = [
        o for o in result.outcomes
        if o.query_id in truth and o.matches and o.matches[0].keyframe_id in truth
    ]  # fmt: skip
    if not asked:
        return None
    gaps = [
        np.linalg.norm(truth[o.query_id][:3, 3] - truth[o.matches[0].keyframe_id][:3, 3])
        for o in asked
    ]
    return sweep_detections(
        np.array([o.matches[0].distance for o in asked]),
        np.array(gaps) <= radius_m,
        np.array([o.query_id in revisits for o in asked]),
    )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float('nan')
