"""Wild-Places intra-sequence: revisits of one walk, decided by thresholds in [0, 1]."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.detections import Detections, count_detections, sweep_detections
from lpr_training.protocols.results import Result
from lpr_training.protocols.retrieval import SearchBefore, ground_distance, nearest_before
from lpr_training.protocols.sequence import distance_to_past, exclude_recent

RADIUS_M = 3.0
WINDOW_S = 600.0
THRESHOLDS = 1000


@dataclass(frozen=True, eq=False)
class IntraResult(Result):
    """F1max and R@1 as the benchmark counts them; `f1_max_any` lifts its limit on thresholds."""

    f1_max: float
    recall_at_1: float
    roc_area: float
    f1_max_any: float  # over all thresholds, a wrong match at a revisit counted as missed
    queries: int
    revisits: int
    official_window: bool
    counts: Detections


def evaluate_wild_places_intra(
    descriptors: NDArray[np.floating],
    positions: NDArray[np.floating],
    stamps_ns: NDArray[np.integer],
    *,
    official_window: bool = False,
    radius_m: float = RADIUS_M,
    window_s: float = WINDOW_S,
    search: SearchBefore = nearest_before,
) -> IntraResult:
    """Evaluate one sequence in time order; a match is right nearer than the radius (strictly).

    `official_window` also admits the first frame inside the excluded window, as the published
    script does, to match published numbers. Frames in the first `window_s` do not ask.
    """
    ends = exclude_recent('time', window_s, positions, stamps_ns)
    is_query = ends > 0
    if official_window:
        ends = np.where(is_query, np.minimum(ends + 1, np.arange(len(ends))), 0)
    matches, distances = search(descriptors, ends)
    matches, distances = matches[is_query], distances[is_query]
    is_correct = ground_distance(positions[is_query], positions[matches]) < radius_m
    is_revisit = distance_to_past(positions, ends)[is_query] < radius_m
    thresholds = np.linspace(0.0, 1.0, THRESHOLDS)
    counts = count_detections(distances, is_correct, is_revisit, thresholds)
    revisits = int(is_revisit.sum())
    return IntraResult(
        f1_max=counts.f1_max(),
        recall_at_1=int(is_correct.sum()) / revisits if revisits else np.nan,
        roc_area=counts.roc_area(),
        f1_max_any=sweep_detections(distances, is_correct, is_revisit).f1_max(),
        queries=int(is_query.sum()),
        revisits=revisits,
        official_window=official_window,
        counts=counts,
    )
