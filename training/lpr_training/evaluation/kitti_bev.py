"""Protocol `kitti_bev`: early frames of a KITTI sequence are the database, later ones query it.

The frame ranges and the radius are those of BEVPlace (Luo et al., ICCV 2023).
"""

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_training.datasets.kitti_bev import KittiBevDataset
from lpr_training.evaluation.metrics import recall_at
from lpr_training.evaluation.paper_tables import KITTI_BEV, kitti_bev_table
from lpr_training.evaluation.protocol import Protocol, add_yaw_options, yaw_seed
from lpr_training.evaluation.report import Report, Result, percent, values_table
from lpr_training.evaluation.retrieval import nearest, true_hits

if TYPE_CHECKING:
    from lpr_training.evaluation.methods import Method

RADIUS_M = 5.0
CANDIDATES = 20
# Sequence -> database frames, query frames.
FRAME_RANGES: dict[str, tuple[range, range]] = {
    '00': (range(0, 3000), range(3200, 4541)),
    '02': (range(0, 3400), range(3600, 4661)),
    '05': (range(0, 1000), range(1200, 2751)),
    '06': (range(0, 600), range(800, 1101)),
}


@dataclass(frozen=True, eq=False)
class KittiBevResult(Result):
    """Recall over the queries that have a true neighbor, and the best match of each."""

    recall_at_1: float
    recall_at_5: float
    recall_at_20: float
    queries: int  # with at least one database frame within the radius
    queries_skipped: int
    query_frames: NDArray[np.int64]  # (Q,), those with a true neighbor
    match_frames: NDArray[np.int64]  # (Q,), their nearest database frame
    match_distances: NDArray[np.float64]  # (Q,)
    is_correct: NDArray[np.bool_]  # (Q,)


def default_ranges(name: str) -> tuple[range, range]:
    """Return database and query frames of a sequence by its name, e.g. 'kitti_bev_05'."""
    for sequence, ranges in FRAME_RANGES.items():
        if name.split('_')[-1] == sequence:
            return ranges
    raise DatasetError(
        f'no default frame ranges for {name!r}, only for sequences {sorted(FRAME_RANGES)}; '
        'give --database and --queries'
    )


def parse_range(text: str) -> range:
    """Parse a half-open range 'start:stop'."""
    start, colon, stop = text.partition(':')
    if not (colon and start.isdecimal() and stop.isdecimal()) or int(start) >= int(stop):
        raise DatasetError(f'frame range {text!r}: expected start:stop with start < stop')
    return range(int(start), int(stop))


def _check_ranges(database: range, queries: range, count: int) -> None:
    for name, frames in (('database', database), ('query', queries)):
        if not (0 <= frames.start < frames.stop <= count):
            raise DatasetError(f'{name} frames {frames.start}:{frames.stop} exceed 0:{count}')


def evaluate_kitti_bev(
    descriptors: NDArray[np.floating],
    positions: NDArray[np.floating],
    database: range,
    queries: range,
    radius_m: float = RADIUS_M,
) -> KittiBevResult:
    """Evaluate descriptors (N, D) of a drive at positions (N, 2 or more) in meters."""
    _check_ranges(database, queries, len(descriptors))
    if len(positions) != len(descriptors):
        raise DatasetError(f'{len(descriptors)} descriptors but {len(positions)} positions')
    rows, columns = np.arange(queries.start, queries.stop), slice(database.start, database.stop)
    ranked, distances = nearest(descriptors[rows], descriptors[columns], CANDIDATES)
    return score_kitti_bev(ranked, distances, positions, database, rows, radius_m)


def score_kitti_bev(
    ranked: NDArray[np.integer],
    distances: NDArray[np.floating],
    positions: NDArray[np.floating],
    database: range,
    rows: NDArray[np.integer],
    radius_m: float = RADIUS_M,
) -> KittiBevResult:
    """Score a ranking (Q, K) of database rows, made by any method."""
    database_xy = positions[database.start : database.stop]
    hits, true_counts = true_hits(ranked, positions[rows], database_xy, radius_m)
    known = true_counts > 0
    hits = hits[known]
    return KittiBevResult(
        recall_at_1=recall_at(hits, 1),
        recall_at_5=recall_at(hits, 5),
        recall_at_20=recall_at(hits, 20),
        queries=int(known.sum()),
        queries_skipped=int((~known).sum()),
        query_frames=rows[known].astype(np.int64),
        match_frames=ranked[known, 0] + database.start,
        match_distances=np.asarray(distances, dtype=np.float64)[known, 0],
        is_correct=hits[:, 0],
    )


def evaluate(
    method: 'Method',
    path: Path,
    *,
    database: range | None = None,
    queries: range | None = None,
    yaw_seed: int | None = None,
) -> Report:
    """Evaluate the file of one sequence; its name selects the default frame ranges."""
    places = KittiBevDataset(path)
    sequence = places.runs[0]
    if len(set(places.runs)) != 1:
        raise DatasetError(
            f'{path}: expected the file of one sequence, got {sorted(set(places.runs))}'
        )
    if database is None or queries is None:
        defaults = default_ranges(sequence)
        database, queries = database or defaults[0], queries or defaults[1]
    _check_ranges(database, queries, len(places))
    method.check(places)
    frames = np.array([*database, *queries])
    descriptors = method.describe(places, frames, yaw_seed)
    ranked, distances = method.nearest(
        descriptors[len(database) :], descriptors[: len(database)], CANDIDATES
    )
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
    from lpr_training.figures import plot_matches

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


def _add_options(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add('--database', metavar='A:B', help='database frames (default: by sequence name)')
    add('--queries', metavar='A:B', help='query frames (default: by sequence name)')
    add_yaw_options(parser, 'random')


def _run(args: Namespace, method: 'Method') -> Report:
    return evaluate(
        method,
        args.data,
        database=parse_range(args.database) if args.database else None,
        queries=parse_range(args.queries) if args.queries else None,
        yaw_seed=yaw_seed(args),
    )


PROTOCOL = Protocol("KITTI bird's-eye images, early frames against later ones", _add_options, _run)
