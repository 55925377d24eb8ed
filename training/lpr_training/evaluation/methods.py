"""The methods that can be evaluated: a trained checkpoint, and Scan Context as a baseline."""

from abc import ABC, abstractmethod
from pathlib import Path
import time

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import CheckpointError, ConfigError
from lpr_ros.core.model.descriptor_extractor import NetworkDescriptorExtractor
from lpr_ros.core.resources import weights_path
from lpr_training.datasets.base import COLUMNS, UNIT_CUBE, PlaceDataset
from lpr_training.datasets.kitti_bev import PIXEL_M
from lpr_training.descriptors import scan_context
from lpr_training.descriptors.extract import (
    TIMED_SCANS,
    Indices,
    describe_places,
    ms_per_scan,
    rotated_clouds,
)
from lpr_training.descriptors.input_check import input_for
from lpr_training.descriptors.scan_context import ScanContextConfig
from lpr_training.evaluation.protocol import CHECKPOINT, SCAN_CONTEXT
from lpr_training.evaluation.retrieval import Ranking, nearest, nearest_before

BEV_RANGE_M = 25.0  # half the side of the public bird's-eye images


class Method(ABC):
    """Describes places and searches among the descriptors."""

    name: str
    batch: int = 16
    progress: bool = True

    @abstractmethod
    def check(self, places: PlaceDataset) -> None:
        """Raise ConfigError or CheckpointError if the method cannot use these clouds."""

    @abstractmethod
    def describe(
        self, places: PlaceDataset, indices: Indices, yaw_seed: int | None = None
    ) -> NDArray[np.float32]:
        """Return one descriptor per place (n, ...); a seed rotates each by a random yaw."""

    @abstractmethod
    def nearest(
        self, queries: NDArray[np.float32], database: NDArray[np.float32], k: int
    ) -> Ranking:
        """Return the nearest rows of the database (Q, at most k), nearest first."""

    @abstractmethod
    def nearest_before(
        self, descriptors: NDArray[np.float32], ends: NDArray[np.integer]
    ) -> Ranking:
        """Return the nearest of the first ends[q] rows to row q (N,); -1 without any."""

    @abstractmethod
    def ms_per_scan(self, places: PlaceDataset, indices: Indices) -> float:
        """Return the time to describe a single scan."""


class CheckpointMethod(Method):
    """A trained network; descriptors are compared by Euclidean distance."""

    def __init__(self, weights: Path, *, device: str = 'auto', name: str = ''):
        self.name = name or Path(weights).stem
        self.extractor = NetworkDescriptorExtractor.load(weights, device=device)

    def check(self, places: PlaceDataset) -> None:
        """Raise CheckpointError if the input settings of the checkpoint do not fit the clouds."""
        try:
            input_for(places, self.extractor.input)
        except ConfigError as error:
            raise CheckpointError(f'{self.name}: {error}') from error

    def describe(
        self, places: PlaceDataset, indices: Indices, yaw_seed: int | None = None
    ) -> NDArray[np.float32]:
        """Return (n, D) descriptors."""
        return describe_places(
            self.extractor,
            places,
            indices,
            yaw_seed=yaw_seed,
            batch=self.batch,
            progress=self.progress,
        )

    def nearest(
        self, queries: NDArray[np.float32], database: NDArray[np.float32], k: int
    ) -> Ranking:
        """Search exhaustively."""
        return nearest(queries, database, k)

    def nearest_before(
        self, descriptors: NDArray[np.float32], ends: NDArray[np.integer]
    ) -> Ranking:
        """Search the earlier rows exhaustively."""
        return nearest_before(descriptors, ends)

    def ms_per_scan(self, places: PlaceDataset, indices: Indices) -> float:
        """Return the median time of quantization and one forward pass."""
        return ms_per_scan(self.extractor, places, indices)


class ScanContextMethod(Method):
    """Scan Context (Kim and Kim, 2018) with its ring-key search."""

    name = 'Scan Context'

    def check(self, places: PlaceDataset) -> None:
        """Raise ConfigError for normalized clouds: the polar grid is in meters."""
        if places.clouds == UNIT_CUBE:
            raise ConfigError(
                'scan_context needs clouds in meters; the clouds of this dataset are scaled to '
                '[-1, 1] one by one'
            )

    def describe(
        self, places: PlaceDataset, indices: Indices, yaw_seed: int | None = None
    ) -> NDArray[np.float32]:
        """Return (n, rings, sectors) contexts."""
        config = _context_config(places)
        clouds = rotated_clouds(places, indices, yaw_seed, progress=self.progress)
        return np.stack([scan_context.describe(points, config) for _, points in clouds])

    def nearest(
        self, queries: NDArray[np.float32], database: NDArray[np.float32], k: int
    ) -> Ranking:
        """Rank the candidates of the ring-key search, which may be fewer than k."""
        return scan_context.rank(queries, database, ScanContextConfig(candidates=k))

    def nearest_before(
        self, descriptors: NDArray[np.float32], ends: NDArray[np.integer]
    ) -> Ranking:
        """Rank the ring-key candidates among the earlier rows."""
        return scan_context.match_before(descriptors, ends, ScanContextConfig())[:2]

    def ms_per_scan(self, places: PlaceDataset, indices: Indices) -> float:
        """Return the median time to build one context."""
        config = _context_config(places)
        chosen = np.asarray(indices)[
            np.linspace(0, len(indices) - 1, TIMED_SCANS).astype(np.int64)
        ]
        times = []
        for points in [places.points(int(i)) for i in chosen]:
            started = time.perf_counter()
            scan_context.describe(points, config)
            times.append(1e3 * (time.perf_counter() - started))
        return float(np.median(times))


def _context_config(places: PlaceDataset) -> ScanContextConfig:
    """Return the published grid, adapted to the extent and heights of bird's-eye columns."""
    if places.clouds == COLUMNS:
        return ScanContextConfig(max_range_m=BEV_RANGE_M, sensor_height_m=PIXEL_M / 2)
    return ScanContextConfig()


def make_method(
    method: str, weights: str | Path | None, *, device: str = 'auto', batch: int = 16
) -> Method:
    """Build a method by name; `weights` is a file, the name of shipped weights, or empty."""
    if method == SCAN_CONTEXT:
        return ScanContextMethod()
    if method != CHECKPOINT:
        raise ConfigError(f'method {method!r}: expected {CHECKPOINT} or {SCAN_CONTEXT}')
    checkpoint = CheckpointMethod(weights_path(weights), device=device)
    checkpoint.batch = batch
    return checkpoint
