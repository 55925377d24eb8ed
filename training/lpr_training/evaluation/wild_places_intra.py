"""Wild-Places within sequences: revisits of one walk."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.markdown import markdown_table
from lpr_training.datasets import wild_places
from lpr_training.datasets.base import PlaceDataset, describe_folder
from lpr_training.datasets.wild_places_sets import INTRA_SEQUENCES, intra_dataset
from lpr_training.evaluation.methods import Method
from lpr_training.evaluation.report import Report, percent
from lpr_training.figures import plot_roc
from lpr_training.figures.curves import Curve
from lpr_training.protocols.wild_places_intra import IntraResult, evaluate_wild_places_intra

COLUMNS = ('F1max', 'R@1', 'ROC area', 'F1max, any threshold', 'queries', 'revisits')


def open_sequences(root: Path, sets: Sequence[str] | None = None) -> dict[str, PlaceDataset]:
    """Open the sequences 03 and 04 under a root (default: those that are there)."""
    there = [s for s in wild_places.present(root) if s in INTRA_SEQUENCES]
    if not there:
        raise DatasetError(
            f'{root}: expected V-03 or Venman/V-03, found {describe_folder(Path(root))}'
        )
    return {sequence: intra_dataset(root, sequence) for sequence in sets or there}


def evaluate(
    method: Method, places: PlaceDataset, *, official_window: bool = False
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
    method: Method, sequences: Mapping[str, PlaceDataset], *, official_window: bool = False
) -> Report:
    """Evaluate every sequence and put the results together."""
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
    figure = plot_roc(roc_curves({method.name: results}))
    return Report(values, _markdown(method.name, results), {'roc': figure})


def roc_curves(methods: Mapping[str, Mapping[str, IntraResult]]) -> dict[str, dict[str, Curve]]:
    """Return sequence -> method -> (false, true positive rate)."""
    curves: dict[str, dict[str, Curve]] = {}
    for method, results in methods.items():
        for sequence, result in results.items():
            rates = result.counts.false_positive_rate(), result.counts.recall()
            curves.setdefault(sequence, {})[method] = rates
    return curves


def _markdown(name: str, results: Mapping[str, IntraResult]) -> str:
    rows = []
    for title, r in results.items():
        shares = (r.f1_max, r.recall_at_1, r.roc_area, r.f1_max_any)
        rows.append((title, *map(percent, shares), r.queries, r.revisits))
    return f'**{name}**\n\n' + markdown_table(('sequence', *COLUMNS), rows)
