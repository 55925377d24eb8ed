"""Retrieval alone: our descriptors beside the published ones of OverlapTransformer, KITTI 05.

Both describe the same frames and may match the same earlier ones. OverlapTransformer saw the
original scans and ours the lifted ones; its weights were probably trained on this sequence.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.io.npz_reader import Expected, NpzFile
from lpr_ros.core.offline.precision_recall import sweep_detections
from lpr_ros.core.offline.statistics import fraction_of
from lpr_ros.core.pipeline import Step
from lpr_training.benchmarks.loops.metrics import may_match, revisits
from lpr_training.benchmarks.loops.real import KITTI_DRIVES
from lpr_training.benchmarks.loops.recorded_drive import RecordedDrive
from lpr_training.datasets.kitti_bev import SCAN_PERIOD_NS

OVERLAP_TRANSFORMER = 'overlap_transformer'
OVERLAP_TRANSFORMER_FILE = 'descriptors_overlaptransformer.npz'
OVERLAP_TRANSFORMER_DRIVES = ('kitti 05',)


def compare_retrieval(
    name: str, drive: RecordedDrive, steps: Sequence[Step], data: Path
) -> list[dict[str, Any]]:
    """Return the retrieval of our descriptors and the published ones; none without a file."""
    path = data / OVERLAP_TRANSFORMER_FILE
    if name not in OVERLAP_TRANSFORMER_DRIVES or not path.is_file():
        return []
    ours = np.stack([step.keyframe_query.keyframe.descriptor for step in steps])
    published = published_descriptors(path, KITTI_DRIVES[name], drive)
    return [
        {'name': drive.name, 'method': 'lpr_ros', **retrieval_metrics(drive, ours)},
        {
            'name': drive.name,
            'method': OVERLAP_TRANSFORMER,
            **retrieval_metrics(drive, published),
        },
    ]


def published_descriptors(path: Path, sequence: str, drive: RecordedDrive) -> NDArray[np.float32]:
    """Return the descriptors (N, D) of the frames of a drive."""
    key = f'desc_{sequence}'
    table = NpzFile(path, {key: Expected('f', (None, None))})[key]
    frames = np.array([scan.stamp_ns // SCAN_PERIOD_NS for scan in drive.scans])
    if frames.max() >= len(table):
        raise DatasetError(f'{path}: {key} has {len(table)} rows, expected {frames.max() + 1}')
    return table[frames].astype(np.float32)


def retrieval_metrics(drive: RecordedDrive, descriptors: NDArray[np.float32]) -> dict[str, Any]:
    """Return recall@1 of the revisits, and detection of revisits by the nearest distance."""
    near, eligible = revisits(drive), may_match(drive)
    distances, is_correct, is_revisit = [], [], []
    for i in np.flatnonzero(eligible.any(axis=1)):
        older = np.flatnonzero(eligible[i])
        gaps = np.linalg.norm(descriptors[older] - descriptors[i], axis=1)
        distances.append(gaps.min())
        is_correct.append(near[i, older[gaps.argmin()]])
        is_revisit.append(near[i].any())
    correct, revisit = np.array(is_correct, dtype=bool), np.array(is_revisit, dtype=bool)
    found = sweep_detections(np.array(distances), correct, revisit)
    return {
        'recall_at_1': fraction_of(int(correct.sum()), int(revisit.sum())),
        'f1_max': found.f1_max(),
        'recall_at_full_precision': found.recall_at_full_precision(),
    }
