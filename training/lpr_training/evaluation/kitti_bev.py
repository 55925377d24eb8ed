"""KITTI bird's-eye: early frames are the database, later ones ask, every scan turned."""

from pathlib import Path
from typing import Any

import numpy as np

from lpr_ros.core.errors import DatasetError
from lpr_training.datasets.kitti_bev import KittiBevDataset
from lpr_training.evaluation.methods import Method
from lpr_training.evaluation.report import Report, percent, values_table
from lpr_training.figures import plot_matches
from lpr_training.protocols.kitti_bev import default_ranges, score_kitti_bev
from lpr_training.tables import KITTI_BEV, kitti_bev_table

CANDIDATES = 20


def evaluate(
    method: Method,
    path: Path,
    *,
    database: range | None = None,
    queries: range | None = None,
    yaw_seed: int | None = None,
) -> Report:
    """Evaluate one file; frame ranges default by the name of the sequence."""
    places = KittiBevDataset(path)
    sequence = places.runs[0]
    if len(set(places.runs)) != 1:
        raise DatasetError(f'{path}: expected the file of one sequence, got {set(places.runs)}')
    if database is None or queries is None:
        usual = default_ranges(sequence)
        database, queries = database or usual[0], queries or usual[1]
    for what, given in (('database', database), ('queries', queries)):
        if given.stop > len(places):
            raise DatasetError(
                f'{what} frames {given.start}:{given.stop} are not within 0:{len(places)}'
            )
    method.check(places)
    frames = np.array([*database, *queries])
    descriptors = method.describe(places, frames, yaw_seed)
    stored, asked = descriptors[: len(database)], descriptors[len(database) :]
    ranked, distances = method.nearest(asked, stored, CANDIDATES)
    result = score_kitti_bev(
        ranked, distances, places.positions, database, np.arange(queries.start, queries.stop)
    )
    values = {
        'protocol': 'kitti_bev',
        'method': method.name,
        'sequence': sequence,
        'database': [database.start, database.stop],
        'query_frames_given': [queries.start, queries.stop],
        'yaw_seed': yaw_seed,
        'ms_per_scan': method.ms_per_scan(places, frames),
        **result.to_dict(),
    }
    figure = plot_matches(
        places.positions,
        result.query_frames,
        result.match_frames,
        result.is_correct,
        np.ones(result.queries, dtype=bool),
        title=f'KITTI {sequence}, {method.name}: recall@1 {percent(result.recall_at_1)}',
    )
    return Report(values, _markdown(values, sequence), {'matches': figure})


def _markdown(values: dict[str, Any], sequence: str) -> str:
    rows = [(f'recall@{k}', percent(values[f'recall_at_{k}'])) for k in (1, 5, 20)]
    rows += [(name, values[name]) for name in ('queries', 'queries_skipped', 'ms_per_scan')]
    text = values_table(f'KITTI {sequence}, {values["method"]}', rows)
    if sequence not in KITTI_BEV['BEVPlace'] or values['yaw_seed'] is None:
        return text
    recall = values['recall_at_1']
    ours = {} if recall is None else {values['method']: 100 * recall}
    return f'{text}\n{kitti_bev_table(ours, sequence).to_markdown()}'
