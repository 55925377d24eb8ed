"""What came of the drive, against the truth: table, summary, report and picture."""

from dataclasses import dataclass, replace
import json
from pathlib import Path
from typing import Any

import numpy as np

from lpr_ros.core.agreement import measure_agreement
from lpr_ros.core.config import override
from lpr_ros.core.correction import Correction
from lpr_ros.core.database import PlaceDatabase
from lpr_ros.core.drive_result import CheckpointNote, DriveResult
from lpr_ros.core.drive_truth import Judgement, judge
from lpr_ros.core.errors import LprError
from lpr_ros.core.files import whole_file
from lpr_ros.core.model.checkpoint import load_checkpoint
from lpr_ros.core.pipeline import PipelineConfig
from lpr_ros.core.records import LoopClosure
from lpr_ros.core.registration import prepare
from lpr_ros.core.resources import default_weights
from lpr_ros.report.page import write_report
from lpr_training.demo.drives import DemoDrive
from lpr_training.demo.run import Played

FOUND_WITHIN_M = 6.0  # of the way: loops are thinned, and the first of a row waits for others
SUMMARY = 'summary.json'


@dataclass(frozen=True, eq=False)
class Outcome:
    """A played drive and what the truth says about it."""

    played: Played
    result: DriveResult
    judgement: Judgement

    def summary(self) -> dict[str, Any]:
        """Return the figures for summary.json."""
        right = int(self.judgement.errors.is_right.sum())
        played = self.played
        return {
            'drive': self.result.name,
            'scans': int(played.status.get('scans', 0)),
            'keyframes': len(self.result.places),
            'loops_right': right,
            'loops_wrong': len(self.judgement.errors.loops) - right,
            'loops_missed': len(self.missed()),
            'revisits': len(self.judgement.revisits),
            'ate_odometry_m': self.judgement.ate_odometry_m,
            'ate_corrected_m': self.judgement.ate_corrected_m,
            'p95_ms': played.p95_ms('keyframe'),
            'loop_p95_ms': played.p95_ms('loop'),
            'cpu_share': played.cpu_s / played.duration_s,
            'optimised': played.optimised,
        }

    def missed(self) -> set[int]:
        """Return the revisits with no right loop at them or a few metres of the way beside."""
        right = self.judgement.errors.is_right
        place = self.result.database.place
        found_m = np.array([
            place(loop.query_id).travelled_m
            for loop, ok in zip(self.judgement.errors.loops, right, strict=True) if ok
        ])  # fmt: skip
        return {
            query_id for query_id in self.judgement.revisits
            if not (np.abs(found_m - place(query_id).travelled_m) <= FOUND_WITHIN_M).any()
        }  # fmt: skip

    def table(self) -> str:
        """Return the figures as a short table."""
        s = self.summary()
        rows = {
            'scans, keyframes': f'{s["scans"]}, {s["keyframes"]}',
            'loops right / wrong': f'{s["loops_right"]} / {s["loops_wrong"]}',
            'revisits missed': f'{s["loops_missed"]} of {s["revisits"]} keyframes',
            'trajectory error before -> after': f'{s["ate_odometry_m"]:.2f} m -> '
            f'{s["ate_corrected_m"]:.2f} m',
            'scan to keyframe, 95 %': f'{s["p95_ms"]:.0f} ms',
            'scan to verified loop, 95 %': f'{s["loop_p95_ms"]:.0f} ms',
            'CPU of lpr_node': f'{100.0 * s["cpu_share"]:.0f} % of a core',
        }
        lines = [f'| {s["drive"]} | |', '|---|---|']
        return '\n'.join(lines + [f'| {name} | {value} |' for name, value in rows.items()])


def judge_played(drive: DemoDrive, played: Played) -> Outcome:
    """Put together what the nodes said with the truth."""
    config = override(PipelineConfig(), drive.parameters)
    weights = default_weights()
    checkpoint = load_checkpoint(weights)
    database = PlaceDatabase.load(
        played.map_path, config.database, fingerprint=checkpoint.fingerprint
    )
    truth = {}
    for keyframe_id in range(len(database)):
        T_world_sensor = drive.truth.at(database.place(keyframe_id).stamp_ns)
        if T_world_sensor is not None:
            truth[keyframe_id] = T_world_sensor
    result = DriveResult(
        name=drive.title,
        database=database,
        loops=tuple(with_overlap(loop, database, config) for loop in played.loops),
        correction=Correction(played.corrected),
        config=config,
        T_world_sensor=truth,
        scans=int(played.status.get('scans', 0)),
        duration_s=played.duration_s,
        wall_s=played.duration_s,
        about={'clouds': str(drive.path)},
        checkpoint=CheckpointNote(str(weights), checkpoint.fingerprint, checkpoint.licence),
    )
    judgement = judge(result)
    if judgement is None:
        raise LprError(f'{drive.path}: the truth knows none of the {len(database)} keyframes')
    return Outcome(played, result, judgement)


def with_overlap(
    loop: LoopClosure, database: PlaceDatabase, config: PipelineConfig
) -> LoopClosure:
    """Measure the overlap anew, which the message of a loop does not hold."""
    settings = config.verification
    ends = (database[loop.match_id].points, database[loop.query_id].points)
    target, source = (prepare(points, settings.registration) for points in ends)
    if target is None or source is None:
        return loop
    found = measure_agreement(target, source, loop.T_match_query, settings.near_m)
    return replace(loop, overlap=found.overlap_source)


def write_outcome(folder: Path, outcome: Outcome) -> None:
    """Write summary.json, report.html and report.png."""
    with whole_file(folder / SUMMARY) as partial:
        partial.write_text(json.dumps(outcome.summary(), indent=1) + '\n')
    write_report(folder, outcome.result, outcome.judgement)
