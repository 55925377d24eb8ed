"""Hard-negative mining (PointNetVLAD)."""

import numpy as np
from numpy.typing import NDArray
import torch

from lpr_ros.core.model.descriptor_extractor import NetworkDescriptorExtractor
from lpr_ros.core.model.place_model import PlaceModel
from lpr_training.descriptors.extract import describe_places
from lpr_training.train.config import MiningConfig
from lpr_training.train.data import TrainingData
from lpr_training.train.distributed import Processes

DESCRIBE_BATCH = 16


class NegativeMiner:
    """Caches the descriptors of all training places to find hard negatives."""

    def __init__(self, config: MiningConfig, data: TrainingData, processes: Processes):
        self._config = config
        self._data = data
        self._processes = processes
        self._descriptors = np.empty((0, 0), np.float32)

    def refresh(self, model: PlaceModel, device: torch.device) -> None:
        """Describe every place with the current model, and leave it in training mode."""
        extractor = NetworkDescriptorExtractor(model, device=device.type)
        count = len(self._data.places)
        chunks = [
            np.arange(i, min(i + DESCRIBE_BATCH, count)) for i in range(0, count, DESCRIBE_BATCH)
        ]
        mine = [
            torch.from_numpy(describe_places(extractor, self._data.places, chunk))
            for chunk in self._processes.share(chunks)
        ]
        gathered = self._processes.gather(
            mine, [len(chunk) for chunk in chunks], torch.empty(0, extractor.dim, device=device)
        )
        self._descriptors = gathered.cpu().numpy()
        model.train()

    def extend(self, batch: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Append the hard negatives of the queries to pairs (query, positive, query, ...)."""
        added: list[int] = []
        for query in batch[::2]:
            is_candidate = np.ones(len(self._data.places), dtype=bool)
            is_candidate[self._data.tuples.non_negatives[query]] = False
            is_candidate[batch] = False
            is_candidate[added] = False
            sampled = rng.permutation(np.flatnonzero(is_candidate))[: self._config.sampled]
            apart = np.linalg.norm(self._descriptors[sampled] - self._descriptors[query], axis=1)
            added += sampled[np.argsort(apart)[: self._config.hardest]].tolist()
        return np.concatenate([batch, np.array(added, dtype=np.int64)])
