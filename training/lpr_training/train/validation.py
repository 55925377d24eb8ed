"""Held-out places: the recall that chooses the model, and the matches that calibrate it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
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

    Those of a benchmark are not turned: neither is anything when it is evaluated.
    Every `stride`-th place takes part; training places, where they are given, as distractors.
    """
    indices, positions, ends = _older_places(held_out, stride)
    descriptors = describe_places(
        describer,
        held_out.places,
        indices,
        yaw_seed=None if held_out.sites else yaw_seed,
        batch=batch,
        progress=progress,
    )
    matches, distances = nearest_before(descriptors, ends)
    asks = np.flatnonzero(held_out.is_query[indices] & (ends > 0))
    apart = ground_distance(positions[asks], positions[matches[asks]])
    nearest_past = distance_to_past(positions, ends)[asks]
    return HeldOutMatches(distances[asks], apart <= radius_m, nearest_past <= radius_m)


def what_chooses(held_out: HeldOut, stride: int) -> HeldOut | None:
    """Return the held-out places if they can choose a model, before hours are spent.

    Where a configuration holds out some that cannot, it is refused; of a benchmark, whose few
    runs may be all that is there, nothing is chosen by.
    """
    indices, positions, ends = _older_places(held_out, stride)
    is_revisit = distance_to_past(positions, ends) <= held_out.radius_m
    if (is_revisit & held_out.is_query[indices]).any():
        return held_out
    if held_out.sites:
        return None
    raise DatasetError(
        f'no held-out place is revisited: of {int(held_out.is_query.sum())} none has one at '
        f'least {held_out.gap} places older within {held_out.radius_m} m; choose others, or none'
    )


def _older_places(
    held_out: HeldOut, stride: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Return which places take part, where they are, and how many are old enough for each."""
    places = held_out.places
    indices = np.arange(0, len(places), stride)
    worlds = tuple((held_out.sites or places.runs)[i] for i in indices)
    ends = np.clip((indices - held_out.gap) // stride + 1, 0, None)
    return indices, apart_by_world(places.positions[indices, :2], worlds), ends
