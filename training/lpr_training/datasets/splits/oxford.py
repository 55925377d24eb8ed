"""Oxford and In-house splits: test regions, training tuples, evaluation sets."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_training.datasets.base import Joined, PlaceDataset, Subset
from lpr_training.datasets.oxford import INHOUSE, InhouseDataset, OxfordDataset, list_runs
from lpr_training.datasets.splits.evaluation_sets import EvaluationSets, make_evaluation_sets
from lpr_training.datasets.splits.tuples import TrainingTuples, make_tuples

REGION_HALF_M = 150.0  # exclusive, along each axis
TRUE_NEIGHBOR_M = 25.0
RADII_M = {'baseline': (10.0, 50.0), 'refined': (12.5, 50.0)}

# Centers (northing, easting) of the test squares; without any, every place is a test place.
REGIONS: dict[str, tuple[tuple[float, float], ...]] = {
    'oxford': (
        (5735712.768124, 620084.402381),
        (5735611.299219, 620540.270327),
        (5735237.358209, 620543.094379),
        (5734749.303802, 619932.693364),
    ),
    'university': (
        (363621.292362, 142864.19756),
        (364788.795462, 143125.746609),
        (363597.507711, 144011.414174),
    ),
    'residential': (
        (360895.486453, 144999.915143),
        (362357.024536, 144894.825301),
        (361368.907155, 145209.663042),
    ),
    'business': (),
}
OXFORD_RUNS = 45
OXFORD_EVALUATION = (*range(5, 8), *range(9, 20), 22, 24, 31, 32, 33, 38, 39, 43, 44)
INHOUSE_RUNS = {'business': range(5), 'residential': range(5, 10), 'university': range(10, 15)}


def in_regions(
    positions_xy: NDArray[np.float64], regions: Sequence[tuple[float, float]]
) -> NDArray[np.bool_]:
    """Return which positions (N, 2), easting and northing, are inside a test square."""
    inside = np.zeros(len(positions_xy), dtype=bool)
    for northing, easting in regions:
        offset = np.abs(positions_xy - (easting, northing))
        inside |= (offset < REGION_HALF_M).all(axis=1)
    return inside


def is_test_place(benchmark: str, positions_xy: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which positions are queries of a benchmark; all are on `business`."""
    if not REGIONS[benchmark]:
        return np.ones(len(positions_xy), dtype=bool)
    return in_regions(positions_xy, REGIONS[benchmark])


def present(root: Path) -> list[str]:
    """Return the benchmarks with evaluation runs under the root."""
    inhouse = list_runs(root, INHOUSE)
    return [
        name
        for name in REGIONS
        if (name == 'oxford' and list_runs(root))
        or (len(inhouse) == 15 and name in INHOUSE_RUNS)
        or any(run.startswith(name) for run in inhouse)
    ]


def evaluation_dataset(root: Path, benchmark: str) -> PlaceDataset:
    """Open the evaluation runs of oxford, university, residential or business."""
    if benchmark not in REGIONS:
        raise DatasetError(f'benchmark {benchmark!r}: expected one of {sorted(REGIONS)}')
    if benchmark == 'oxford':
        runs = list_runs(root)
        # The published selection indexes all 45 runs; with fewer, all are used.
        chosen = [runs[i] for i in OXFORD_EVALUATION] if len(runs) == OXFORD_RUNS else None
        return OxfordDataset(root, runs=chosen)
    return InhouseDataset(root, runs=_inhouse_runs(root, benchmark, 'evaluation'))


def evaluation_sets(dataset: PlaceDataset, benchmark: str) -> EvaluationSets:
    """Return the evaluation sets of an `evaluation_dataset`."""
    xy = dataset.positions[:, :2]
    return make_evaluation_sets(dataset.runs, xy, is_test_place(benchmark, xy), TRUE_NEIGHBOR_M)


def training_dataset(root: Path, kind: str = 'baseline', *, inside: bool = False) -> PlaceDataset:
    """Open the training places outside all test regions; `inside` gives those for validation."""
    if kind not in RADII_M:
        raise DatasetError(f'training set {kind!r}: expected one of {sorted(RADII_M)}')
    runs = list_runs(root, part='training')
    parts: list[PlaceDataset] = [
        OxfordDataset(root, part='training', runs=runs[:-1] if len(runs) == OXFORD_RUNS else None)
    ]
    regions = REGIONS['oxford']
    if kind == 'refined':
        for name in ('residential', 'university'):
            chosen = _inhouse_runs(root, name, 'training')
            parts.append(InhouseDataset(root, part='training', runs=chosen))
            regions += REGIONS[name]
    dataset = Joined(parts)
    in_test = in_regions(dataset.positions[:, :2], regions)
    return Subset(dataset, np.flatnonzero(in_test if inside else ~in_test))


def training_tuples(dataset: PlaceDataset, kind: str = 'baseline') -> TrainingTuples:
    """Return the tuples of a `training_dataset`."""
    return make_tuples(dataset.positions[:, :2], *RADII_M[kind])


def _inhouse_runs(root: Path, name: str, part: str) -> list[str]:
    """Return the runs of an In-house set, by name or by index among the published 15."""
    runs = list_runs(root, INHOUSE, part)
    if len(runs) == 15:
        return [runs[i] for i in INHOUSE_RUNS[name]]
    named = [run for run in runs if run.startswith(name)]
    if not named:
        raise DatasetError(
            f'expected the 15 published runs, or runs named {name}*, in '
            f'{Path(root) / INHOUSE.folder}, found {runs}'
        )
    return named
