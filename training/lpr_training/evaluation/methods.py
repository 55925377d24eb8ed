"""What is evaluated: a trained checkpoint, or the handcrafted baseline, behind one interface."""

from abc import ABC, abstractmethod
from pathlib import Path
import time

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import CheckpointError, ConfigError
from lpr_ros.core.model.describer import Describer
from lpr_training import scan_context
from lpr_training.cloud_input import input_for
from lpr_training.datasets.base import COLUMNS, UNIT_CUBE, PlaceDataset
from lpr_training.datasets.kitti_bev import PIXEL_M
from lpr_training.describing import TIMED, Indices, describe_places, ms_per_scan, turned_clouds
from lpr_training.protocols.retrieval import Ranking, nearest, nearest_before
from lpr_training.scan_context import ScanContextConfig

METHODS = ('whitened-checkpoint', 'scan_context')
BEV_RANGE_M = 25.0  # the public bird's-eye images end here


class Method(ABC):
    """Describes places and finds the nearest among them."""

    name: str
    batch: int = 16
    progress: bool = True

    @abstractmethod
    def check(self, places: PlaceDataset) -> None:
        """Refuse clouds that the method cannot take, before any is read."""

    @abstractmethod
    def describe(
        self, places: PlaceDataset, indices: Indices, yaw_seed: int | None = None
    ) -> NDArray[np.float32]:
        """Return one descriptor per place, (n, ...)."""

    @abstractmethod
    def nearest(
        self, queries: NDArray[np.float32], database: NDArray[np.float32], k: int
    ) -> Ranking:
        """Return the nearest of the database, (Q, at most k), nearest first."""

    @abstractmethod
    def nearest_before(
        self, descriptors: NDArray[np.float32], ends: NDArray[np.integer]
    ) -> Ranking:
        """Return the nearest among 0..ends[q] of every row, (N,); index -1 without any."""

    @abstractmethod
    def ms_per_scan(self, places: PlaceDataset, indices: Indices) -> float:
        """Return the time to describe one scan alone."""


class CheckpointMethod(Method):
    """A trained model, compared by Euclidean distance."""

    def __init__(self, weights: Path, *, device: str = 'auto', name: str = ''):
        self.name = name or Path(weights).stem
        self.describer = Describer.load(weights, device=device)

    def check(self, places: PlaceDataset) -> None:
        """Refuse a dataset whose clouds are not what the checkpoint was made for."""
        try:
            input_for(places, self.describer.input)
        except ConfigError as error:
            raise CheckpointError(f'{self.name}: {error}') from error

    def describe(
        self, places: PlaceDataset, indices: Indices, yaw_seed: int | None = None
    ) -> NDArray[np.float32]:
        """Return (n, D) descriptors."""
        return describe_places(
            self.describer,
            places,
            indices,
            yaw_seed=yaw_seed,
            batch=self.batch,
            progress=self.progress,
        )

    def nearest(
        self, queries: NDArray[np.float32], database: NDArray[np.float32], k: int
    ) -> Ranking:
        """Search by brute force."""
        return nearest(queries, database, k)

    def nearest_before(
        self, descriptors: NDArray[np.float32], ends: NDArray[np.integer]
    ) -> Ranking:
        """Search the past of every row by brute force."""
        return nearest_before(descriptors, ends)

    def ms_per_scan(self, places: PlaceDataset, indices: Indices) -> float:
        """Return the median of quantising and one forward pass."""
        return ms_per_scan(self.describer, places, indices)


class ScanContextMethod(Method):
    """Scan Context with its ring-key search; no training."""

    name = 'Scan Context'

    def check(self, places: PlaceDataset) -> None:
        """Refuse clouds without a scale: the polar grid is in metres."""
        if places.clouds == UNIT_CUBE:
            raise ConfigError(
                'scan_context takes clouds in metres; these are scaled to [-1, 1], each its own'
            )

    def describe(
        self, places: PlaceDataset, indices: Indices, yaw_seed: int | None = None
    ) -> NDArray[np.float32]:
        """Return (n, rings, sectors) contexts."""
        config = _context_config(places)
        clouds = turned_clouds(places, indices, yaw_seed, progress=self.progress)
        return np.stack([scan_context.describe(points, config) for _, points in clouds])

    def nearest(
        self, queries: NDArray[np.float32], database: NDArray[np.float32], k: int
    ) -> Ranking:
        """Compare the candidates of the ring-key search in full; there may be fewer than k."""
        return scan_context.rank(queries, database, ScanContextConfig(candidates=k))

    def nearest_before(
        self, descriptors: NDArray[np.float32], ends: NDArray[np.integer]
    ) -> Ranking:
        """Compare the ring-key candidates of every row's past."""
        return scan_context.match_before(descriptors, ends, ScanContextConfig())[:2]

    def ms_per_scan(self, places: PlaceDataset, indices: Indices) -> float:
        """Return the median time to make a context."""
        config = _context_config(places)
        chosen = np.asarray(indices)[np.linspace(0, len(indices) - 1, TIMED).astype(np.int64)]
        times = []
        for points in [places.points(int(i)) for i in chosen]:
            started = time.perf_counter()
            scan_context.describe(points, config)
            times.append(1e3 * (time.perf_counter() - started))
        return float(np.median(times))


def _context_config(places: PlaceDataset) -> ScanContextConfig:
    """Return the published grid; on lifted columns, heights from the ground within the image."""
    if places.clouds == COLUMNS:
        return ScanContextConfig(max_range_m=BEV_RANGE_M, sensor_height_m=PIXEL_M / 2)
    return ScanContextConfig()


def make_method(
    method: str, weights: Path | None, *, device: str = 'auto', batch: int = 16
) -> Method:
    """Build a method by name; a checkpoint needs its weights."""
    if method == 'scan_context':
        return ScanContextMethod()
    if method not in METHODS:
        raise ConfigError(f'method {method!r} is not one of {list(METHODS)}')
    if weights is None:
        raise ConfigError(f'method {method!r} needs --weights FILE')
    built = CheckpointMethod(weights, device=device)
    built.batch = batch
    return built
