"""Protocol `wild_places_intra`: detect revisits within one Wild-Places sequence."""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.markdown import markdown_table
from lpr_ros.core.offline.precision_recall import Detections, count_detections, sweep_detections
from lpr_training.datasets import wild_places
from lpr_training.datasets.base import PlaceDataset, describe_folder
from lpr_training.datasets.splits.wild_places import INTRA_SEQUENCES, intra_dataset
from lpr_training.evaluation.protocol import Protocol, add_sets_option
from lpr_training.evaluation.report import Report, Result, percent
from lpr_training.evaluation.retrieval import (
    SearchBefore,
    exclude_recent,
    find_revisits,
    ground_distance,
    nearest_before,
)

if TYPE_CHECKING:
    from lpr_training.evaluation.methods import Method
    from lpr_training.figures.curves import Curve

RADIUS_M = 3.0
WINDOW_S = 600.0
THRESHOLDS = 1000
COLUMNS = ('F1max', 'R@1', 'ROC area', 'F1max, any threshold', 'queries', 'revisits')


@dataclass(frozen=True, eq=False)
class IntraResult(Result):
    """F1max and R@1 as the benchmark defines them, and F1max over all thresholds."""

    f1_max: float
    recall_at_1: float
    roc_area: float
    f1_max_any: float  # any threshold; a wrong match at a revisit also counts as missed
    queries: int
    revisits: int
    official_window: bool
    counts: Detections


def evaluate_wild_places_intra(
    descriptors: NDArray[np.floating],
    positions: NDArray[np.floating],
    stamps_ns: NDArray[np.integer],
    *,
    official_window: bool = False,
    radius_m: float = RADIUS_M,
    window_s: float = WINDOW_S,
    search: SearchBefore = nearest_before,
) -> IntraResult:
    """Evaluate one sequence in time order; a match strictly within the radius is correct.

    Frames of the first `window_s` are not queries. `official_window` reproduces an off-by-one of
    the published script: the first frame inside the excluded window is a candidate too.
    """
    ends = exclude_recent('time', window_s, positions, stamps_ns)
    is_query = ends > 0
    if official_window:
        ends = np.where(is_query, np.minimum(ends + 1, np.arange(len(ends))), 0)
    matches, distances = search(descriptors, ends)
    matches, distances = matches[is_query], distances[is_query]
    is_correct = ground_distance(positions[is_query], positions[matches]) < radius_m
    is_revisit = find_revisits(positions, ends, radius_m, inclusive=False)[is_query]
    thresholds = np.linspace(0.0, 1.0, THRESHOLDS)
    counts = count_detections(distances, is_correct, is_revisit, thresholds)
    revisits = int(is_revisit.sum())
    return IntraResult(
        f1_max=counts.f1_max(),
        recall_at_1=int(is_correct.sum()) / revisits if revisits else np.nan,
        roc_area=counts.roc_area(),
        f1_max_any=sweep_detections(distances, is_correct, is_revisit).f1_max(),
        queries=int(is_query.sum()),
        revisits=revisits,
        official_window=official_window,
        counts=counts,
    )


def open_sequences(root: Path, sets: Sequence[str] | None = None) -> dict[str, PlaceDataset]:
    """Open the named sequences under a root, by default every 03 and 04."""
    available = [s for s in wild_places.present(root) if s in INTRA_SEQUENCES]
    if not available:
        raise DatasetError(
            f'{root}: expected V-03 or Venman/V-03, found {describe_folder(Path(root))}'
        )
    return {sequence: intra_dataset(root, sequence) for sequence in sets or available}


def evaluate(
    method: 'Method', places: PlaceDataset, *, official_window: bool = False
) -> IntraResult:
    """Describe one sequence and detect its revisits."""
    method.check(places)
    return evaluate_wild_places_intra(
        method.describe(places, np.arange(len(places))),
        places.positions,
        places.stamps_ns,
        official_window=official_window,
        search=method.nearest_before,
    )


def evaluate_all(
    method: 'Method', sequences: Mapping[str, PlaceDataset], *, official_window: bool = False
) -> Report:
    """Evaluate every sequence and average the results."""
    results = {
        name: evaluate(method, places, official_window=official_window)
        for name, places in sequences.items()
    }
    first = next(iter(sequences.values()))
    values = {
        'protocol': 'wild_places_intra',
        'method': method.name,
        'f1_max': float(np.mean([r.f1_max for r in results.values()])),
        'recall_at_1': float(np.mean([r.recall_at_1 for r in results.values()])),
        'queries': sum(r.queries for r in results.values()),
        'ms_per_scan': method.ms_per_scan(first, np.arange(len(first))),
        'sets': {name: result.to_dict() for name, result in results.items()},
    }
    from lpr_training.figures import plot_roc

    figure = plot_roc(roc_curves({method.name: results}))
    return Report(values, _markdown(method.name, results), {'roc': figure})


def roc_curves(methods: Mapping[str, Mapping[str, IntraResult]]) -> 'dict[str, dict[str, Curve]]':
    """Return sequence -> method -> (false positive rate, true positive rate)."""
    curves: dict[str, dict[str, Curve]] = {}
    for method, results in methods.items():
        for sequence, result in results.items():
            rates = result.counts.false_positive_rate(), result.counts.recall()
            curves.setdefault(sequence, {})[method] = rates
    return curves


def _markdown(name: str, results: Mapping[str, IntraResult]) -> str:
    rows = []
    for title, r in results.items():
        fractions = (r.f1_max, r.recall_at_1, r.roc_area, r.f1_max_any)
        rows.append((title, *map(percent, fractions), r.queries, r.revisits))
    return f'**{name}**\n\n' + markdown_table(('sequence', *COLUMNS), rows)


def _add_options(parser: ArgumentParser) -> None:
    add_sets_option(parser, INTRA_SEQUENCES)
    parser.add_argument(
        '--official-window',
        action='store_true',
        help='reproduce the off-by-one of the published script',
    )


def _run(args: Namespace, method: 'Method') -> Report:
    sequences = open_sequences(args.data, args.sets)
    return evaluate_all(method, sequences, official_window=args.official_window)


PROTOCOL = Protocol('Wild-Places, revisits within each sequence', _add_options, _run)
