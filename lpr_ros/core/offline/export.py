"""A drive as files that other programs read: tables, map, pose graph, trajectories."""

from collections.abc import Iterable, Mapping, Sequence
import csv
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.drive_result import DriveResult
from lpr_ros.core.drive_summary import stages_of, summarise
from lpr_ros.core.drive_truth import Judgement, LoopErrors
from lpr_ros.core.errors import DatasetError
from lpr_ros.core.files import whole_file
from lpr_ros.core.g2o import write_g2o
from lpr_ros.core.geometry import Trajectory, pose_from_quaternion, quaternion_from_pose
from lpr_ros.core.poses import write_tum
from lpr_ros.core.records import LoopClosure, Match

LOOPS, KEYFRAMES, TIMINGS = 'loops.csv', 'keyframes.csv', 'timings.csv'
MAP, GRAPH, SUMMARY = 'map.lpr', 'graph.g2o', 'summary.json'
ODOMETRY, CORRECTED = 'trajectory_odometry.tum', 'trajectory_corrected.tum'

POSE = ('x', 'y', 'z', 'qx', 'qy', 'qz', 'qw')
AXES = ('x', 'y', 'z', 'roll', 'pitch', 'yaw')
UPPER = tuple(zip(*np.triu_indices(6), strict=True))
COVARIANCE = tuple(f'cov_{AXES[i]}_{AXES[j]}' for i, j in UPPER)
LOOP_COLUMNS = (
    'query_id', 'match_id', *POSE, *COVARIANCE, 'overlap', 'inliers', 'distance', 'probability',
    'query_stamp_ns', 'match_stamp_ns', 'query_session', 'match_session', 'kept_by_optimiser',
    'error_m', 'error_deg',
)  # fmt: skip

Poses = Mapping[int, NDArray[np.float64]]


def write_drive(folder: Path, result: DriveResult, judgement: Judgement | None) -> None:
    """Write everything but the report into a folder; without odometry there is no trajectory."""
    write_loops(folder / LOOPS, result, judgement)
    write_keyframes(folder / KEYFRAMES, result)
    write_timings(folder / TIMINGS, result)
    result.database.save(folder / MAP)
    with whole_file(folder / SUMMARY) as partial:
        text = json.dumps(summarise(result, judgement), indent=2)
        partial.write_text(text + '\n', encoding='utf-8')
    poses = result.correction.poses
    if result.has_odometry:
        write_g2o(folder / GRAPH, poses, result.correction.edges)
        _write_trajectory(folder / CORRECTED, result, poses)
        odometry = {p.id: p.T_odom_sensor for p in result.places if p.T_odom_sensor is not None}
        _write_trajectory(folder / ODOMETRY, result, odometry)


def write_loops(path: Path, result: DriveResult, judgement: Judgement | None) -> None:
    """Write the loops, one a row: T_match_query, its covariance, and what speaks for it."""
    errors = {} if judgement is None else _errors_by_ends(judgement.errors)
    refused = set(result.correction.refused)
    rows = []
    for loop in result.loops:
        ends = (loop.query_id, loop.match_id)
        query, match = (result.database.place(i) for i in ends)
        rows.append([
            *ends,
            *pose_numbers(loop.T_match_query),
            *(loop.covariance[i, j] for i, j in UPPER),
            loop.overlap,
            loop.inliers,
            loop.match.distance,
            loop.match.probability,
            query.stamp_ns,
            match.stamp_ns,
            query.session,
            match.session,
            int(ends not in refused),
            *errors.get(ends, ('', '')),
        ])
    _write_csv(path, LOOP_COLUMNS, rows)


def read_loops(path: Path) -> list[LoopClosure]:
    """Read the loops that `write_loops` wrote."""
    try:
        with path.open(newline='', encoding='utf-8') as stream:
            return [_loop(row) for row in csv.DictReader(stream)]
    except (OSError, UnicodeDecodeError, KeyError, TypeError, ValueError, csv.Error) as error:
        raise DatasetError(f'{path}: expected a loops.csv of this package: {error!r}') from error


def _loop(row: Mapping[str, str]) -> LoopClosure:
    values = [float(row[name]) for name in POSE]
    covariance = np.zeros((6, 6))
    for (i, j), name in zip(UPPER, COVARIANCE, strict=True):
        covariance[i, j] = covariance[j, i] = float(row[name])
    match_id = int(row['match_id'])
    return LoopClosure(
        int(row['query_id']),
        match_id,
        pose_from_quaternion(values[:3], values[3:]),
        covariance,
        float(row['overlap']),
        int(row['inliers']),
        Match(match_id, float(row['distance']), float(row['probability'])),
    )


def write_keyframes(path: Path, result: DriveResult) -> None:
    """Write the keyframes of the drive: where they are by odometry, corrected and in truth."""
    outcomes = {outcome.query_id: outcome for outcome in result.outcomes}
    loops = {loop.query_id: loop.match_id for loop in result.loops}
    frames = ('odom', 'corrected', 'true')
    columns = [
        'id', 'session', 'stamp_ns', 'travelled_m',
        *(f'{frame}_{name}' for frame in frames for name in POSE),
        'nearest_id', 'nearest_distance', 'nearest_probability', 'candidates', 'loop_match_id',
    ]  # fmt: skip
    rows = []
    for place in result.places:
        poses = (
            place.T_odom_sensor,
            result.correction.poses.get(place.id),
            result.T_world_sensor.get(place.id),
        )
        outcome = outcomes.get(place.id)
        nearest = outcome.matches[0] if outcome and outcome.matches else None
        rows.append([
            place.id,
            place.session,
            place.stamp_ns,
            place.travelled_m,
            *(v for T in poses for v in ([''] * len(POSE) if T is None else pose_numbers(T))),
            *(['', '', ''] if nearest is None
              else [nearest.keyframe_id, nearest.distance, nearest.probability]),
            outcome.candidates if outcome else '',
            loops.get(place.id, ''),
        ])  # fmt: skip
    _write_csv(path, columns, rows)


def write_timings(path: Path, result: DriveResult) -> None:
    """Write the milliseconds of each keyframe by stage; an empty cell is a stage not reached."""
    stages = stages_of(result)
    rows = [
        [o.query_id, *(1e3 * o.seconds[s] if s in o.seconds else '' for s in stages)]
        for o in result.outcomes
    ]
    _write_csv(path, ['keyframe_id', *(f'{stage}_ms' for stage in stages)], rows)


def pose_numbers(T: NDArray[np.float64]) -> list[float]:
    """Return x y z qx qy qz qw."""
    return [float(v) for v in (*T[:3, 3], *quaternion_from_pose(T))]


def _errors_by_ends(errors: LoopErrors) -> dict[tuple[int, int], tuple[float, float]]:
    rows = zip(errors.loops, errors.metres.tolist(), errors.degrees.tolist(), strict=True)
    return {(loop.query_id, loop.match_id): (metres, degrees) for loop, metres, degrees in rows}


def _write_trajectory(path: Path, result: DriveResult, poses: Poses) -> None:
    places = [place for place in result.places if place.id in poses]
    stamps_ns, T = [p.stamp_ns for p in places], np.stack([poses[p.id] for p in places])
    write_tum(path, Trajectory.from_unordered(stamps_ns, T))


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table, numbers to the last digit."""
    with whole_file(path) as partial, partial.open('w', newline='', encoding='utf-8') as stream:
        writer = csv.writer(stream, lineterminator='\n')
        writer.writerow(columns)
        for row in rows:
            writer.writerow([float(v) if isinstance(v, np.floating) else v for v in row])
