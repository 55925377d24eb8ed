"""Intermediate results of the whitened pooling, plotted in figures F.3 to F.5."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
import torch

from lpr_ros.core.errors import ConfigError
from lpr_ros.core.model.place_model import PlaceModel
from lpr_ros.core.model.pooling import WhitenedSecondOrderPooling
from lpr_ros.core.model.quantize import quantize
from lpr_ros.core.model.whitening import covariances
from lpr_ros.core.sparse import collate
from lpr_training.datasets.base import PlaceDataset
from lpr_training.descriptors.extract import Indices
from lpr_training.descriptors.input_check import input_for


@dataclass(frozen=True, eq=False)
class Cells:
    """M cells of N clouds before and after whitening, and their covariances."""

    before: NDArray[np.float64]  # (N, M, C)
    after: NDArray[np.float64]  # (N, M, C)
    sample: NDArray[np.float64]  # (N, C, C), S
    shrunk: NDArray[np.float64]  # (N, C, C), S_R
    decomposed: NDArray[np.float64]  # (N, C, C), S_R + eps I = Q L Q'

    @property
    def whitened(self) -> NDArray[np.float64]:
        """Covariance of Z, (N, C, C)."""
        z = self.after
        return z.transpose(0, 2, 1) @ z / z.shape[1]


def head_activations(
    model: PlaceModel, places: PlaceDataset, indices: Indices, batch: int = 16
) -> Cells:
    """Return the cells of some places; the model must have whitened pooling."""
    pooling = model.pooling
    if not isinstance(pooling, WhitenedSecondOrderPooling):
        raise ConfigError(f"expected the pooling 'whitened', got {model.config.pooling.kind!r}")
    input_config = input_for(places, model.config.input)
    device = next(model.parameters()).device
    parts: list[tuple[NDArray[np.float64], ...]] = []
    model.eval()
    for start in range(0, len(indices), batch):
        clouds = [
            quantize(places.points(int(i)), input_config) for i in indices[start : start + batch]
        ]
        with torch.inference_mode():
            features, counts = model.features(collate(clouds).to(device))
            x = pooling.second_order(features.float(), counts)
            stage_covariances = covariances(x, shrinkage=model.config.pooling.shrinkage)
            stages = (x.mT, pooling.whiten(x).mT, *stage_covariances)
        parts.append(tuple(stage.double().cpu().numpy() for stage in stages))
    return Cells(*(np.concatenate(stage) for stage in zip(*parts, strict=True)))
