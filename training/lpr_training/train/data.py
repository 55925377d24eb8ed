"""Open a dataset for training: places, positive and negative tuples, held-out places."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import ConfigError, DatasetError
from lpr_training.datasets.base import PlaceDataset, Subset, apart_by_world, world_of
from lpr_training.datasets.registry import DATASETS, make_dataset
from lpr_training.datasets.splits import oxford as oxford_splits
from lpr_training.datasets.splits import wild_places as wild_places_splits
from lpr_training.datasets.splits.tuples import TrainingTuples, make_tuples, neighbors_within
from lpr_training.train.config import DataConfig


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Places for model selection and calibration: runs in time order, some places query."""

    places: PlaceDataset
    is_query: NDArray[np.bool_]  # (N,), the places that are not trained on
    gap: int  # minimum age of a match relative to its query, in places
    radius_m: float = 5.0  # maximum distance of a correct match
    sites: tuple[str, ...] = ()  # (N,) of benchmark places, which are not rotated; else empty


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Training places with their tuples, and the held-out places."""

    places: PlaceDataset
    tuples: TrainingTuples
    held_out: HeldOut | None
    neighbors: list[NDArray[np.int64]] | None = None  # nearby negatives of each place
    positions: NDArray[np.float64] | None = None  # (N, 2), if tuples depend on distance only
    other_visits: list[NDArray[np.int64]] | None = None  # positives from other visits


def open_training_data(config: DataConfig, root: Path) -> TrainingData:
    """Open a dataset folder and split it as configured."""
    if config.source not in {*BENCHMARK_SPLITS, *DATASETS}:
        names = sorted({*BENCHMARK_SPLITS, *DATASETS})
        raise ConfigError(f'data.source: {config.source!r}; expected one of {names}')
    data = BENCHMARK_SPLITS.get(config.source, _by_radius)(config, Path(root))
    if len(data.places) == 0:
        raise DatasetError(f'{root}: source {config.source!r} has no training places')
    return data


def _by_radius(config: DataConfig, root: Path) -> TrainingData:
    """Hold out squares and runs; form tuples by ground distance within a world."""
    keyword = 'sequences' if config.source == 'kitti_bev' else 'runs'
    chosen = {keyword: config.runs} if config.runs else {}
    dataset = make_dataset(config.source, root, **chosen)
    is_held_out = _in_squares(dataset.positions[:, :2], config)
    is_held_out |= _in_runs(dataset.runs, config.validation_runs)
    kept = np.flatnonzero(spaced(dataset, config.spacing_m) & ~is_held_out)
    places = Subset(dataset, kept)
    positions = dataset.positions[kept, :2]
    # Different worlds may share coordinates.
    apart = apart_by_world(positions, places.runs)
    tuples = make_tuples(apart, config.positive_m, config.non_negative_m)
    held_out = _held_out(dataset, is_held_out, config.validation_gap)
    neighbors = _neighbors(apart, tuples, config.neighbor_m) if config.neighbor_m else None
    other_visits = None
    if config.revisit_m:
        other_visits = _other_visits(apart, places.runs, tuples, config.revisit_m)
    return TrainingData(places, tuples, held_out, neighbors, apart, other_visits)


def _other_visits(
    positions: NDArray[np.float64],
    runs: Sequence[str],
    tuples: TrainingTuples,
    min_traveled_m: float,
) -> list[NDArray[np.int64]]:
    """Return for each place its positives of other runs or after this traveled distance."""
    steps = np.linalg.norm(np.diff(positions, axis=0, prepend=positions[:1]), axis=1)
    traveled_m = np.cumsum(steps)
    run_number = np.unique(runs, return_inverse=True)[1]
    other_visits = []
    for i in range(len(tuples)):
        positives = tuples.positives[i]
        is_far = np.abs(traveled_m[positives] - traveled_m[i]) >= min_traveled_m
        other_visits.append(positives[is_far | (run_number[positives] != run_number[i])])
    return other_visits


def _neighbors(
    positions: NDArray[np.float64], tuples: TrainingTuples, radius_m: float
) -> list[NDArray[np.int64]]:
    """Return for each place its negatives within the radius."""
    within = neighbors_within(positions, radius_m, include_self=False)
    return [np.setdiff1d(within[i], tuples.non_negatives[i]) for i in range(len(tuples))]


def _held_out(dataset: PlaceDataset, is_query: NDArray[np.bool_], gap: int) -> HeldOut | None:
    """Keep every place of the worlds that have queries; other worlds cannot match."""
    queried = {world_of(dataset.runs[i]) for i in np.flatnonzero(is_query)}
    kept = np.flatnonzero([world_of(run) in queried for run in dataset.runs])
    return HeldOut(Subset(dataset, kept), is_query[kept], gap) if queried else None


def _in_squares(positions_xy: NDArray[np.float64], config: DataConfig) -> NDArray[np.bool_]:
    centers = zip(config.validation_x, config.validation_y, strict=True)
    inside = np.zeros(len(positions_xy), dtype=bool)
    for center in centers:
        inside |= (np.abs(positions_xy - center) < config.validation_half_m).all(axis=1)
    return inside


def _in_runs(runs: tuple[str, ...], chosen: tuple[str, ...]) -> NDArray[np.bool_]:
    known = {name for run in runs for name in (run, world_of(run))}
    unknown = sorted(set(chosen) - known)
    if unknown:
        raise DatasetError(f'validation_runs: no run {unknown[0]!r}; choose from {sorted(known)}')
    return np.array([run in chosen or world_of(run) in chosen for run in runs], dtype=bool)


def spaced(dataset: PlaceDataset, spacing_m: float) -> NDArray[np.bool_]:
    """Return which places are at least `spacing_m` from the last kept one of their run."""
    kept = np.ones(len(dataset), dtype=bool)
    if spacing_m <= 0.0:
        return kept
    last_run, last = None, None
    for i, (run, position) in enumerate(zip(dataset.runs, dataset.positions, strict=True)):
        if run == last_run and np.linalg.norm(position - last) < spacing_m:
            kept[i] = False
        else:
            last_run, last = run, position
    return kept


def _oxford(config: DataConfig, root: Path) -> TrainingData:
    kind = config.source.removeprefix('oxford_')
    places = oxford_splits.training_dataset(root, kind)
    tuples = make_tuples(places.positions[:, :2], config.positive_m, config.non_negative_m)
    held_out = oxford_splits.training_dataset(root, kind, inside=True)
    sites = ['oxford'] * len(held_out)
    return TrainingData(places, tuples, _benchmark_held_out(held_out, sites, config))


def _wild_places(config: DataConfig, root: Path) -> TrainingData:
    places = wild_places_splits.training_dataset(root)
    tuples = wild_places_splits.training_tuples(places, config.positive_m, config.non_negative_m)
    held_out = wild_places_splits.training_dataset(root, split=wild_places_splits.TEST)
    sites = wild_places_splits.sites_of(held_out).tolist()
    return TrainingData(places, tuples, _benchmark_held_out(held_out, sites, config))


def _benchmark_held_out(
    places: PlaceDataset, sites: Sequence[str], config: DataConfig
) -> HeldOut | None:
    """Return the training places inside the test regions, all of them queries."""
    if not len(places):
        return None
    is_query = np.ones(len(places), dtype=bool)
    return HeldOut(places, is_query, config.validation_gap, config.positive_m, tuple(sites))


BENCHMARK_SPLITS: dict[str, Callable[[DataConfig, Path], TrainingData]] = {
    'oxford_baseline': _oxford,
    'oxford_refined': _oxford,
    'wild_places': _wild_places,
}
