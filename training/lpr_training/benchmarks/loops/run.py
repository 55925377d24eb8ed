"""Whole drives through the pipeline: precision, recall, pose errors, covariances, ATE, time.

metrics.py defines the metrics. The peers get the same scans in the same run.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
import json
from pathlib import Path
import sys
from typing import Any

import numpy as np
from tqdm import tqdm

from lpr_ros.core.markdown import markdown_table
from lpr_ros.core.model.descriptor_extractor import NetworkDescriptorExtractor
from lpr_ros.core.pipeline import Pipeline, PipelineConfig, Step
from lpr_ros.core.resources import WEIGHTS_HELP, weights_path
from lpr_ros.core.retrieval.keyframing import KeyframeConfig
from lpr_ros.core.types import DescriptorExtractor, LoopClosure
from lpr_training.benchmarks.loops.drives import (
    GROUPS,
    ODOMETRY_DRAWS,
    available,
    draws_of,
    drive_names,
    load_drive,
)
from lpr_training.benchmarks.loops.metrics import loop_metrics, trajectory_metrics
from lpr_training.benchmarks.loops.peers import available_peers, peer_metrics
from lpr_training.benchmarks.loops.recorded_drive import RecordedDrive
from lpr_training.benchmarks.loops.retrieval import compare_retrieval
from lpr_training.benchmarks.loops.stages import STAGE_COLUMNS, published_loops, stage_metrics
from lpr_training.benchmarks.options import add_data_option, add_option

EVERY_SCAN = KeyframeConfig(distance_m=0.0, interval_s=1e-6)  # scans have keyframe spacing
TARGETS = {
    'precision': '1.00, aliased >= 0.99',
    'recall': '>= 0.85',
    'pose_error_median_m': '< 0.15',
    'pose_error_median_deg': '< 0.5',
    'pose_error_p99_m': '< 1',
    'nees_per_dim': '0.5 - 2',
    'ate_odometry_m': '',
    'ate_corrected_m': '<= odometry / 5',
    'ms_per_keyframe': '',
}

TABLE_COLUMNS = {
    'precision': 'precision',
    'recall': 'recall',
    'pose_error_median_m': 'median m',
    'pose_error_median_deg': 'median deg',
    'pose_error_p99_m': 'p99 m',
    'nees_per_dim': 'NEES',
    'ate_odometry_m': 'odometry ATE m',
    'ate_corrected_m': 'corrected ATE m',
    'ms_per_keyframe': 'ms per keyframe',
}
# Columns and their formats.
PEER_COLUMNS = {'loops': 'd', 'precision': '.3f', 'recall': '.3f', 'ms_per_keyframe': '.0f'}
RETRIEVAL_COLUMNS = {'recall_at_1': '.3f', 'f1_max': '.3f', 'recall_at_full_precision': '.3f'}


@dataclass(frozen=True, eq=False)
class DriveRun:
    """Results of the pipeline on a drive."""

    steps: list[Step]

    @property
    def loops(self) -> list[LoopClosure]:
        """Return the loop closures that are published at the end of the drive."""
        return published_loops(self.steps)

    @property
    def ms(self) -> list[float]:
        """Return the processing time of every keyframe, all stages."""
        return [1e3 * sum(step.seconds.values()) for step in self.steps]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = (
        'All drives take about an hour on an idle core, a third of it each for the simulated, the '
        'adversarial and the real ones; --draws 1 --peers for a quick look at the real ones.'
    )
    parser.add_argument(
        '--weights', metavar='FILE|NAME', help=f'{WEIGHTS_HELP}; default kitti_bev'
    )
    parser.add_argument(
        '--drives',
        nargs='+',
        metavar='NAME',
        help="Drives such as 'city hdl64' (all of the groups)",
    )
    parser.add_argument(
        '--group', nargs='+', choices=tuple(GROUPS), help='Groups of drives to run (all)'
    )
    parser.add_argument(
        '--cache', type=Path, metavar='DIR', help='Folder that keeps simulated scans between runs'
    )
    parser.add_argument(
        '--peers', nargs='*', metavar='NAME', help='scan_context, map_closures (installed ones)'
    )
    add_option(parser, '--draws', ODOMETRY_DRAWS, 'Draws of the odometry of each KITTI drive')
    add_data_option(parser, 'scans_balm.npz, kitti_bev_00.npz and kitti_bev_05.npz')


def run(
    weights: str | Path | None,
    data: Path,
    *,
    drives: Sequence[str] | None = None,
    config: PipelineConfig | None = None,
    peers: Sequence[str] | None = None,
    draws: int = ODOMETRY_DRAWS,
    group: Sequence[str] | None = None,
    cache: Path | None = None,
) -> dict[str, Any]:
    """Run the pipeline and the peers on every drive."""
    names = available(drives or drive_names(group or tuple(GROUPS)), data)
    weights = weights_path(weights)
    extractor = NetworkDescriptorExtractor.load(weights)
    config = config or PipelineConfig()
    rows: list[dict[str, Any]] = []
    peer_rows: list[dict[str, Any]] = []
    retrieval_rows: list[dict[str, Any]] = []
    draw_numbers = {name: range(1, min(draws, draws_of(name)) + 1) for name in names}
    bar = tqdm([(name, draw) for name in names for draw in draw_numbers[name]], unit='drive')
    for name, draw in bar:
        bar.set_description(name)
        drive = load_drive(name, data, draw=draw, cache=cache)
        driven = run_drive(drive, extractor, config)
        rows.append(drive_metrics(drive, driven))
        # The tables come after the last drive, which may be an hour away or never come.
        bar.write(json.dumps(rows[-1]), file=sys.stderr)
        if draw > 1:
            continue
        retrieval_rows += compare_retrieval(name, drive, driven.steps, data)
        for peer in available_peers() if peers is None else peers:
            bar.set_description(f'{name}, {peer}')
            peer_rows.append(peer_metrics(peer, drive))
    return {
        'weights': weights.stem,
        'config': config.to_dict(),
        'goals': TARGETS,
        'drives': rows,
        'peers': peer_rows,
        'retrieval': retrieval_rows,
    }


def run_drive(
    drive: RecordedDrive, extractor: DescriptorExtractor, config: PipelineConfig
) -> DriveRun:
    """Feed a drive to a new pipeline, with every scan a keyframe."""
    excluded = drive.exclusion
    database = replace(config.database, exclude_s=excluded.exclude_s, exclude_m=excluded.exclude_m)
    noise = drive.odometry_noise or config.odometry_noise
    config = replace(config, keyframes=EVERY_SCAN, database=database, odometry_noise=noise)
    pipeline = Pipeline(config, extractor)
    steps = []
    try:
        for index, scan in enumerate(drive.scans):
            steps.append(pipeline.add(replace(scan, odometry_segment=drive.session_of(index))))
    finally:
        pipeline.close()
    return DriveRun([step for step in steps if step is not None])


def drive_metrics(drive: RecordedDrive, driven: DriveRun) -> dict[str, Any]:
    """Return all metrics of one drive."""
    keyframes = [step.keyframe_query.keyframe for step in driven.steps]
    return {
        'name': drive.name,
        'keyframes': len(keyframes),
        **stage_metrics(drive, driven.steps),
        **loop_metrics(drive, driven.loops),
        **trajectory_metrics(drive, keyframes, driven.loops),
        'ms_per_keyframe': float(np.mean(driven.ms)),
        'ms_p95': float(np.percentile(driven.ms, 95)),
    }


def table(result: dict[str, Any]) -> str:
    """Return the drives, their revisits by stage, and the peers as markdown tables."""
    tables = [_drive_table(result), _stage_table(result['drives'])]
    for key, columns in (('peers', PEER_COLUMNS), ('retrieval', RETRIEVAL_COLUMNS)):
        if result[key]:
            tables.append(_method_table(result[key], columns))
    return '\n'.join(tables)


def _drive_table(result: dict[str, Any]) -> str:
    """Return the metrics of every drive, with the targets in the first row."""
    rows = [('target', '', *(TARGETS[key] for key in TABLE_COLUMNS))]
    for row in result['drives']:
        counts = f'{row["keyframes"]}, {row["revisits"]}, {row["loops"]}'
        values = [f'{row[key]:.{0 if key.startswith("ms") else 3}f}' for key in TABLE_COLUMNS]
        rows.append((row['name'], counts, *values))
    head = (f'drive ({result["weights"]})', 'keyframes, revisits, loops', *TABLE_COLUMNS.values())
    return markdown_table(head, rows)


def _stage_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the revisits of every drive by stage."""
    return markdown_table(
        ('drive', *STAGE_COLUMNS.values()),
        [(row['name'], *(f'{row[key]:.4g}' for key in STAGE_COLUMNS)) for row in rows],
    )


def _method_table(rows: Sequence[dict[str, Any]], columns: dict[str, str]) -> str:
    """Return one row per drive and method."""
    return markdown_table(
        ('drive', 'method', *columns),
        [
            (row['name'], row['method'], *(format(row[key], columns[key]) for key in columns))
            for row in rows
        ],
    )
