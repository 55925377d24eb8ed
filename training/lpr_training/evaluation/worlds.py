"""Converted or simulated worlds, ROOT/<world>/<drive>: drives of one world against each other."""

from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path

import numpy as np

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.markdown import markdown_table
from lpr_training.datasets.base import PlaceDataset, Subset
from lpr_training.datasets.places import PlacesDataset
from lpr_training.evaluation.methods import Method
from lpr_training.evaluation.report import Report, percent
from lpr_training.protocols.runs import Run
from lpr_training.protocols.worlds import WorldResult, evaluate_world
from lpr_training.training_data import world_of

COLUMNS = ('world', 'R@1', 'R@1 opposite', 'R@5', 'queries', 'opposite')


def open_worlds(
    root: Path, names: Sequence[str] | None = None, drives: str = '*'
) -> dict[str, PlaceDataset]:
    """Open the worlds under a root that have several drives, or those that are named.

    Of their drives those are taken whose names match the pattern, `*_hdl64`.
    """
    places = PlacesDataset(root)
    places = Subset(places, np.flatnonzero([fnmatch(run, drives) for run in places.runs]))
    worlds = [world_of(run) for run in places.runs]
    several = {w for w, count in Counter(map(world_of, set(places.runs))).items() if count > 1}
    missing = sorted(set(names or ()) - several)
    if missing or not several:
        raise DatasetError(
            f'{root}: expected {missing[0] if missing else "a world"} with two drives {drives!r} '
            f'or more, got those of {sorted(set(worlds))}'
        )
    return {
        world: Subset(places, np.flatnonzero(np.array(worlds) == world))
        for world in names or sorted(several)
    }


def evaluate(
    method: Method,
    worlds: Mapping[str, PlaceDataset],
    *,
    radius_m: float = 5.0,
    yaw_seed: int | None = None,
) -> Report:
    """Evaluate every world; the figures of all are means over their queries."""
    results = {name: _evaluate(method, w, radius_m, yaw_seed) for name, w in worlds.items()}
    asked = [r for r in results.values() if r.queries]
    first = next(iter(worlds.values()))
    values = {
        'protocol': 'places',
        'method': method.name,
        'radius_m': radius_m,
        'yaw_seed': yaw_seed,
        'recall_at_1': float(
            np.average([r.recall_at_1 for r in asked], weights=[r.queries for r in asked])
        )
        if asked
        else float('nan'),
        'queries': sum(r.queries for r in asked),
        'ms_per_scan': method.ms_per_scan(first, np.arange(len(first))),
        'worlds': {name: result.to_dict() for name, result in results.items()},
    }
    return Report(values, _markdown(method.name, results), {})


def _evaluate(
    method: Method, places: PlaceDataset, radius_m: float, yaw_seed: int | None
) -> WorldResult:
    method.check(places)
    descriptors = method.describe(places, np.arange(len(places)), yaw_seed)
    rows = {run: places.indices_of(run) for run in dict.fromkeys(places.runs)}
    drives = [
        Run(run, descriptors[at], places.positions[at], np.ones(len(at), dtype=bool))
        for run, at in rows.items()
    ]
    forward = [places.T_world_sensor[at, :3, 0] for at in rows.values()]
    return evaluate_world(drives, forward, radius_m, method.nearest)


def _markdown(name: str, results: Mapping[str, WorldResult]) -> str:
    rows = []
    for world, r in results.items():
        shares = (r.recall_at_1, r.recall_at_1_opposite, r.recall_at_5)
        rows.append((world, *map(percent, shares), r.queries, r.queries_opposite))
    return f'**{name}**\n\n' + markdown_table(COLUMNS, rows)
