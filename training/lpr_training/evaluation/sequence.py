"""Any drive with poses against its own past: precision-recall, F1max, the map of matches."""

from pathlib import Path
from typing import Any

import numpy as np

from lpr_ros.core.errors import DatasetError
from lpr_training.datasets import make_dataset
from lpr_training.datasets.base import PlaceDataset, Subset
from lpr_training.evaluation.methods import Method
from lpr_training.evaluation.report import Report, percent, values_table
from lpr_training.figures import plot_matches, plot_precision_recall
from lpr_training.protocols.sequence import SequenceResult, exclude_recent, score_sequence
from lpr_training.tables import SCAN_CONTEXT_KITTI

PUBLISHED_RULE = (300.0, 'frames', 4.0)  # of Scan Context's numbers: exclusion, unit, radius
UNITS = {'frames': 'frames', 'time': 's', 'distance': 'm'}


def open_drive(path: Path, dataset: str | None = None, run: str = '') -> PlaceDataset:
    """Open one run of a dataset; which kind it is can be seen from the path."""
    places = make_dataset(dataset or guess_dataset(path), path)
    runs = sorted(set(places.runs))
    if run and run not in runs:
        raise DatasetError(f'{path}: no run {run!r} among {runs}')
    if not run and len(runs) > 1:
        raise DatasetError(f'{path}: choose one of the runs {runs} with --run')
    return Subset(places, places.indices_of(run or runs[0]))


def guess_dataset(path: Path) -> str:
    """Return the kind of dataset a path holds."""
    path = Path(path)
    if not path.exists():
        raise DatasetError(f'{path}: no such file or folder; expected a dataset')
    kinds = {
        'kitti_bev': path.name.startswith('kitti_bev') or any(path.glob('kitti_bev_*.npz')),
        'scans': path.name.startswith('scans_') or any(path.glob('scans_*.npz')),
        'kitti': (path / 'sequences').is_dir(),
        'places': any(path.glob('*/places.csv')) or any(path.glob('*/*/places.csv')),
    }
    if path.suffix == '.npz' and not (kinds['kitti_bev'] or kinds['scans']):
        raise DatasetError(f'{path}: name its kind with --dataset kitti_bev or scans')
    return next((kind for kind, is_it in kinds.items() if is_it), 'bag')


def evaluate(
    method: Method,
    places: PlaceDataset,
    *,
    exclude: float = 300.0,
    exclude_by: str = 'frames',
    radius_m: float = 4.0,
    yaw_seed: int | None = None,
) -> Report:
    """Evaluate one run; the recent past of every frame is excluded."""
    ends = exclude_recent(exclude_by, exclude, places.positions, places.stamps_ns)
    if not (ends > 0).any():
        raise DatasetError(
            f'the drive of {len(places)} frames is shorter than the excluded past of '
            f'{exclude:g} {UNITS[exclude_by]}'
        )
    method.check(places)
    everything = np.arange(len(places))
    descriptors = method.describe(places, everything, yaw_seed)
    matches, distances = method.nearest_before(descriptors, ends)
    result = score_sequence(matches, distances, places.positions, ends, radius_m)
    is_published_rule = (exclude, exclude_by, radius_m) == PUBLISHED_RULE
    published = SCAN_CONTEXT_KITTI.get(places.runs[0]) if is_published_rule else None
    values = {
        'protocol': 'sequence',
        'method': method.name,
        'run': places.runs[0],
        'excluded': f'{exclude:g} {UNITS[exclude_by]}',
        'radius_m': radius_m,
        'yaw_seed': yaw_seed,
        'ms_per_scan': method.ms_per_scan(places, everything),
        'scan_context_published': published,
        **result.to_dict(),
    }
    return Report(values, _markdown(values), _figures(method.name, places, result))


def _markdown(values: dict[str, Any]) -> str:
    published = values['scan_context_published']
    beside = f' (Scan Context, published: {published["f1_max"]:.3f})' if published else ''
    rows = [
        ('F1max', f'{values["f1_max"]:.4f}{beside}'),
        ('recall at 100 % precision', percent(values['recall_at_full_precision'])),
        ('recall@1 of revisits', percent(values['recall_at_1'])),
        *((name, values[name]) for name in ('queries', 'revisits', 'excluded', 'radius_m')),
        ('ms per scan', values['ms_per_scan']),
    ]
    return values_table(f'{values["run"]}, {values["method"]}', rows)


def _figures(name: str, places: PlaceDataset, result: SequenceResult) -> dict[str, Any]:
    title = f'{places.runs[0]}, {name}'
    return {
        'precision_recall': plot_precision_recall(
            {name: (result.recall, result.precision)}, title=title
        ),
        'matches': plot_matches(
            places.positions,
            result.query_frames,
            result.match_frames,
            result.is_correct,
            result.is_revisit,
            result.match_distances < result.threshold_at_f1_max,
            title=f'{title}, at F1max',
        ),
    }
