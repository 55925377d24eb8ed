"""Descriptors of the places of a dataset: the one way training and evaluation make them."""

from collections.abc import Iterator, Sequence
import time

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from lpr_ros.core.errors import CloudError, DatasetError
from lpr_ros.core.model.describer import Describer
from lpr_ros.core.model.quantise import quantise
from lpr_training.augment import yaw_matrix
from lpr_training.cloud_input import input_for
from lpr_training.datasets.base import PlaceDataset

Indices = Sequence[int] | NDArray[np.integer]
WARM_UP = 3
TIMED = 20


def describe_places(
    describer: Describer,
    places: PlaceDataset,
    indices: Indices,
    *,
    yaw_seed: int | None = None,
    batch: int = 16,
    progress: bool = False,
) -> NDArray[np.float32]:
    """Return (n, D) descriptors; with a seed every cloud is first turned by a random yaw."""
    config = input_for(places, describer.input)
    described: list[NDArray[np.float32]] = [np.empty((0, describer.dim), np.float32)]
    clouds: list[NDArray[np.generic]] = []
    for index, points in turned_clouds(places, indices, yaw_seed, progress=progress):
        try:
            clouds.append(quantise(points, config))
        except CloudError as error:
            raise DatasetError(f'{places.runs[index]}/{places.names[index]}: {error}') from error
        if len(clouds) == batch:
            described.append(describer.describe_quantised(clouds))
            clouds = []
    if clouds:
        described.append(describer.describe_quantised(clouds))
    return np.concatenate(described)


def turned_clouds(
    places: PlaceDataset, indices: Indices, yaw_seed: int | None, *, progress: bool
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield (index, points), each cloud turned by its own random yaw if there is a seed."""
    rng = np.random.default_rng(yaw_seed)
    bar = tqdm(indices, desc='describe', unit='cloud', disable=not progress, mininterval=0.5)
    for index in bar:
        points = places.points(int(index))
        if yaw_seed is not None:
            points = points @ yaw_matrix(rng.uniform(-np.pi, np.pi)).T
        yield int(index), points


def ms_per_scan(describer: Describer, places: PlaceDataset, indices: Indices) -> float:
    """Return the median time to quantise and describe one scan alone, after a warm-up."""
    config = input_for(places, describer.input)
    chosen = np.asarray(indices)[np.linspace(0, len(indices) - 1, TIMED).astype(np.int64)]
    clouds = [places.points(int(i)) for i in chosen]
    times = []
    for points in [*clouds[:WARM_UP], *clouds]:
        started = time.perf_counter()
        describer.describe_quantised([quantise(points, config)])
        times.append(1e3 * (time.perf_counter() - started))
    return float(np.median(times[WARM_UP:]))
