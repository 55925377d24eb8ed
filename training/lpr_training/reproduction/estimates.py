"""How long training and describing take here, from a few clouds, and how much disk a run needs."""

from dataclasses import dataclass
import time

import torch

from lpr_ros.core.model.describer import choose_device
from lpr_ros.core.model.place_model import PlaceModel
from lpr_ros.core.model.quantise import quantise
from lpr_ros.core.sparse import collate
from lpr_training.cloud_input import input_for
from lpr_training.config import TrainConfig
from lpr_training.datasets.base import PlaceDataset

SAMPLE = 4
# Of the weights: best and last checkpoint, state with two moments, the next state being written.
COPIES = 8


@dataclass(frozen=True)
class Cost:
    """What one model costs."""

    seconds_to_train: float  # per cloud: forward, then forward and backward
    seconds_to_describe: float  # per cloud
    disk_bytes: float


def measure(config: TrainConfig, places: PlaceDataset, device: str) -> Cost:
    """Time a model of this configuration on the first clouds of a dataset."""
    where = choose_device(device)
    model = PlaceModel(config.model).to(where)
    rules = input_for(places, config.model.input)
    count = min(SAMPLE, len(places))
    batch = collate([quantise(places.points(i), rules) for i in range(count)]).to(where)
    model(batch)  # warm-up
    started = time.perf_counter()
    with torch.no_grad():
        model(batch)
    forward = (time.perf_counter() - started) / count
    started = time.perf_counter()
    model(batch).sum().backward()
    both = (time.perf_counter() - started) / count
    weights = 4.0 * sum(p.numel() for p in model.parameters())
    return Cost(forward + both, forward, COPIES * weights)
