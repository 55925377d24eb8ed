"""From a folder to what a run trains on: places, same-place tuples, held-out places."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_training.config import DataConfig
from lpr_training.datasets import make_dataset, oxford_sets, wild_places_sets
from lpr_training.datasets.base import PlaceDataset, Subset
from lpr_training.datasets.tuples import TrainingTuples, make_tuples, neighbours_within


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What chooses the model: runs in time order, one after the other, and which places ask."""

    places: PlaceDataset
    is_query: NDArray[np.bool_]  # those that are not trained on
    gap: int  # a match must be this many places older than its query
    radius_m: float = 5.0  # a nearer match is right
    sites: tuple[str, ...] = ()  # of a benchmark's places, which are not turned; else none


@dataclass(frozen=True, eq=False)
class TrainingData:
    """What is trained on, and what is held out to choose the model."""

    places: PlaceDataset
    tuples: TrainingTuples
    held_out: HeldOut | None
    neighbours: list[NDArray[np.int64]] | None = None  # of each place: others, but near
    positions: NDArray[np.float64] | None = None  # (N, 2) m, where distance alone makes tuples
    revisits: list[NDArray[np.int64]] | None = None  # of each place: positives of other visits


def open_training_data(config: DataConfig, root: Path) -> TrainingData:
    """Open and split the folder as the configuration says."""
    data = SOURCES[config.source](config, Path(root))
    if len(data.places) == 0:
        raise DatasetError(f'{root}: no training places left of source {config.source!r}')
    return data


def _by_radius(config: DataConfig, root: Path) -> TrainingData:
    """Split by held-out squares; tuples by distance in x-y within one world."""
    keyword = 'sequences' if config.source == 'kitti_bev' else 'runs'
    dataset = make_dataset(config.source, root, **{keyword: config.runs or None})
    held_out = _in_squares(dataset.positions[:, :2], config)
    held_out |= _in_runs(dataset.runs, config.validation_runs)
    kept = np.flatnonzero(spaced(dataset, config.spacing_m) & ~held_out)
    places = Subset(dataset, kept)
    positions = dataset.positions[kept, :2]
    # Worlds of different runs may share coordinates without being one place.
    apart = apart_by_world(positions, places.runs)
    tuples = make_tuples(apart, config.positive_m, config.non_negative_m)
    chooses = _held_out(dataset, held_out, config.validation_gap)
    near = _neighbours(apart, tuples, config.neighbour_m) if config.neighbour_m else None
    again = _revisits(apart, places.runs, tuples, config.revisit_m) if config.revisit_m else None
    return TrainingData(places, tuples, chooses, near, apart, again)


def _revisits(
    positions: NDArray[np.float64], runs: Sequence[str], tuples: TrainingTuples, way_m: float
) -> list[NDArray[np.int64]]:
    """Return for each place the positives of other runs, or this far away along the way driven."""
    driven = np.cumsum(np.linalg.norm(np.diff(positions, axis=0, prepend=positions[:1]), axis=1))
    number = np.unique(runs, return_inverse=True)[1]
    revisits = []
    for i in range(len(tuples)):
        found = tuples.positives[i]
        is_far = np.abs(driven[found] - driven[i]) >= way_m
        revisits.append(found[is_far | (number[found] != number[i])])
    return revisits


def _neighbours(
    positions: NDArray[np.float64], tuples: TrainingTuples, radius_m: float
) -> list[NDArray[np.int64]]:
    """Return for each place the negatives of it that lie within the radius."""
    within = neighbours_within(positions, radius_m, include_self=False)
    return [np.setdiff1d(within[i], tuples.non_negatives[i]) for i in range(len(tuples))]


def _held_out(
    dataset: PlaceDataset, is_query: NDArray[np.bool_], gap: int
) -> HeldOut | None:
    """Keep the worlds that hold a query, whole; places of other worlds can never be right."""
    asking = {world_of(dataset.runs[i]) for i in np.flatnonzero(is_query)}
    kept = np.flatnonzero([world_of(run) in asking for run in dataset.runs])
    return HeldOut(Subset(dataset, kept), is_query[kept], gap) if asking else None


def _in_squares(positions_xy: NDArray[np.float64], config: DataConfig) -> NDArray[np.bool_]:
    centres = zip(config.validation_x, config.validation_y, strict=True)
    inside = np.zeros(len(positions_xy), dtype=bool)
    for centre in centres:
        inside |= (np.abs(positions_xy - centre) < config.validation_half_m).all(axis=1)
    return inside


def _in_runs(runs: tuple[str, ...], chosen: tuple[str, ...]) -> NDArray[np.bool_]:
    known = {name for run in runs for name in (run, world_of(run))}
    unknown = sorted(set(chosen) - known)
    if unknown:
        raise DatasetError(f'validation_runs: no run {unknown[0]!r} among {sorted(known)}')
    return np.array([run in chosen or world_of(run) in chosen for run in runs], dtype=bool)


def world_of(run: str) -> str:
    """Return the world a run drives through: its name up to the first slash."""
    return run.partition('/')[0]


def apart_by_world(
    positions_xy: NDArray[np.float64], runs: tuple[str, ...]
) -> NDArray[np.float64]:
    """Move the worlds of different runs so far apart that no pair of them is near.

    Runs whose names agree up to the first slash are one world: `city_3/day_1`, `city_3/day_2`.
    """
    worlds = np.unique([world_of(run) for run in runs], return_inverse=True)[1]
    span = float(np.ptp(positions_xy, axis=0).max()) if len(positions_xy) else 0.0
    return positions_xy + np.stack([worlds * (2.0 * span + 1e4), np.zeros(len(worlds))], axis=1)


def spaced(dataset: PlaceDataset, spacing_m: float) -> NDArray[np.bool_]:
    """Mark a place whenever its run has moved this far since the last marked one."""
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
    places = oxford_sets.training_dataset(root, kind)
    tuples = make_tuples(places.positions[:, :2], config.positive_m, config.non_negative_m)
    inside = oxford_sets.training_dataset(root, kind, inside=True)
    sites = ['oxford'] * len(inside)
    return TrainingData(places, tuples, _all_ask(inside, sites, config))


def _wild_places(config: DataConfig, root: Path) -> TrainingData:
    places = wild_places_sets.training_dataset(root)
    tuples = wild_places_sets.training_tuples(places, config.positive_m, config.non_negative_m)
    inside = wild_places_sets.training_dataset(root, split=wild_places_sets.TEST)
    sites = wild_places_sets.sites_of(inside).tolist()
    return TrainingData(places, tuples, _all_ask(inside, sites, config))


def _all_ask(places: PlaceDataset, sites: Sequence[str], config: DataConfig) -> HeldOut | None:
    """Hold out the places in the test regions of a benchmark, if there are any."""
    if not len(places):
        return None
    asks = np.ones(len(places), dtype=bool)
    return HeldOut(places, asks, config.validation_gap, config.positive_m, tuple(sites))


SOURCES: dict[str, Callable[[DataConfig, Path], TrainingData]] = {
    'kitti_bev': _by_radius,
    'oxford_baseline': _oxford,
    'oxford_refined': _oxford,
    'places': _by_radius,
    'wild_places': _wild_places,
}
