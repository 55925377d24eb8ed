"""Held-out places: the recall that chooses the model, and the matches that calibrate it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.model.describer import Describer
from lpr_training.calibration import SAME_PLACE_M
from lpr_training.describing import describe_places
from lpr_training.protocols.retrieval import ground_distance, nearest_before
from lpr_training.protocols.sequence import distance_to_past
from lpr_training.training_data import HeldOut, apart_by_world


@dataclass(frozen=True, eq=False)
class HeldOutMatches:
    """The nearest older match of every held-out place that has any older place."""

    distances: NDArray[np.float64]  # (Q,), of descriptors
    is_same: NDArray[np.bool_]  # (Q,), the match lies within the radius
    is_revisit: NDArray[np.bool_]  # (Q,), some older place does

    def recall(self) -> float:
        """Return the share of the revisits that are matched right, NaN without a revisit."""
        revisits = int(self.is_revisit.sum())
        return int(self.is_same.sum()) / revisits if revisits else float('nan')


def match_held_out(
    describer: Describer,
    held_out: HeldOut,
    *,
    stride: int = 1,
    radius_m: float = SAME_PLACE_M,
    yaw_seed: int = 0,
    batch: int = 16,
    progress: bool = False,
) -> HeldOutMatches:
    """Match held-out places to all places at least the gap older, every cloud turned at random.

    Every `stride`-th place takes part. Training places are in the database as distractors.
    """
    places = held_out.places
    indices = np.arange(0, len(places), stride)
    descriptors = describe_places(
        describer, places, indices, yaw_seed=yaw_seed, batch=batch, progress=progress
    )
    ends = np.clip((indices - held_out.gap) // stride + 1, 0, None)
    worlds = tuple(places.runs[i] for i in indices)
    positions = apart_by_world(places.positions[indices, :2], worlds)
    matches, distances = nearest_before(descriptors, ends)
    asks = np.flatnonzero(held_out.is_query[indices] & (ends > 0))
    apart = ground_distance(positions[asks], positions[matches[asks]])
    nearest_past = distance_to_past(positions, ends)[asks]
    return HeldOutMatches(distances[asks], apart <= radius_m, nearest_past <= radius_m)
