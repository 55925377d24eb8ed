"""The inside of the whitened head on some clouds: what figures F.3 to F.5 draw."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
import torch

from lpr_ros.core.errors import ConfigError
from lpr_ros.core.model.place_model import PlaceModel
from lpr_ros.core.model.pooling import WhitenedSecondOrderPooling
from lpr_ros.core.model.quantise import quantise
from lpr_ros.core.model.whitening import covariances
from lpr_ros.core.sparse import collate
from lpr_training.cloud_input import input_for
from lpr_training.datasets.base import PlaceDataset
from lpr_training.describing import Indices


@dataclass(frozen=True, eq=False)
class Cells:
    """Of N clouds: the M cells before and after whitening, and the covariances between."""

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


def look_inside(
    model: PlaceModel, places: PlaceDataset, indices: Indices, batch: int = 16
) -> Cells:
    """Return the cells of some places; the model needs the whitened head."""
    pooling = model.pooling
    if not isinstance(pooling, WhitenedSecondOrderPooling):
        raise ConfigError(f'expected a whitened head, got {model.config.pooling.kind!r}')
    rules = input_for(places, model.config.input)
    device = next(model.parameters()).device
    parts: list[tuple[NDArray[np.float64], ...]] = []
    model.eval()
    for start in range(0, len(indices), batch):
        clouds = [quantise(places.points(int(i)), rules) for i in indices[start : start + batch]]
        with torch.inference_mode():
            features, counts = model.features(collate(clouds).to(device))
            x = pooling.second_order(features.float(), counts)
            spread = covariances(x, shrinkage=model.config.pooling.shrinkage)
            stages = (x.mT, pooling.whiten(x).mT, *spread)
        parts.append(tuple(stage.double().cpu().numpy() for stage in stages))
    return Cells(*(np.concatenate(stage) for stage in zip(*parts, strict=True)))
