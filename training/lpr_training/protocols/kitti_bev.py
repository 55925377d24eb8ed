"""KITTI bird's-eye protocol: early frames are the database, later ones ask (BEVPlace, 2023)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_training.metrics import recall_at
from lpr_training.protocols.results import Result
from lpr_training.protocols.retrieval import nearest, true_hits

RADIUS_M = 5.0

# Sequence name -> database frames, query frames; half-open.
FRAME_RANGES: dict[str, tuple[range, range]] = {
    '00': (range(0, 3000), range(3200, 4541)),
    '02': (range(0, 3400), range(3600, 4661)),
    '05': (range(0, 1000), range(1200, 2751)),
    '06': (range(0, 600), range(800, 1101)),
}


@dataclass(frozen=True, eq=False)
class KittiBevResult(Result):
    """Recalls over the queries that have a true neighbour, and every query's best match."""

    recall_at_1: float
    recall_at_5: float
    recall_at_20: float
    queries: int  # with at least one database frame within the radius
    queries_skipped: int
    query_frames: NDArray[np.int64]  # (Q,), the evaluated ones
    match_frames: NDArray[np.int64]  # (Q,), their nearest database frame
    match_distances: NDArray[np.float64]  # (Q,)
    is_correct: NDArray[np.bool_]  # (Q,)


def default_ranges(name: str) -> tuple[range, range]:
    """Return database and query frames of a sequence by its name, e.g. 'kitti_bev_05'."""
    for sequence, ranges in FRAME_RANGES.items():
        if name.split('_')[-1] == sequence:
            return ranges
    raise DatasetError(
        f'no default frames for {name!r}: known are {sorted(FRAME_RANGES)}; give both ranges'
    )


def parse_range(text: str) -> range:
    """Read 'start:stop' (half-open) as written on the command line."""
    start, colon, stop = text.partition(':')
    if not (colon and start.isdecimal() and stop.isdecimal()) or int(start) >= int(stop):
        raise DatasetError(f'frame range {text!r}: expected start:stop with start < stop')
    return range(int(start), int(stop))


def evaluate_kitti_bev(
    descriptors: NDArray[np.floating],
    positions: NDArray[np.floating],
    database: range,
    queries: range,
    radius_m: float = RADIUS_M,
) -> KittiBevResult:
    """Evaluate descriptors (N, D) of one drive whose positions are (N, 2 or more), metres."""
    for what, frames in (('database', database), ('queries', queries)):
        if not (0 <= frames.start < frames.stop <= len(descriptors)):
            raise DatasetError(
                f'{what} frames {frames.start}:{frames.stop} are not within 0:{len(descriptors)}'
            )
    if len(positions) != len(descriptors):
        raise DatasetError(f'{len(descriptors)} descriptors but {len(positions)} positions')
    rows, columns = np.arange(queries.start, queries.stop), slice(database.start, database.stop)
    ranked, distances = nearest(descriptors[rows], descriptors[columns], k=20)
    return score_kitti_bev(ranked, distances, positions, database, rows, radius_m)


def score_kitti_bev(
    ranked: NDArray[np.integer],
    distances: NDArray[np.floating],
    positions: NDArray[np.floating],
    database: range,
    rows: NDArray[np.integer],
    radius_m: float = RADIUS_M,
) -> KittiBevResult:
    """Score a given ranking (Q, K), rows of the database range, as of any other descriptor."""
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
