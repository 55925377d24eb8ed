"""Recall on held-out places during training; the same code that evaluates."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from lpr_ros.core.model.config import InputConfig
from lpr_ros.core.model.describer import Describer
from lpr_ros.core.model.quantise import quantise
from lpr_training.augment import yaw_matrix
from lpr_training.datasets.base import PlaceDataset
from lpr_training.protocols.retrieval import nearest_before


def describe_places(
    describer: Describer,
    places: PlaceDataset,
    indices: Sequence[int],
    *,
    input_config: InputConfig,
    yaw_seed: int | None = None,
    batch: int = 16,
    progress: bool = False,
) -> NDArray[np.float32]:
    """Return (n, D) descriptors; with a seed every cloud is first turned by a random yaw."""
    rng = np.random.default_rng(yaw_seed)
    described: list[NDArray[np.float32]] = []
    clouds: list[NDArray[np.generic]] = []
    bar = tqdm(indices, desc='describe', unit='cloud', disable=not progress, mininterval=1.0)
    for index in bar:
        points = places.points(int(index))
        if yaw_seed is not None:
            points = points @ yaw_matrix(rng.uniform(-np.pi, np.pi)).T
        clouds.append(quantise(points, input_config))
        if len(clouds) == batch:
            described.append(describer.describe_quantised(clouds))
            clouds = []
    if clouds:
        described.append(describer.describe_quantised(clouds))
    return np.concatenate(described)


def held_out_recall(
    describer: Describer,
    places: PlaceDataset,
    is_query: NDArray[np.bool_],
    *,
    input_config: InputConfig,
    gap: int,
    stride: int,
    radius_m: float = 5.0,
    yaw_seed: int = 0,
) -> float:
    """Return recall@1 of held-out scans against all scans at least `gap` older, all turned.

    Every `stride`-th scan takes part. Training scans are in the database as distractors.
    """
    indices = np.arange(0, len(places), stride)
    descriptors = describe_places(
        describer, places, indices, input_config=input_config, yaw_seed=yaw_seed
    )
    limits = np.clip((indices - gap) // stride + 1, 0, None)
    positions = places.positions[indices, :2]
    right = total = 0
    ranked, _ = nearest_before(descriptors, limits)
    for row in np.flatnonzero(is_query[indices] & (limits > 0)):
        apart = np.linalg.norm(positions[: limits[row]] - positions[row], axis=1)
        if (apart <= radius_m).any():
            total += 1
            right += int(apart[ranked[row]] <= radius_m)
    return right / total if total else float('nan')
