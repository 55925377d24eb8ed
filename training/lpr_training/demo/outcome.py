"""Evaluate a played drive against ground truth: table, summary, report."""

from dataclasses import dataclass, replace
import json
from pathlib import Path
from typing import Any

from lpr_ros.core.config import override
from lpr_ros.core.database.place_database import PlaceDatabase
from lpr_ros.core.errors import LprError
from lpr_ros.core.files import atomic_file
from lpr_ros.core.loop_closure.overlap import measure_overlap
from lpr_ros.core.loop_closure.registration import prepare
from lpr_ros.core.markdown import markdown_table
from lpr_ros.core.model.checkpoint import load_checkpoint
from lpr_ros.core.model.descriptor_extractor import NetworkDescriptorExtractor
from lpr_ros.core.offline.evaluation import DriveEvaluation, evaluate_drive
from lpr_ros.core.offline.result import CheckpointNote, Correction, DriveResult
from lpr_ros.core.pipeline import PipelineConfig, load_database
from lpr_ros.core.resources import default_weights
from lpr_ros.core.types import LoopClosure
from lpr_ros.report.page import write_report
from lpr_training.demo.drives import DemoDrive
from lpr_training.demo.run import Played

SUMMARY = 'summary.json'


@dataclass(frozen=True, eq=False)
class Outcome:
    """A played drive and its evaluation."""

    played: Played
    result: DriveResult
    evaluation: DriveEvaluation

    def summary(self) -> dict[str, Any]:
        """Return the contents of summary.json."""
        right = len(self.evaluation.errors.correct)
        revisits, played = self.evaluation.revisits, self.played
        return {
            'drive': self.result.name,
            'scans': int(played.status.get('scans', 0)),
            'keyframes': len(self.result.places),
            'loops_right': right,
            'loops_wrong': len(self.evaluation.errors.loops) - right,
            'loops_missed': len(revisits.ids - revisits.recalled),
            'revisits': len(revisits.ids),
            'ate_odometry_m': self.evaluation.ate_odometry_m,
            'ate_corrected_m': self.evaluation.ate_corrected_m,
            'p95_ms': played.p95_ms('keyframe'),
            'loop_p95_ms': played.p95_ms('loop'),
            'cpu_share': played.cpu_s / played.duration_s,
            'optimised': played.optimized,
        }

    def table(self) -> str:
        """Return the results as a markdown table."""
        s = self.summary()
        rows = {
            'scans, keyframes': f'{s["scans"]}, {s["keyframes"]}',
            'loops correct / wrong': f'{s["loops_right"]} / {s["loops_wrong"]}',
            'revisits missed': f'{s["loops_missed"]} of {s["revisits"]} keyframes',
            'trajectory error before -> after': f'{s["ate_odometry_m"]:.2f} m -> '
            f'{s["ate_corrected_m"]:.2f} m',
            'scan to keyframe, p95': f'{s["p95_ms"]:.0f} ms',
            'scan to verified loop, p95': f'{s["loop_p95_ms"]:.0f} ms',
            'CPU of lpr_node': f'{100.0 * s["cpu_share"]:.0f} % of a core',
        }
        return markdown_table((s['drive'], ''), rows.items())


def evaluate_demo(drive: DemoDrive, played: Played) -> Outcome:
    """Evaluate what the nodes published against the ground truth."""
    config = override(PipelineConfig(), drive.parameters)
    weights = default_weights()
    checkpoint = load_checkpoint(weights)
    extractor = NetworkDescriptorExtractor.load(weights, device='cpu')
    database = load_database(played.map_path, config, extractor)
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
        checkpoint=CheckpointNote(str(weights), checkpoint.fingerprint, checkpoint.license),
    )
    evaluation = evaluate_drive(result)
    if evaluation is None:
        raise LprError(
            f'{drive.path}: the ground truth covers none of the {len(database)} keyframes'
        )
    return Outcome(played, result, evaluation)


def with_overlap(
    loop: LoopClosure, database: PlaceDatabase, config: PipelineConfig
) -> LoopClosure:
    """Measure the overlap, which the loop closure message does not contain."""
    settings = config.verification
    ends = (database[loop.match_id].points, database[loop.query_id].points)
    target, source = (prepare(points, settings.registration) for points in ends)
    if target is None or source is None:
        return loop
    measured = measure_overlap(target, source, loop.T_match_query, settings.inlier_distance_m)
    return replace(loop, overlap=measured.overlap_source)


def write_outcome(folder: Path, outcome: Outcome) -> None:
    """Write summary.json, report.html and report.png."""
    with atomic_file(folder / SUMMARY) as partial:
        partial.write_text(json.dumps(outcome.summary(), indent=1) + '\n')
    write_report(folder, outcome.result, outcome.evaluation)
