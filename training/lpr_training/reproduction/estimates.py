"""Estimate the time per cloud and the disk space of a run on this machine."""

from dataclasses import dataclass
import time

import torch

from lpr_ros.core.model.descriptor_extractor import choose_device
from lpr_ros.core.model.place_model import PlaceModel
from lpr_ros.core.model.quantize import quantize
from lpr_ros.core.sparse import collate
from lpr_training.datasets.base import PlaceDataset
from lpr_training.descriptors.input_check import input_for
from lpr_training.train.config import TrainConfig

SAMPLE_CLOUDS = 4
# Copies of the weights on disk: two checkpoints, and two states of three (weights and moments).
WEIGHT_COPIES = 8


@dataclass(frozen=True)
class Cost:
    """Cost of one model."""

    seconds_to_train: float  # per cloud: forward twice and backward
    seconds_to_describe: float  # per cloud
    disk_bytes: float


def measure(config: TrainConfig, places: PlaceDataset, device: str) -> Cost:
    """Time a model on the first clouds of a dataset."""
    torch_device = choose_device(device)
    model = PlaceModel(config.model).to(torch_device)
    input_config = input_for(places, config.model.input)
    count = min(SAMPLE_CLOUDS, len(places))
    batch = collate([quantize(places.points(i), input_config) for i in range(count)]).to(
        torch_device
    )
    model(batch)  # warm-up
    started = time.perf_counter()
    with torch.no_grad():
        model(batch)
    forward = (time.perf_counter() - started) / count
    started = time.perf_counter()
    model(batch).sum().backward()
    forward_backward = (time.perf_counter() - started) / count
    weights = 4.0 * sum(p.numel() for p in model.parameters())
    return Cost(forward + forward_backward, forward, WEIGHT_COPIES * weights)
