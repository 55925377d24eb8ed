"""Compute the descriptors of the places of a dataset, for training and evaluation."""

from collections.abc import Iterator, Sequence
import time

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from lpr_ros.core.errors import CloudError, DatasetError
from lpr_ros.core.geometry.se3 import yaw_matrix
from lpr_ros.core.model.descriptor_extractor import NetworkDescriptorExtractor
from lpr_ros.core.model.quantize import quantize
from lpr_training.datasets.base import PlaceDataset
from lpr_training.descriptors.input_check import input_for

Indices = Sequence[int] | NDArray[np.integer]
WARM_UP_SCANS = 3
TIMED_SCANS = 20


def describe_places(
    extractor: NetworkDescriptorExtractor,
    places: PlaceDataset,
    indices: Indices,
    *,
    yaw_seed: int | None = None,
    batch: int = 16,
    progress: bool = False,
) -> NDArray[np.float32]:
    """Return (n, D) descriptors; a seed rotates every cloud by a random yaw first."""
    config = input_for(places, extractor.input)
    described: list[NDArray[np.float32]] = [np.empty((0, extractor.dim), np.float32)]
    clouds: list[NDArray[np.generic]] = []
    for index, points in rotated_clouds(places, indices, yaw_seed, progress=progress):
        try:
            clouds.append(quantize(points, config))
        except CloudError as error:
            raise DatasetError(f'{places.runs[index]}/{places.names[index]}: {error}') from error
        if len(clouds) == batch:
            described.append(extractor.describe_quantized(clouds))
            clouds = []
    if clouds:
        described.append(extractor.describe_quantized(clouds))
    return np.concatenate(described)


def rotated_clouds(
    places: PlaceDataset, indices: Indices, yaw_seed: int | None, *, progress: bool
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield (index, points), each cloud rotated by its own random yaw if a seed is given."""
    rng = np.random.default_rng(yaw_seed)
    bar = tqdm(indices, desc='describe', unit='cloud', disable=not progress, mininterval=0.5)
    for index in bar:
        points = places.points(int(index))
        if yaw_seed is not None:
            points = points @ yaw_matrix(rng.uniform(-np.pi, np.pi)).T
        yield int(index), points


def ms_per_scan(
    extractor: NetworkDescriptorExtractor, places: PlaceDataset, indices: Indices
) -> float:
    """Return the median time to quantize and describe a single scan, after a warm-up."""
    config = input_for(places, extractor.input)
    chosen = np.asarray(indices)[np.linspace(0, len(indices) - 1, TIMED_SCANS).astype(np.int64)]
    clouds = [places.points(int(i)) for i in chosen]
    times = []
    for points in [*clouds[:WARM_UP_SCANS], *clouds]:
        started = time.perf_counter()
        extractor.describe_quantized([quantize(points, config)])
        times.append(1e3 * (time.perf_counter() - started))
    return float(np.median(times[WARM_UP_SCANS:]))
