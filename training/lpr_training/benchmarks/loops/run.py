"""Whole drives through the pipeline: precision, recall, pose errors, covariances, ATE, time.

metrics.py defines the metrics. The peers get the same scans in the same run.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from lpr_ros.core.markdown import markdown_table
from lpr_ros.core.model.descriptor_extractor import NetworkDescriptorExtractor
from lpr_ros.core.offline.result import PublishedLoops
from lpr_ros.core.pipeline import Pipeline, PipelineConfig, Step
from lpr_ros.core.resources import WEIGHTS_HELP, weights_path
from lpr_ros.core.retrieval.keyframing import KeyframeConfig
from lpr_ros.core.types import DescriptorExtractor, LoopClosure
from lpr_training.benchmarks.loops.drives import RecordedDrive, available, drive_names, load_drive
from lpr_training.benchmarks.loops.metrics import loop_metrics, trajectory_metrics
from lpr_training.benchmarks.loops.peers import available_peers, peer_metrics
from lpr_training.benchmarks.options import add_data_option

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


@dataclass(frozen=True, eq=False)
class DriveRun:
    """Results of the pipeline on a drive."""

    steps: list[Step]

    @property
    def loops(self) -> list[LoopClosure]:
        """Return the loop closures that stand at the end."""
        return [*PublishedLoops(step.result for step in self.steps).standing]

    @property
    def ms(self) -> list[float]:
        """Return the processing time of every keyframe, all stages."""
        return [1e3 * sum(step.seconds.values()) for step in self.steps]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        '--weights', metavar='FILE|NAME', help=f'{WEIGHTS_HELP}; default kitti_bev'
    )
    parser.add_argument(
        '--drives', nargs='+', metavar='NAME', help="Drives such as 'city hdl64' (all)"
    )
    parser.add_argument(
        '--peers', nargs='*', metavar='NAME', help='scan_context, map_closures (installed ones)'
    )
    add_data_option(parser, 'scans_balm.npz')


def run(
    weights: str | Path | None,
    data: Path,
    *,
    drives: Sequence[str] | None = None,
    config: PipelineConfig | None = None,
    peers: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Run the pipeline and the peers on every drive."""
    weights = weights_path(weights)
    extractor = NetworkDescriptorExtractor.load(weights)
    config = config or PipelineConfig()
    rows, peer_rows = [], []
    bar = tqdm(available(drives or drive_names(), data), unit='drive')
    for name in bar:
        bar.set_description(name)
        drive = load_drive(name, data)
        rows.append(drive_metrics(drive, run_drive(drive, extractor, config)))
        for peer in available_peers() if peers is None else peers:
            bar.set_description(f'{name}, {peer}')
            peer_rows.append(peer_metrics(peer, drive))
    return {
        'weights': weights.stem,
        'config': config.to_dict(),
        'goals': TARGETS,
        'drives': rows,
        'peers': peer_rows,
    }


def run_drive(
    drive: RecordedDrive, extractor: DescriptorExtractor, config: PipelineConfig
) -> DriveRun:
    """Feed a drive to a new pipeline, with every scan a keyframe."""
    excluded = drive.exclusion
    database = replace(config.database, exclude_s=excluded.exclude_s, exclude_m=excluded.exclude_m)
    pipeline = Pipeline(replace(config, keyframes=EVERY_SCAN, database=database), extractor)
    try:
        steps = [pipeline.add(scan) for scan in drive.scans]
    finally:
        pipeline.close()
    return DriveRun([step for step in steps if step is not None])


def drive_metrics(drive: RecordedDrive, driven: DriveRun) -> dict[str, Any]:
    """Return all metrics of one drive."""
    keyframes = [step.keyframe_query.keyframe for step in driven.steps]
    verified = [step.result.verified for step in driven.steps]
    return {
        'name': drive.name,
        'keyframes': len(keyframes),
        'verified': sum(v is not None for v in verified),
        **loop_metrics(drive, driven.loops),
        **trajectory_metrics(drive, keyframes, driven.loops),
        'ms_per_keyframe': float(np.mean(driven.ms)),
        'ms_p95': float(np.percentile(driven.ms, 95)),
    }


def table(result: dict[str, Any]) -> str:
    """Return the drives, with the targets in the first row, and the peers as markdown tables."""
    rows = [('target', '', *(TARGETS[key] for key in TABLE_COLUMNS))]
    for row in result['drives']:
        counts = f'{row["keyframes"]}, {row["revisits"]}, {row["loops"]}'
        values = [f'{row[key]:.{0 if key.startswith("ms") else 3}f}' for key in TABLE_COLUMNS]
        rows.append((row['name'], counts, *values))
    head = (f'drive ({result["weights"]})', 'keyframes, revisits, loops', *TABLE_COLUMNS.values())
    drives = markdown_table(head, rows)
    if not result['peers']:
        return drives
    peers = markdown_table(
        ('drive', 'method', 'loops', 'precision', 'recall', 'ms per keyframe'),
        [
            (
                *(row[key] for key in ('name', 'method', 'loops')),
                *(f'{row[key]:.3f}' for key in ('precision', 'recall')),
                f'{row["ms_per_keyframe"]:.0f}',
            )
            for row in result['peers']
        ],
    )
    return f'{drives}\n{peers}'
