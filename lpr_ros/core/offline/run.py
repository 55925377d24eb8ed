"""The pipeline over a whole recording, at full speed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
import logging
from pathlib import Path
import time

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.back_end import BackEndConfig
from lpr_ros.core.closer_process import CloserProcess
from lpr_ros.core.config import override
from lpr_ros.core.correction import correct
from lpr_ros.core.database import PlaceDatabase
from lpr_ros.core.drive_result import CheckpointNote, DriveResult, Outcome
from lpr_ros.core.errors import DatasetError, ScanError, VerificationError
from lpr_ros.core.loop_closer import Verdict
from lpr_ros.core.pipeline import Pipeline, PipelineConfig, Step
from lpr_ros.core.recogniser import Describes
from lpr_ros.core.records import LoopClosure
from lpr_ros.core.scan_source import ScanSource, SourceScan

logger = logging.getLogger(__name__)

HANGS_S = 3600.0  # of one verification: no robot waits for it, and a laptop may sleep
INTERVAL_WITHOUT_ODOMETRY_S = 1.0


@dataclass(eq=False)
class Gathered:
    """What a run has so far; `on_scan` is shown it after every scan."""

    scans: int = 0
    outcomes: list[Outcome] = field(default_factory=list)
    loops: list[LoopClosure] = field(default_factory=list)
    truth: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    drops: dict[str, list[str]] = field(default_factory=dict)

    def take(self, recorded: SourceScan, step: Step) -> None:
        """Keep what a keyframe brought."""
        outcome = Outcome.of(step)
        self.outcomes.append(outcome)
        self.loops.extend(step.verdict.trusted)
        if recorded.T_world_sensor is not None:
            self.truth[outcome.query_id] = recorded.T_world_sensor

    def drop(self, kind: str, error: Exception) -> None:
        """Count a scan that was left out."""
        self.drops.setdefault(kind, []).append(str(error))


def run_offline(
    source: ScanSource,
    describer: Describes,
    config: PipelineConfig | None = None,
    *,
    session: str = '',
    old_map: Path | None = None,
    checkpoint: CheckpointNote | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    on_scan: Callable[[Gathered], None] = lambda gathered: None,
) -> DriveResult:
    """Run the pipeline over a source; what is bad in it is counted and left out.

    With an old map the drive is also matched against the sessions in it. When `should_stop` says
    so, the result is that of the drive so far.
    """
    start = time.perf_counter()
    config = settings_for(source, config or PipelineConfig())
    database = None if old_map is None else _loaded(old_map, config, describer)
    first_id = 0 if database is None else len(database)
    # As in the node: what registration never gives back ends with its process.
    closer = CloserProcess(
        config.verification, config.pairwise, config.candidates, timeout_s=HANGS_S
    )
    gathered = Gathered()
    try:
        pipeline = Pipeline(
            config, describer, database=database, closer=closer, session=session or source.name
        )
        for recorded in _readable(source, gathered):
            if should_stop():
                break
            _add(pipeline, recorded, gathered, source.has_odometry)
            on_scan(gathered)
    finally:
        closer.stop()
    back_end = BackEndConfig(odometry=config.pairwise.odometry)
    return DriveResult(
        name=source.name,
        database=pipeline.database,
        loops=tuple(gathered.loops),
        correction=correct(pipeline.database, gathered.loops, back_end),
        config=config,
        first_id=first_id,
        outcomes=tuple(gathered.outcomes),
        T_world_sensor=gathered.truth,
        scans=gathered.scans,
        drops={kind: tuple(texts) for kind, texts in gathered.drops.items()},
        duration_s=source.duration_s,
        wall_s=time.perf_counter() - start,
        about=source.about | {'old map': str(old_map or '')},
        checkpoint=checkpoint or CheckpointNote(fingerprint=describer.fingerprint),
        interrupted=gathered.scans < len(source) and should_stop(),
    )


def _loaded(old_map: Path, config: PipelineConfig, describer: Describes) -> PlaceDatabase:
    return PlaceDatabase.load(
        old_map,
        config.database,
        fingerprint=describer.fingerprint,
        calibration=describer.calibration,
    )


def settings_for(source: ScanSource, config: PipelineConfig) -> PipelineConfig:
    """Without odometry nobody knows how far it went: keyframes then come by time."""
    if source.has_odometry or config.keyframes.interval_s > 0.0:
        return config
    logger.warning(
        '%s has no odometry: a keyframe every %g s, and no trajectory',
        source.name,
        INTERVAL_WITHOUT_ODOMETRY_S,
    )
    return override(config, {'keyframes.interval_s': INTERVAL_WITHOUT_ODOMETRY_S})


def _readable(source: ScanSource, gathered: Gathered) -> Iterator[SourceScan]:
    """Yield what can be read, and count all of it."""

    def unreadable(error: DatasetError) -> None:
        gathered.scans += 1
        gathered.drop('unreadable', error)

    for recorded in source.scans(unreadable):
        gathered.scans += 1
        yield recorded


def _add(pipeline: Pipeline, recorded: SourceScan, gathered: Gathered, expects: bool) -> None:
    """Hand one scan to the pipeline; `expects` odometry where the drive has some."""
    try:
        if expects and recorded.scan.T_odom_sensor is None:
            raise ScanError(
                'odometry', f'no odometry at {recorded.scan.stamp_ns} ns'
            )
        sighting = pipeline.recogniser.add(recorded.scan)
        # An index built beside would answer from some later scan on: another one in every run.
        pipeline.database.wait()
    except ScanError as error:
        gathered.drop(error.kind, ScanError(error.kind, f'scan {recorded.index}: {error}'))
        return
    if sighting is None:
        return
    try:
        verdict = pipeline.closer.close(sighting)
    except VerificationError as error:
        gathered.drop('verification', error)
        verdict = Verdict(sighting.keyframe.id)
    gathered.take(recorded, Step(sighting, verdict))
