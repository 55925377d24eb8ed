"""The numbers of a drive, as in summary.json; evaluation.py defines those of accuracy."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.geometry.se3 import invert
from lpr_ros.core.offline.evaluation import DriveEvaluation
from lpr_ros.core.offline.result import DriveResult
from lpr_ros.core.offline.statistics import mean_of, median_of, percentile_of
from lpr_ros.core.types import LoopClosure

STAGES = ('keyframe', 'describe', 'store', 'search', 'verify', 'agree')  # in order of execution

Poses = Mapping[int, NDArray[np.float64]]


def summarize(result: DriveResult, evaluation: DriveEvaluation | None) -> dict[str, Any]:
    """Return the contents of summary.json; accuracy only with ground truth."""
    timing = {stage: stage_ms(result, stage) for stage in stages_of(result)}
    summary: dict[str, Any] = {
        'drive': result.name,
        'scans': result.scans,
        'dropped': {kind: len(texts) for kind, texts in result.drops.items()},
        'keyframes': len(result.places),
        'keyframes_of_old_map': result.first_id,
        'travelled_m': result.traveled_m,
        'duration_s': result.duration_s,
        'wall_s': result.wall_s,
        'interrupted': result.interrupted,
        'candidates': sum(o.candidates for o in result.outcomes),
        'candidates_excluded_by_odometry': sum(len(o.excluded) for o in result.outcomes),
        'candidates_rejected_by_geometry': sum(len(o.rejected) for o in result.outcomes),
        'verified': sum(o.verified is not None for o in result.outcomes),
        'loops': len(result.loops),
        'loops_retracted': len(result.retracted),
        'loops_into_old_map': sum(x.match_id < result.first_id for x in result.loops),
        'loops_refused_by_optimiser': len(result.correction.rejected),
        'ms_per_keyframe': mean_of(keyframe_ms(result)[1:]),  # without JIT compilation
        'ms_by_stage': {
            stage: {'median': median_of(ms), 'p95': percentile_of(ms, 95.0)}
            for stage, ms in timing.items()
        },
        'loop_gap_odometry_m': median_of(loop_gaps_m(result, odometry_poses(result))),
        'loop_gap_corrected_m': median_of(loop_gaps_m(result, result.correction.poses)),
        'sessions': dict(result.sessions),
        'sources': dict(result.about),
        'checkpoint': {
            'path': result.checkpoint.path,
            'fingerprint': result.checkpoint.fingerprint,
            'licence': result.checkpoint.license,
        },
    }
    if evaluation is not None:
        summary |= {
            **evaluation.loop_metrics,
            'retracted_correct': int(evaluation.retracted.is_correct.sum()),
            'retracted_wrong': int((~evaluation.retracted.is_correct).sum()),
            'ate_odometry_m': evaluation.ate_odometry_m,
            'ate_corrected_m': evaluation.ate_corrected_m,
        }
    plain: dict[str, Any] = _without_nan(summary)
    return plain


def stages_of(result: DriveResult) -> list[str]:
    """Return the stages that ran, in order of execution."""
    timed = {stage for outcome in result.outcomes for stage in outcome.seconds}
    return [s for s in STAGES if s in timed] + sorted(timed - set(STAGES))


def stage_ms(result: DriveResult, stage: str) -> NDArray[np.float64]:
    """Return the milliseconds of a stage, for the keyframes that reached it."""
    return np.array([1e3 * o.seconds[stage] for o in result.outcomes if stage in o.seconds])


def keyframe_ms(result: DriveResult) -> NDArray[np.float64]:
    """Return the milliseconds of each keyframe, summed over all stages."""
    return np.array([1e3 * sum(o.seconds.values()) for o in result.outcomes])


def odometry_poses(result: DriveResult) -> dict[int, NDArray[np.float64]]:
    """Return T_odom_sensor by ID, including the existing map."""
    places = (result.database.place(i) for i in range(len(result.database)))
    return {p.id: p.T_odom_sensor for p in places if p.T_odom_sensor is not None}


def loop_gaps_m(result: DriveResult, poses: Poses) -> NDArray[np.float64]:
    """Return how far the poses violate each loop closure within a session."""
    gaps = [
        gap_m(loop, poses)
        for loop in result.loops
        if loop.query_id in poses and loop.match_id in poses and is_within_session(result, loop)
    ]
    return np.array(gaps)


def gap_m(loop: LoopClosure, poses: Poses) -> float:
    """Return the distance between the query position by poses and by the loop closure."""
    T_match_query = invert(poses[loop.match_id]) @ poses[loop.query_id]
    return float(np.linalg.norm(T_match_query[:3, 3] - loop.T_match_query[:3, 3]))


def is_within_session(result: DriveResult, loop: LoopClosure) -> bool:
    """Return whether both keyframes share an odometry frame."""
    ends = (result.database.place(i) for i in (loop.query_id, loop.match_id))
    return len({place.session for place in ends}) == 1


def _without_nan(value: Any) -> Any:
    """Replace NaN by None, because JSON has no NaN."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    return None if isinstance(value, float) and not np.isfinite(value) else value
