"""One drive against its own past: detect revisits, never match the last few moments.

`ends[q]` is the number of frames old enough to be matched by frame q: candidates are 0..ends[q],
end excluded. Any exclusion by frames, time or distance travelled has this form.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.clock import NS_PER_S
from lpr_ros.core.detections import sweep_detections
from lpr_ros.core.errors import DatasetError
from lpr_training.protocols.results import Result
from lpr_training.protocols.retrieval import chunks, ground_distance, nearest_before

WINDOWS = ('frames', 'time', 'distance')


@dataclass(frozen=True, eq=False)
class SequenceResult(Result):
    """Detection of revisits by the top-1 match of every frame that has a candidate."""

    f1_max: float
    recall_at_full_precision: float
    recall_at_1: float  # right matches among revisits, no threshold
    queries: int
    revisits: int
    threshold_at_f1_max: float  # claim a revisit below this distance
    thresholds: NDArray[np.float64]  # (T,)
    precision: NDArray[np.float64]  # (T,)
    recall: NDArray[np.float64]  # (T,), share of the revisits found
    query_frames: NDArray[np.int64]  # (Q,)
    match_frames: NDArray[np.int64]  # (Q,)
    match_distances: NDArray[np.float64]  # (Q,)
    is_correct: NDArray[np.bool_]  # (Q,)
    is_revisit: NDArray[np.bool_]  # (Q,)


def exclude_recent(
    by: str,
    amount: float,
    positions: NDArray[np.floating],
    stamps_ns: NDArray[np.integer] | None = None,
) -> NDArray[np.int64]:
    """Return `ends`: frames at least `amount` older in frames, seconds or metres travelled."""
    if by not in WINDOWS or amount < 0:
        raise DatasetError(f'exclusion {amount!r} by {by!r}: expected >= 0 by one of {WINDOWS}')
    frames = np.arange(len(positions))
    if by == 'frames':
        latest, clock = frames - round(amount), frames
    elif by == 'time':
        clock = check_stamps(stamps_ns, len(positions))
        latest = clock - round(amount * NS_PER_S)
    else:
        steps = ground_distance(positions[1:], positions[:-1])
        clock = np.concatenate([np.zeros(min(len(frames), 1)), np.cumsum(steps)])
        latest = clock - amount
    # A frame is never its own past, even with nothing excluded.
    return np.minimum(np.searchsorted(clock, latest, side='right'), frames)


def check_stamps(stamps_ns: NDArray[np.integer] | None, count: int) -> NDArray[np.int64]:
    """Refuse stamps that are missing, of another length or not in time order."""
    if stamps_ns is None or len(stamps_ns) != count:
        got = 'none' if stamps_ns is None else len(stamps_ns)
        raise DatasetError(f'a time window needs {count} stamps, got {got}')
    stamps = np.asarray(stamps_ns, dtype=np.int64)
    backwards = np.flatnonzero(np.diff(stamps) < 0)
    if len(backwards):
        raise DatasetError(f'stamps go backwards after frame {backwards[0]}')
    return stamps


def evaluate_sequence(
    descriptors: NDArray[np.floating],
    positions: NDArray[np.floating],
    ends: NDArray[np.integer],
    radius_m: float,
) -> SequenceResult:
    """Match every frame to the nearest older descriptor and score it."""
    matches, distances = nearest_before(descriptors, ends)
    return score_sequence(matches, distances, positions, ends, radius_m)


def score_sequence(
    matches: NDArray[np.integer],
    distances: NDArray[np.floating],
    positions: NDArray[np.floating],
    ends: NDArray[np.integer],
    radius_m: float,
) -> SequenceResult:
    """Score top-1 matches (N,) of any descriptor; right within the radius, inclusive."""
    queries = np.flatnonzero(np.asarray(ends) > 0)
    nearest_past = distance_to_past(positions, ends)[queries]
    matches = np.asarray(matches, dtype=np.int64)[queries]
    distances = np.asarray(distances, dtype=np.float64)[queries]
    apart = ground_distance(positions[queries], positions[matches])
    is_correct = (matches >= 0) & (apart <= radius_m)
    is_revisit = nearest_past <= radius_m
    swept = sweep_detections(distances, is_correct, is_revisit)
    revisits = int(is_revisit.sum())
    precision, recall = swept.precision(), swept.recall()
    product, total = 2 * precision * recall, precision + recall
    f1 = np.divide(product, total, out=np.zeros(len(total)), where=total > 0)
    return SequenceResult(
        f1_max=swept.f1_max(),
        recall_at_full_precision=swept.recall_at_full_precision(),
        recall_at_1=int(is_correct.sum()) / revisits if revisits else np.nan,
        queries=len(queries),
        revisits=revisits,
        threshold_at_f1_max=float(swept.thresholds[f1.argmax()]) if len(f1) else np.nan,
        thresholds=swept.thresholds,
        precision=precision,
        recall=recall,
        query_frames=queries,
        match_frames=matches,
        match_distances=distances,
        is_correct=is_correct,
        is_revisit=is_revisit,
    )


def distance_to_past(
    positions: NDArray[np.floating], ends: NDArray[np.integer]
) -> NDArray[np.float64]:
    """Return how far each frame is from the nearest of its candidates, inf without any, (N,)."""
    columns = np.arange(len(positions))
    nearest = np.full(len(positions), np.inf)
    for part in chunks(len(positions), 40 * max(len(positions), 1)):
        apart = ground_distance(positions[part, None], positions[None])
        is_candidate = columns[None, :] < np.asarray(ends)[part, None]
        nearest[part] = np.where(is_candidate, apart, np.inf).min(axis=1, initial=np.inf)
    return nearest
