"""Matches of held-out places, for model selection and calibration."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.model.descriptor_extractor import NetworkDescriptorExtractor
from lpr_training.datasets.base import apart_by_world
from lpr_training.descriptors.extract import describe_places
from lpr_training.evaluation.retrieval import find_revisits, ground_distance, nearest_before
from lpr_training.train.data import HeldOut

SAME_PLACE_M = 5.0


@dataclass(frozen=True, eq=False)
class HeldOutMatches:
    """The nearest match of every held-out place that has a candidate."""

    distances: NDArray[np.float64]  # (Q,), in descriptor space
    is_same: NDArray[np.bool_]  # (Q,), the match is within the radius
    is_revisit: NDArray[np.bool_]  # (Q,), a candidate is within the radius

    def recall(self) -> float:
        """Return the fraction of revisits with a correct match, NaN without revisits."""
        revisits = int(self.is_revisit.sum())
        return int(self.is_same.sum()) / revisits if revisits else float('nan')


def match_held_out(
    extractor: NetworkDescriptorExtractor,
    held_out: HeldOut,
    *,
    stride: int = 1,
    radius_m: float = SAME_PLACE_M,
    yaw_seed: int = 0,
    batch: int = 16,
    progress: bool = False,
) -> HeldOutMatches:
    """Match held-out places with all places that are at least the gap older.

    Clouds are rotated by random yaws, except those of benchmarks, which are evaluated without
    rotation. Only every `stride`-th place is used. Training places serve as distractors.
    """
    indices, positions, ends = _candidates(held_out, stride)
    descriptors = describe_places(
        extractor,
        held_out.places,
        indices,
        yaw_seed=None if held_out.sites else yaw_seed,
        batch=batch,
        progress=progress,
    )
    matches, distances = nearest_before(descriptors, ends)
    queries = np.flatnonzero(held_out.is_query[indices] & (ends > 0))
    apart = ground_distance(positions[queries], positions[matches[queries]])
    is_revisit = find_revisits(positions, ends, radius_m)[queries]
    return HeldOutMatches(distances[queries], apart <= radius_m, is_revisit)


def usable_for_selection(held_out: HeldOut, stride: int) -> HeldOut | None:
    """Return the held-out places if any is a revisit, to be checked before training starts.

    Without a revisit, a benchmark is trained without model selection (None), because a user may
    have only a few of its runs; a configured split raises DatasetError.
    """
    indices, positions, ends = _candidates(held_out, stride)
    is_revisit = find_revisits(positions, ends, held_out.radius_m)
    if (is_revisit & held_out.is_query[indices]).any():
        return held_out
    if held_out.sites:
        return None
    raise DatasetError(
        f'no held-out place is a revisit: none of {int(held_out.is_query.sum())} is within '
        f'{held_out.radius_m} m of one at least {held_out.gap} places older; change the '
        'validation settings of the configuration'
    )


def _candidates(
    held_out: HeldOut, stride: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Return the used places, their positions, and the number of candidates of each."""
    places = held_out.places
    indices = np.arange(0, len(places), stride)
    worlds = tuple((held_out.sites or places.runs)[i] for i in indices)
    ends = np.clip((indices - held_out.gap) // stride + 1, 0, None)
    return indices, apart_by_world(places.positions[indices, :2], worlds), ends
