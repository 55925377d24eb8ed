"""Protocol `sequence`: detect the revisits of one drive, with the recent past excluded."""

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.offline.precision_recall import sweep_detections
from lpr_training.datasets.base import PlaceDataset, Subset
from lpr_training.datasets.registry import make_dataset
from lpr_training.evaluation.paper_tables import SCAN_CONTEXT_KITTI
from lpr_training.evaluation.protocol import (
    Protocol,
    add_radius_option,
    add_yaw_options,
    yaw_seed,
)
from lpr_training.evaluation.report import Report, Result, percent, values_table
from lpr_training.evaluation.retrieval import (
    EXCLUSION_UNITS,
    exclude_recent,
    find_revisits,
    ground_distance,
    nearest_before,
)

if TYPE_CHECKING:
    from lpr_training.evaluation.methods import Method

# Exclusion, its unit and the radius behind the published numbers of Scan Context.
PUBLISHED_SETTINGS = (300.0, 'frames', 4.0)
UNITS = {'frames': 'frames', 'time': 's', 'distance': 'm'}


@dataclass(frozen=True, eq=False)
class SequenceResult(Result):
    """Revisit detection by the top-1 match of every frame that has a candidate."""

    f1_max: float
    recall_at_full_precision: float
    recall_at_1: float  # correct matches per revisit, without a threshold
    queries: int
    revisits: int
    threshold_at_f1_max: float  # matches below it are detections
    thresholds: NDArray[np.float64]  # (T,)
    precision: NDArray[np.float64]  # (T,)
    recall: NDArray[np.float64]  # (T,), fraction of the revisits detected
    query_frames: NDArray[np.int64]  # (Q,)
    match_frames: NDArray[np.int64]  # (Q,)
    match_distances: NDArray[np.float64]  # (Q,)
    is_correct: NDArray[np.bool_]  # (Q,)
    is_revisit: NDArray[np.bool_]  # (Q,)


def evaluate_sequence(
    descriptors: NDArray[np.floating],
    positions: NDArray[np.floating],
    ends: NDArray[np.integer],
    radius_m: float,
) -> SequenceResult:
    """Match every frame with its nearest candidate and score the matches."""
    matches, distances = nearest_before(descriptors, ends)
    return score_sequence(matches, distances, positions, ends, radius_m)


def score_sequence(
    matches: NDArray[np.integer],
    distances: NDArray[np.floating],
    positions: NDArray[np.floating],
    ends: NDArray[np.integer],
    radius_m: float,
) -> SequenceResult:
    """Score top-1 matches (N,) of any method; a match within the radius is correct."""
    queries = np.flatnonzero(np.asarray(ends) > 0)
    matches = np.asarray(matches, dtype=np.int64)[queries]
    distances = np.asarray(distances, dtype=np.float64)[queries]
    apart = ground_distance(positions[queries], positions[matches])
    is_correct = (matches >= 0) & (apart <= radius_m)
    is_revisit = find_revisits(positions, ends, radius_m)[queries]
    swept = sweep_detections(distances, is_correct, is_revisit)
    revisits = int(is_revisit.sum())
    precision, recall = swept.precision(), swept.recall()
    product, total = 2 * precision * recall, precision + recall
    f1 = np.divide(product, total, out=np.zeros(len(total)), where=total > 0)
    return SequenceResult(
        f1_max=swept.f1_max(),
        recall_at_full_precision=swept.recall_at_full_precision(),
        recall_at_1=int(is_correct.sum()) / revisits if revisits else np.nan,
        queries=len(queries),
        revisits=revisits,
        threshold_at_f1_max=float(swept.thresholds[f1.argmax()]) if len(f1) else np.nan,
        thresholds=swept.thresholds,
        precision=precision,
        recall=recall,
        query_frames=queries,
        match_frames=matches,
        match_distances=distances,
        is_correct=is_correct,
        is_revisit=is_revisit,
    )


def open_drive(path: Path, dataset: str | None = None, run: str = '') -> PlaceDataset:
    """Open one run of a dataset, whose format is guessed from the path unless given."""
    places = make_dataset(dataset or guess_dataset(path), path)
    runs = sorted(set(places.runs))
    if run and run not in runs:
        raise DatasetError(f'{path}: no run {run!r}; choose from {runs}')
    if not run and len(runs) > 1:
        raise DatasetError(f'{path}: several runs; choose one of {runs} with --run')
    return Subset(places, places.indices_of(run or runs[0]))


def guess_dataset(path: Path) -> str:
    """Return the dataset format that a path holds."""
    path = Path(path)
    if not path.exists():
        raise DatasetError(f'{path}: no such file or folder')
    formats = {
        'kitti_bev': path.name.startswith('kitti_bev') or any(path.glob('kitti_bev_*.npz')),
        'scans': path.name.startswith('scans_') or any(path.glob('scans_*.npz')),
        'kitti': (path / 'sequences').is_dir(),
        'places': any(path.glob('*/places.csv')) or any(path.glob('*/*/places.csv')),
    }
    if path.suffix == '.npz' and not (formats['kitti_bev'] or formats['scans']):
        raise DatasetError(f'{path}: unknown format; give --dataset kitti_bev or --dataset scans')
    return next((name for name, matches in formats.items() if matches), 'bag')


def evaluate(
    method: 'Method',
    places: PlaceDataset,
    *,
    exclude: float = 300.0,
    exclude_by: str = 'frames',
    radius_m: float = 4.0,
    yaw_seed: int | None = None,
) -> Report:
    """Evaluate one run; `exclude` is the recent past that a frame is not matched with."""
    ends = exclude_recent(exclude_by, exclude, places.positions, places.stamps_ns)
    if not (ends > 0).any():
        raise DatasetError(
            f'the drive has {len(places)} frames, fewer than the exclusion of {exclude:g} '
            f'{UNITS[exclude_by]} needs'
        )
    method.check(places)
    everything = np.arange(len(places))
    descriptors = method.describe(places, everything, yaw_seed)
    matches, distances = method.nearest_before(descriptors, ends)
    result = score_sequence(matches, distances, places.positions, ends, radius_m)
    is_comparable = (exclude, exclude_by, radius_m) == PUBLISHED_SETTINGS
    published = SCAN_CONTEXT_KITTI.get(places.runs[0]) if is_comparable else None
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
    reference = f' (Scan Context, published: {published["f1_max"]:.3f})' if published else ''
    rows = [
        ('F1max', f'{values["f1_max"]:.4f}{reference}'),
        ('recall at 100 % precision', percent(values['recall_at_full_precision'])),
        ('recall@1 over revisits', percent(values['recall_at_1'])),
        *((name, values[name]) for name in ('queries', 'revisits')),
        ('excluded recent past', values['excluded']),
        ('radius', f'{values["radius_m"]:g} m'),
        ('ms per scan', values['ms_per_scan']),
    ]
    return values_table(f'{values["run"]}, {values["method"]}', rows)


def _figures(name: str, places: PlaceDataset, result: SequenceResult) -> dict[str, Any]:
    from lpr_training.figures import plot_matches, plot_precision_recall

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


def _add_options(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add(
        '--dataset',
        metavar='NAME',
        help='kitti_bev, scans, places, kitti or bag (default: guessed from --data)',
    )
    add('--run', default='', help='run to evaluate if the dataset has several')
    add(
        '--exclude',
        type=float,
        default=300.0,
        metavar='N',
        help='recent past to exclude from the candidates (default: 300)',
    )
    add(
        '--exclude-by',
        choices=EXCLUSION_UNITS,
        default='frames',
        help='unit of --exclude: frames, seconds or meters traveled (default: frames)',
    )
    add_radius_option(parser, 4.0)
    add_yaw_options(parser, 'none')


def _run(args: Namespace, method: 'Method') -> Report:
    return evaluate(
        method,
        open_drive(args.data, args.dataset, args.run),
        exclude=args.exclude,
        exclude_by=args.exclude_by,
        radius_m=args.radius,
        yaw_seed=yaw_seed(args),
    )


PROTOCOL = Protocol('one drive against its own past', _add_options, _run)
