"""Oxford, In-house and Wild-Places inter: every run searched with the queries of every other."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.markdown import markdown_table
from lpr_training.datasets import oxford_sets, wild_places, wild_places_sets
from lpr_training.datasets.base import PlaceDataset, describe_folder
from lpr_training.evaluation.methods import Method
from lpr_training.evaluation.report import Report, percent
from lpr_training.figures import plot_map_at_k
from lpr_training.protocols.runs import Run, RunsResult, evaluate_runs

# Benchmark -> its column in the paper's table.
OXFORD_NAMES = {
    'oxford': 'Oxford',
    'university': 'U.S.',
    'residential': 'R.A.',
    'business': 'B.D.',
}
SITES = tuple(wild_places.SITES.values())
COLUMNS = ('R@1', 'R@1%', 'MRR', 'MRR official', 'MAP@10', 'pairs', 'queries')


@dataclass(frozen=True, eq=False)
class Part:
    """One benchmark or site: its runs, and which of their places ask."""

    name: str
    places: PlaceDataset
    is_query: NDArray[np.bool_]


def oxford_parts(root: Path, sets: Sequence[str] | None = None) -> list[Part]:
    """Open the benchmarks under a root (default: those that are there), named as in the paper."""
    there = oxford_sets.present(root)
    if not there:
        expected = 'oxford/<run> or inhouse_datasets/<run>'
        raise DatasetError(f'{root}: expected {expected}, found {describe_folder(Path(root))}')
    parts = []
    for name in [n for n in OXFORD_NAMES if n in (sets or there)]:
        places = oxford_sets.evaluation_dataset(root, name)
        asks = oxford_sets.is_test_place(name, places.positions[:, :2])
        parts.append(Part(OXFORD_NAMES[name], places, asks))
    return parts


def wild_places_parts(root: Path, sets: Sequence[str] | None = None) -> list[Part]:
    """Open the sites under a root (default: those that are there)."""
    there = {wild_places.SITES[s[0]] for s in wild_places.present(root)}
    if not there:
        expected = 'V-01 or Venman/V-01'
        raise DatasetError(f'{root}: expected {expected}, found {describe_folder(Path(root))}')
    parts = []
    for site in [s for s in SITES if s in (sets or there)]:
        places = wild_places_sets.inter_dataset(root, site)
        asks = wild_places_sets.split_of(site, places.positions[:, :2]) == wild_places_sets.TEST
        parts.append(Part(site, places, asks))
    return parts


def evaluate(method: Method, part: Part, radius_m: float) -> RunsResult:
    """Describe every place of a part, and search every run with every other."""
    method.check(part.places)
    descriptors = method.describe(part.places, np.arange(len(part.places)))
    runs = list(_split(part.places, descriptors, part.is_query))
    return evaluate_runs(runs, radius_m, method.nearest)


def _split(
    places: PlaceDataset, descriptors: NDArray[np.float32], is_query: NDArray[np.bool_]
) -> Iterator[Run]:
    for run in dict.fromkeys(places.runs):
        rows = places.indices_of(run)
        yield Run(run, descriptors[rows], places.positions[rows, :2], is_query[rows])


def evaluate_all(
    protocol: str, method: Method, parts: Sequence[Part], radius_m: float
) -> Report:
    """Evaluate every part and put the results together."""
    results = {part.name: evaluate(method, part, radius_m) for part in parts}
    places = parts[0].places
    values = {
        'protocol': protocol,
        'method': method.name,
        'recall_at_1': float(np.mean([r.recall_at_1 for r in results.values()])),
        'recall_at_one_percent': float(
            np.mean([r.recall_at_one_percent for r in results.values()])
        ),
        'mrr': float(np.mean([r.mrr for r in results.values()])),
        'mrr_official': float(np.mean([r.mrr_official for r in results.values()])),
        'queries': sum(r.queries for r in results.values()),
        'ms_per_scan': method.ms_per_scan(places, np.arange(len(places))),
        'sets': {name: result.to_dict() for name, result in results.items()},
    }
    figure = plot_map_at_k({name: {method.name: r.map_curve} for name, r in results.items()})
    return Report(values, _markdown(method.name, results), {'map_at_k': figure})


def _markdown(name: str, results: Mapping[str, RunsResult]) -> str:
    rows = []
    for title, r in results.items():
        shares = (r.recall_at_1, r.recall_at_one_percent, r.mrr, r.mrr_official, r.map_curve[-1])
        rows.append((title, *map(percent, shares), r.pairs, r.queries))
    return f'**{name}**\n\n' + markdown_table(('set', *COLUMNS), rows)
