"""Runs the pipeline over a recording, as fast as possible."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
import logging
from pathlib import Path
import time

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.config import override
from lpr_ros.core.database.place_database import PlaceDatabase
from lpr_ros.core.database.session_names import clean_session_name
from lpr_ros.core.errors import DatasetError, ScanError, VerificationError, error_with_type
from lpr_ros.core.geometry.odometry_noise import OdometryNoiseConfig
from lpr_ros.core.loop_closure.worker_process import VerificationProcess
from lpr_ros.core.odometry.lidar_odometry import LidarOdometry
from lpr_ros.core.offline.result import (
    CheckpointNote,
    Correction,
    DriveResult,
    Outcome,
    PublishedLoops,
)
from lpr_ros.core.pipeline import Pipeline, PipelineConfig, Step, load_database
from lpr_ros.core.pose_graph.optimizer import PoseGraphOptimizer, PoseGraphOptimizerConfig
from lpr_ros.core.recordings.base import Recording, RecordingScan
from lpr_ros.core.types import DescriptorExtractor, LoopClosure, VerificationResult

logger = logging.getLogger(__name__)
VERIFICATION_TIMEOUT_S = 3600.0  # nothing is waiting for it, and a laptop may be suspended
INTERVAL_WITHOUT_ODOMETRY_S = 1.0
LIDAR_ODOMETRY = 'LiDAR odometry'


def correct(
    database: PlaceDatabase,
    loops: Sequence[LoopClosure],
    config: PoseGraphOptimizerConfig | None = None,
    noise: OdometryNoiseConfig | None = None,
) -> Correction:
    """Optimize the pose graph of all keyframes with odometry and the loops between them.

    If that fails, return the reason: hours of driving must not be lost in their last second.
    """
    try:
        return _optimize(database, loops, config, noise)
    except Exception as error:  # the solver raises RuntimeError on singular systems
        return Correction(error=f'pose graph not optimized: {error_with_type(error)}')


def _optimize(
    database: PlaceDatabase,
    loops: Sequence[LoopClosure],
    config: PoseGraphOptimizerConfig | None,
    noise: OdometryNoiseConfig | None,
) -> Correction:
    by_query: dict[int, list[LoopClosure]] = {}
    for loop in loops:
        by_query.setdefault(loop.query_id, []).append(loop)
    optimizer = PoseGraphOptimizer(config, noise)
    for keyframe_id in range(len(database)):
        keyframe = database[keyframe_id]
        if keyframe.T_odom_sensor is None:
            continue
        optimizer.add_keyframe(keyframe)
        for loop in by_query.get(keyframe_id, ()):
            if loop.match_id in optimizer.graph.poses:
                optimizer.add_loop(loop)
    rejected = optimizer.optimize_robust()
    return Correction(
        optimizer.poses,
        tuple(optimizer.graph.edges),
        tuple((edge.to_id, edge.from_id) for edge in rejected),
    )


@dataclass(eq=False)
class Progress:
    """The intermediate results of a run, passed to `on_scan` after every scan."""

    scans: int = 0
    outcomes: list[Outcome] = field(default_factory=list)
    loops: PublishedLoops = field(default_factory=PublishedLoops)
    sessions: dict[str, str] = field(default_factory=dict)  # name -> why it started
    truth: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    drops: dict[str, list[str]] = field(default_factory=dict)

    def add(self, recorded: RecordingScan, step: Step) -> None:
        """Add the outcome of a keyframe."""
        outcome = Outcome.of(step)
        self.outcomes.append(outcome)
        self.loops.add(step.result)
        if reason := step.keyframe_query.session_reason:
            session = step.keyframe_query.keyframe.session
            self.sessions[session] = reason
            if len(self.sessions) > 1:
                logger.warning('session %r starts: %s', session, reason)
        if recorded.T_world_sensor is not None:
            self.truth[outcome.query_id] = recorded.T_world_sensor

    def drop(self, kind: str, error: Exception) -> None:
        """Record a dropped scan."""
        self.drops.setdefault(kind, []).append(str(error))


def run_offline(
    source: Recording,
    extractor: DescriptorExtractor,
    config: PipelineConfig | None = None,
    *,
    session: str = '',
    old_map: Path | None = None,
    checkpoint: CheckpointNote | None = None,
    use_lidar_odometry: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
    on_scan: Callable[[Progress], None] = lambda progress: None,
) -> DriveResult:
    """Run the pipeline over a recording; invalid scans are recorded and dropped.

    With an existing map, the drive is also matched against its sessions. With LiDAR odometry,
    poses come from the clouds, whatever the recording has. When `should_stop` returns True, the
    run ends with the result so far.
    """
    start = time.perf_counter()
    config = config or PipelineConfig()
    has_odometry = use_lidar_odometry or source.has_odometry
    if not has_odometry:
        config = by_time(config, source.name)
    database = None if old_map is None else load_database(old_map, config, extractor)
    first_id = 0 if database is None else len(database)
    # In a child process, as in the node, because the registration libraries leak memory.
    verifier = VerificationProcess(config.verification, timeout_s=VERIFICATION_TIMEOUT_S)
    progress = Progress()
    try:
        named = override(config, {'session.name': session or clean_session_name(source.name)})
        pipeline = Pipeline(named, extractor, database=database, verifier=verifier)
        scans = _readable_scans(source, progress)
        if use_lidar_odometry:
            scans = _with_lidar_odometry(scans, LidarOdometry(config.lidar_odometry), progress)
        for recorded in scans:
            if should_stop():
                break
            _add(pipeline, recorded, progress, has_odometry)
            on_scan(progress)
    finally:
        verifier.stop()
    loops, retracted = progress.loops.standing, progress.loops.retracted
    return DriveResult(
        name=source.name,
        database=pipeline.database,
        loops=loops,
        retracted=retracted,
        sessions=progress.sessions,
        correction=correct(pipeline.database, loops, noise=config.odometry_noise),
        config=config,
        first_id=first_id,
        outcomes=tuple(progress.outcomes),
        T_world_sensor=progress.truth,
        scans=progress.scans,
        drops={kind: tuple(texts) for kind, texts in progress.drops.items()},
        duration_s=source.duration_s,
        wall_s=time.perf_counter() - start,
        about=_sources(source, use_lidar_odometry, old_map),
        checkpoint=checkpoint or CheckpointNote(fingerprint=extractor.fingerprint),
        interrupted=progress.scans < len(source) and should_stop(),
    )


def by_time(config: PipelineConfig, name: str) -> PipelineConfig:
    """Return settings with keyframes by time, for a recording without odometry."""
    if config.keyframes.interval_s > 0.0:
        return config
    logger.warning(
        '%s has no odometry: using a keyframe every %g s, without a trajectory',
        name,
        INTERVAL_WITHOUT_ODOMETRY_S,
    )
    return override(config, {'keyframes.interval_s': INTERVAL_WITHOUT_ODOMETRY_S})


def _readable_scans(source: Recording, progress: Progress) -> Iterator[RecordingScan]:
    """Yield the scans that can be read, and count all of them."""

    def on_unreadable(error: DatasetError) -> None:
        progress.scans += 1
        progress.drop('unreadable', error)

    for recorded in source.scans(on_unreadable):
        progress.scans += 1
        yield recorded


def _with_lidar_odometry(
    scans: Iterator[RecordingScan], odometry: LidarOdometry, progress: Progress
) -> Iterator[RecordingScan]:
    """Yield the scans with poses from LiDAR odometry; those without a pose are dropped."""
    degenerate: list[str] = []
    for recorded in scans:
        scan = recorded.scan
        try:
            estimate = odometry.add(scan.stamp_ns, scan.points, recorded.time_s)
        except ScanError as error:
            progress.drop(error.kind, ScanError(error.kind, f'scan {recorded.index}: {error}'))
            continue
        if estimate.degenerate:
            degenerate.append(f'scan {recorded.index}: {estimate.degenerate}')
        located = replace(
            scan,
            T_odom_sensor=estimate.T_odom_sensor,
            odometry_segment=estimate.segment.number,
            segment_reason=estimate.segment.reason,
        )
        yield replace(recorded, scan=located)
    if degenerate:
        logger.warning('%d scans with uncertain poses, first: %s', len(degenerate), degenerate[0])


def _sources(source: Recording, use_lidar_odometry: bool, old_map: Path | None) -> dict[str, str]:
    """Return where the data of a drive comes from."""
    odometry = {'odometry': LIDAR_ODOMETRY} if use_lidar_odometry else {}
    return source.about | odometry | {'old map': str(old_map or '')}


def _add(
    pipeline: Pipeline, recorded: RecordingScan, progress: Progress, has_odometry: bool
) -> None:
    """Process one scan; if the drive has odometry, every scan must have it."""
    try:
        if has_odometry and recorded.scan.T_odom_sensor is None:
            raise ScanError('odometry', f'no odometry at {recorded.scan.stamp_ns} ns')
        keyframe_query = pipeline.recognize(recorded.scan)
        # Wait for the index built in the background, so that every run gives the same matches.
        pipeline.database.wait()
    except ScanError as error:
        progress.drop(error.kind, ScanError(error.kind, f'scan {recorded.index}: {error}'))
        return
    if keyframe_query is None:
        return
    try:
        result = pipeline.verify(keyframe_query)
    except VerificationError as error:
        progress.drop('verification', error)
        result = VerificationResult(keyframe_query.keyframe.id)
    progress.add(recorded, Step(keyframe_query, result))
