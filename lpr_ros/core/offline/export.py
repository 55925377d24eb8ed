"""Export of a drive: tables, map, pose graph and trajectories.

loops.csv also has the loop closures that were taken back (`retracted` is 1); all other files
contain only those that stand.

Conventions of loops.csv: x y z qx qy qz qw are T_match_query, the pose of the query keyframe in
the frame of the matched keyframe. The cov_* columns are the upper triangle of
`LoopClosure.covariance`: the covariance of a perturbation e = (x y z roll pitch yaw) in the query
frame, T_true = T_match_query Exp(e), in m and rad. This is the convention of gtsam and graph.g2o.
The loop closure topic has the same covariance along the axes of the match frame, as ROS requires:
R C R' with the rotation R of T_match_query (conversions/loops.py).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
import csv
from functools import partial
import json
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import GraphError
from lpr_ros.core.files import atomic_file
from lpr_ros.core.geometry.se3 import quaternion_from_pose
from lpr_ros.core.geometry.trajectory import Trajectory
from lpr_ros.core.io.pose_files import write_kitti_poses, write_tum
from lpr_ros.core.offline.evaluation import DriveEvaluation, LoopErrors
from lpr_ros.core.offline.result import Correction, DriveResult
from lpr_ros.core.offline.summary import odometry_poses, stages_of, summarize
from lpr_ros.core.pose_graph.g2o import write_g2o

LOOPS, KEYFRAMES, TIMINGS = 'loops.csv', 'keyframes.csv', 'timings.csv'
MAP, GRAPH, SUMMARY = 'map.lpr', 'graph.g2o', 'summary.json'
ODOMETRY, CORRECTED = 'trajectory_odometry.tum', 'trajectory_corrected.tum'
TRUTH = 'trajectory_truth.tum'
TUM, KITTI = '.tum', '.kitti'  # trajectories are written in both formats, row for row
RESERVE = '.reserve'  # holds disk space until the files are written
RESERVED_BYTES = 32 * 2**20  # for the report of any drive,
RESERVED_BYTES_PER_SCAN = 4096  # and for the tables, if every scan is a keyframe

POSE = ('x', 'y', 'z', 'qx', 'qy', 'qz', 'qw')
AXES = ('x', 'y', 'z', 'roll', 'pitch', 'yaw')
UPPER = tuple(zip(*np.triu_indices(6), strict=True))
COVARIANCE = tuple(f'cov_{AXES[i]}_{AXES[j]}' for i, j in UPPER)
LOOP_COLUMNS = (
    'query_id', 'match_id', *POSE, *COVARIANCE, 'overlap', 'inliers', 'distance', 'probability',
    'query_stamp_ns', 'match_stamp_ns', 'query_session', 'match_session', 'kept_by_optimiser',
    'error_m', 'error_deg', 'retracted',
)  # fmt: skip

Poses = Mapping[int, NDArray[np.float64]]
FileWriter = Callable[[Path], object]


def reserve_space(folder: Path, scans: int) -> None:
    """Allocate disk space for everything but the map; OSError if there is not enough."""
    needed = RESERVED_BYTES + scans * RESERVED_BYTES_PER_SCAN
    with (folder / RESERVE).open('wb') as stream:
        try:
            os.posix_fallocate(stream.fileno(), 0, needed)
        except OSError as error:
            text = f'{error.strerror}; expected {needed // 2**20} MiB of free disk space'
            raise OSError(error.errno, text, str(folder)) from error


def write_files(folder: Path, writers: Mapping[str, FileWriter]) -> dict[str, Exception]:
    """Write each file into the folder, releasing the reserved space; return errors by name.

    A file that cannot be written is left out, and the others are still written.
    """
    (folder / RESERVE).unlink(missing_ok=True)
    errors: dict[str, Exception] = {}
    for name, write in writers.items():
        try:
            write(folder / name)
        except Exception as error:  # any failure must not lose the other files
            (folder / name).unlink(missing_ok=True)
            errors[name] = error
    return errors


def drive_writers(
    result: DriveResult, evaluation: DriveEvaluation | None
) -> dict[str, FileWriter]:
    """Return the writers of tables, pose graph and trajectories; without odometry, tables only."""
    writers: dict[str, FileWriter] = {
        LOOPS: partial(write_loops, result=result, evaluation=evaluation),
        KEYFRAMES: partial(write_keyframes, result=result),
        TIMINGS: partial(write_timings, result=result),
        SUMMARY: partial(write_summary, result=result, evaluation=evaluation),
    }
    if result.has_odometry:
        writers |= {
            GRAPH: partial(write_graph, correction=result.correction),
            **_in_both_formats(CORRECTED, partial(write_corrected, result=result)),
            **_in_both_formats(
                ODOMETRY, partial(write_trajectory, result=result, poses=odometry_poses(result))
            ),
        }
        if result.T_world_sensor:
            write_truth = partial(write_trajectory, result=result, poses=result.T_world_sensor)
            writers |= _in_both_formats(TRUTH, write_truth)
    return writers


def kitti_name(tum_name: str) -> str:
    """Return the name of the KITTI file next to a TUM file."""
    return tum_name.removesuffix(TUM) + KITTI


def _in_both_formats(tum_name: str, write: FileWriter) -> dict[str, FileWriter]:
    return {tum_name: write, kitti_name(tum_name): write}


def map_writer(result: DriveResult) -> dict[str, FileWriter]:
    """Return the writer of the map, by far the largest file."""
    return {MAP: result.database.save}


def write_loops(path: Path, result: DriveResult, evaluation: DriveEvaluation | None) -> None:
    """Write one loop per row, retracted ones last; the module docstring has the conventions."""
    errors = {}
    if evaluation is not None:
        errors = _errors_by_key(evaluation.errors) | _errors_by_key(evaluation.retracted)
    rejected = set(result.correction.rejected)
    retracted = {loop.key for loop in result.retracted}
    rows = []
    for loop in (*result.loops, *result.retracted):
        ends = (loop.query_id, loop.match_id)
        query, match = (result.database.place(i) for i in ends)
        rows.append(
            [
                *ends,
                *pose_values(loop.T_match_query),
                *(loop.covariance[i, j] for i, j in UPPER),
                loop.overlap,
                loop.inliers,
                loop.match.distance,
                loop.match.probability,
                query.stamp_ns,
                match.stamp_ns,
                query.session,
                match.session,
                int(ends not in rejected and loop.key not in retracted),
                *errors.get(loop.key, ('', '')),
                int(loop.key in retracted),
            ]
        )
    _write_csv(path, LOOP_COLUMNS, rows)


def write_keyframes(path: Path, result: DriveResult) -> None:
    """Write the keyframes of the drive with odometry, corrected and true poses."""
    outcomes = {outcome.query_id: outcome for outcome in result.outcomes}
    loops = {loop.query_id: loop.match_id for loop in result.loops}
    frames = ('odom', 'corrected', 'true')
    columns = [
        'id', 'session', 'stamp_ns', 'traveled_m',
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
            place.traveled_m,
            *(v for T in poses for v in ([''] * len(POSE) if T is None else pose_values(T))),
            *(['', '', ''] if nearest is None
              else [nearest.keyframe_id, nearest.distance, nearest.probability]),
            outcome.candidates if outcome else '',
            loops.get(place.id, ''),
        ])  # fmt: skip
    _write_csv(path, columns, rows)


def write_timings(path: Path, result: DriveResult) -> None:
    """Write the milliseconds of each keyframe by stage; empty if the stage was not reached."""
    stages = stages_of(result)
    rows = [
        [o.query_id, *(1e3 * o.seconds[s] if s in o.seconds else '' for s in stages)]
        for o in result.outcomes
    ]
    _write_csv(path, ['keyframe_id', *(f'{stage}_ms' for stage in stages)], rows)


def write_summary(path: Path, result: DriveResult, evaluation: DriveEvaluation | None) -> None:
    """Write the numbers of the drive as JSON."""
    with atomic_file(path) as temporary:
        text = json.dumps(summarize(result, evaluation), indent=2)
        temporary.write_text(text + '\n', encoding='utf-8')


def write_graph(path: Path, correction: Correction) -> None:
    """Write the optimized pose graph; GraphError if there is none."""
    _check_optimized(correction)
    write_g2o(path, correction.poses, correction.edges)


def write_corrected(path: Path, result: DriveResult) -> None:
    """Write the corrected poses of the keyframes; GraphError if there are none."""
    _check_optimized(result.correction)
    write_trajectory(path, result, result.correction.poses)


def _check_optimized(correction: Correction) -> None:
    if correction.error:
        raise GraphError(correction.error)


def write_trajectory(path: Path, result: DriveResult, poses: Poses) -> None:
    """Write the LiDAR poses of the keyframes of this drive, in the format of the suffix."""
    places = [place for place in result.places if place.id in poses]
    stamps_ns, T = [p.stamp_ns for p in places], np.stack([poses[p.id] for p in places])
    trajectory = Trajectory.from_unordered(stamps_ns, T)
    if path.suffix == KITTI:
        write_kitti_poses(path, trajectory.T)
    else:
        write_tum(path, trajectory)


def pose_values(T: NDArray[np.float64]) -> list[float]:
    """Return x y z qx qy qz qw."""
    return [float(v) for v in (*T[:3, 3], *quaternion_from_pose(T))]


def _errors_by_key(errors: LoopErrors) -> dict[object, tuple[float, float]]:
    rows = zip(errors.loops, errors.meters.tolist(), errors.degrees.tolist(), strict=True)
    return {loop.key: (meters, degrees) for loop, meters, degrees in rows}


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table with numbers in full precision."""
    with (
        atomic_file(path) as temporary,
        temporary.open('w', newline='', encoding='utf-8') as stream,
    ):
        writer = csv.writer(stream, lineterminator='\n')
        writer.writerow(columns)
        for row in rows:
            writer.writerow([float(v) if isinstance(v, np.floating) else v for v in row])
