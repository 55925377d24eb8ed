"""Hard negatives: places that look like a query though they are elsewhere (PointNetVLAD)."""

import numpy as np
from numpy.typing import NDArray
import torch

from lpr_ros.core.model.describer import Describer
from lpr_ros.core.model.place_model import PlaceModel
from lpr_training.config import MiningConfig
from lpr_training.describing import describe_places
from lpr_training.processes import Processes
from lpr_training.training_data import TrainingData

DESCRIBED_AT_ONCE = 16


class NegativeMiner:
    """Remembers the descriptors of all training places, and finds each query's worst mistakes."""

    def __init__(self, config: MiningConfig, data: TrainingData, processes: Processes):
        self._config = config
        self._data = data
        self._processes = processes
        self._descriptors = np.empty((0, 0), np.float32)

    def refresh(self, model: PlaceModel, device: torch.device) -> None:
        """Describe every place as the model would now; the model is left in training mode."""
        describer = Describer(model, device=device.type)
        count = len(self._data.places)
        chunks = [np.arange(i, min(i + DESCRIBED_AT_ONCE, count))
                  for i in range(0, count, DESCRIBED_AT_ONCE)]  # fmt: skip
        mine = [
            torch.from_numpy(describe_places(describer, self._data.places, chunk))
            for chunk in self._processes.share(chunks)
        ]
        gathered = self._processes.gather(
            mine, [len(chunk) for chunk in chunks], torch.empty(0, describer.dim, device=device)
        )
        self._descriptors = gathered.cpu().numpy()
        model.train()

    def extend(
        self, batch: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Return pairs (query, partner, query, ...) followed by the negatives of the queries."""
        added: list[int] = []
        for query in batch[::2]:
            is_free = np.ones(len(self._data.places), dtype=bool)
            is_free[self._data.tuples.non_negatives[query]] = False
            is_free[batch] = False
            is_free[added] = False
            negatives = np.flatnonzero(is_free)
            sampled = rng.permutation(negatives)[: self._config.sampled]
            apart = np.linalg.norm(
                self._descriptors[sampled] - self._descriptors[query], axis=1
            )
            added += sampled[np.argsort(apart)[: self._config.hardest]].tolist()
        return np.concatenate([batch, np.array(added, dtype=np.int64)])
