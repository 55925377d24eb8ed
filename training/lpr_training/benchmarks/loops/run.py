"""Whole drives through the pipeline: precision, recall, poses, covariances, trajectories, time.

What each figure means is said in loop_figures.py. The peers get the same scans in the same run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from lpr_ros.core.keyframes import KeyframeConfig
from lpr_ros.core.model.describer import Describer
from lpr_ros.core.pipeline import Pipeline, PipelineConfig, Step
from lpr_ros.core.recogniser import Describes
from lpr_ros.core.records import LoopClosure
from lpr_training.benchmarks.loop_drives import RecordedDrive, available, drive_names, load_drive
from lpr_training.benchmarks.loop_figures import loop_figures, trajectory_figures
from lpr_training.benchmarks.loop_peers import available_peers, peer_figures

EVERY_SCAN = KeyframeConfig(distance_m=0.0, interval_s=1e-6)  # drives are spaced as keyframes are
GOALS = {
    'precision': '1.00, aliased >= 0.99',
    'recall': '>= 0.85',
    'pose_error_median_m': '< 0.15',
    'pose_error_median_deg': '< 0.5',
    'pose_error_p99_m': '< 1',
    'nees_per_dim': '0.5 - 2',
    'ate_odometry_m': '',
    'ate_corrected_m': '<= a fifth',
    'ms_per_keyframe': '',
}


@dataclass(frozen=True, eq=False)
class Driven:
    """What the pipeline made of a drive."""

    steps: list[Step]

    @property
    def loops(self) -> list[LoopClosure]:
        """The published ones."""
        return [loop for step in self.steps for loop in step.verdict.trusted]

    @property
    def ms(self) -> list[float]:
        """Milliseconds of every keyframe, all stages."""
        return [1e3 * sum(step.seconds.values()) for step in self.steps]


def run(
    weights: Path,
    data: Path,
    *,
    drives: Sequence[str] | None = None,
    config: PipelineConfig | None = None,
    peers: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Take every drive through the pipeline and the peers."""
    describer = Describer.load(weights)
    config = config or PipelineConfig()
    rows, peer_rows = [], []
    bar = tqdm(available(drives or drive_names(), data), unit='drive')
    for name in bar:
        bar.set_description(name)
        drive = load_drive(name, data)
        driven = take_drive(drive, describer, config)
        rows.append(figures(drive, driven))
        for peer in available_peers() if peers is None else peers:
            bar.set_description(f'{name}, {peer}')
            peer_rows.append(peer_figures(peer, drive))
    return {
        'weights': weights.stem,
        'config': config.to_dict(),
        'goals': GOALS,
        'drives': rows,
        'peers': peer_rows,
    }


def take_drive(drive: RecordedDrive, describer: Describes, config: PipelineConfig) -> Driven:
    """Feed a drive to a new pipeline, every scan a keyframe."""
    recent = drive.recent
    database = replace(config.database, exclude_s=recent.exclude_s, exclude_m=recent.exclude_m)
    pipeline = Pipeline(replace(config, keyframes=EVERY_SCAN, database=database), describer)
    try:
        steps = [pipeline.add(scan) for scan in drive.scans]
    finally:
        pipeline.close()
    return Driven([step for step in steps if step is not None])


def figures(drive: RecordedDrive, driven: Driven) -> dict[str, Any]:
    """Return all figures of one drive."""
    keyframes = [step.sighting.keyframe for step in driven.steps]
    verified = [step.verdict.verified for step in driven.steps]
    return {
        'name': drive.name,
        'keyframes': len(keyframes),
        'verified': sum(v is not None for v in verified),
        **loop_figures(drive, driven.loops),
        **trajectory_figures(drive, keyframes, driven.loops),
        'ms_per_keyframe': float(np.mean(driven.ms)),
        'ms_p95': float(np.percentile(driven.ms, 95)),
    }


def table(result: dict[str, Any]) -> str:
    """Return both tables as markdown, the goals below the heads."""
    heads = {
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
    lines = [
        f'| drive ({result["weights"]}) | keyframes, revisits, loops | '
        + ' | '.join(heads.values())
        + ' |',
        '|---' * (len(heads) + 2) + '|',
        '| goal | | ' + ' | '.join(GOALS[key] for key in heads) + ' |',
    ]
    for row in result['drives']:
        counts = f'{row["keyframes"]}, {row["revisits"]}, {row["loops"]}'
        cells = [f'{row[key]:.{0 if key.startswith("ms") else 3}f}' for key in heads]
        lines.append(f'| {row["name"]} | {counts} | ' + ' | '.join(cells) + ' |')
    if result['peers']:
        lines += ['', '| drive | method | loops | precision | recall | ms per keyframe |']
        lines.append('|---' * 6 + '|')
    for row in result['peers']:
        lines.append(
            f'| {row["name"]} | {row["method"]} | {row["loops"]} | {row["precision"]:.3f} '
            f'| {row["recall"]:.3f} | {row["ms_per_keyframe"]:.0f} |'
        )
    return '\n'.join(lines)
