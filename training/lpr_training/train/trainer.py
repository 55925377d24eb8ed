"""Training with multistage backpropagation: any batch size with bounded memory.

The method is that of Revaud et al. (2019), as used by MinkLoc3Dv2 (Komorowski, 2022). Random
generators are seeded by (seed, epoch, batch), so that resuming needs no generator state and is
exact.
"""

from collections.abc import Iterator
from dataclasses import dataclass
import math

import numpy as np
from numpy.typing import NDArray
import torch
from torch import Tensor

from lpr_ros.core.errors import CloudError, ConfigError, LprError
from lpr_ros.core.model.place_model import PlaceModel
from lpr_ros.core.model.quantize import quantize
from lpr_ros.core.sparse import CloudBatch, collate
from lpr_training.datasets.base import UNIT_CUBE, world_of
from lpr_training.descriptors.input_check import crop_to_range, input_for
from lpr_training.train.augment import (
    augment_cloud,
    draw_batch_matrix,
    draw_moves,
    draw_stretch,
    view_from,
)
from lpr_training.train.config import TrainConfig
from lpr_training.train.data import TrainingData
from lpr_training.train.distributed import SINGLE_PROCESS, Processes
from lpr_training.train.losses import build_loss
from lpr_training.train.mining import NegativeMiner
from lpr_training.train.pair_distances import batch_masks, masks_by_distance
from lpr_training.train.sampling import insert_neighbors, order_by_world_groups, plan_epoch


class TrainingError(LprError):
    """Training cannot continue."""


class DivergenceError(TrainingError):
    """A loss or a gradient is not finite."""


@dataclass(frozen=True)
class BatchView:
    """Augmentation shared by the clouds of a batch."""

    rotation: NDArray[np.float32]  # (3, 3), of every cloud; may mirror
    deformation: NDArray[np.float32]  # (3, 3), of the world
    displacements: NDArray[np.float32]  # (B, 3), of each sensor, in the world frame


@dataclass(frozen=True)
class Step:
    """Result of one optimizer step."""

    batch: int
    batches: int
    clouds: int
    loss: float
    statistics: dict[str, float]


def learning_rate(config: TrainConfig, epoch: int) -> float:
    """Return the learning rate of an epoch: linear warm-up, then cosine annealing."""
    if epoch < config.warmup_epochs:
        return config.learning_rate * (epoch + 1) / config.warmup_epochs
    span = config.epochs + 1 - config.warmup_epochs
    phase = math.pi * (epoch - config.warmup_epochs) / span
    low, high = config.min_learning_rate, config.learning_rate
    return low + (high - low) * (1.0 + math.cos(phase)) / 2.0


class Trainer:
    """Trains a model epoch by epoch."""

    def __init__(
        self,
        config: TrainConfig,
        model: PlaceModel,
        data: TrainingData,
        *,
        device: torch.device,
        processes: Processes = SINGLE_PROCESS,
    ):
        self.config = config
        self.model = model.to(device)
        self.optimizer = torch.optim.Adam(
            model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        self._loss = build_loss(config.loss)
        self._data = data
        self._positives = [data.tuples.positives[i] for i in range(len(data.tuples))]
        self.device = device
        self._input = input_for(data.places, config.model.input)
        if config.augment.stretch > 0.0 and data.places.clouds == UNIT_CUBE:
            raise ConfigError(
                f'augment.stretch is {config.augment.stretch}, expected 0: the clouds of the '
                'dataset are scaled to [-1, 1]'
            )
        if config.augment.move > 0.0 and data.positions is None:
            raise ConfigError(
                f'augment.move is {config.augment.move}, expected 0: the tuples of source '
                f'{config.data.source!r} do not depend on distance alone'
            )
        self._processes = processes
        self._miner = NegativeMiner(config.mining, data, processes)
        self.batch_size = config.batch_size  # of the next epoch

    def run_epoch(self, epoch: int) -> Iterator[Step]:
        """Train one epoch, yielding after every optimizer step."""
        self.model.train()
        for group in self.optimizer.param_groups:
            group['lr'] = learning_rate(self.config, epoch)
        rng = np.random.default_rng([self.config.seed, epoch])
        mining = self.config.mining
        is_mining = mining.is_active(epoch)
        size = mining.pairs_size(self.batch_size) if is_mining else self.batch_size
        order = self._order(rng)
        batches = plan_epoch(self._positives, size, rng, order, self._data.other_visits)
        if not batches:
            raise TrainingError(
                f'expected at least 2 positive pairs for a batch, got '
                f'{sum(map(len, self._positives))} among {len(self._positives)} places'
            )
        active = 0.0
        for number, batch in enumerate(batches):
            seed = np.random.SeedSequence([self.config.seed, epoch, number])
            try:
                if is_mining and number % mining.refresh_steps == 0:
                    self._miner.refresh(self.model, self.device)
                if is_mining:
                    batch = self._miner.extend(batch, rng)
                loss, statistics = self._step(batch, seed)
            except (DivergenceError, torch.linalg.LinAlgError) as error:
                raise DivergenceError(
                    f'{error} in epoch {epoch}, batch {number} '
                    f'(places {batch[:4].tolist()}...); the last checkpoint is kept'
                ) from error
            active += statistics.get('active', 0.0) / len(batches)
            yield Step(number, len(batches), len(batch), loss, statistics)
        self.batch_size = self.config.growth.grown(self.batch_size, active)

    def _order(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the order of the places in an epoch."""
        worlds = [world_of(run) for run in self._data.places.runs]
        group_size = self.config.data.worlds_per_batch
        order = (
            order_by_world_groups(worlds, group_size, rng)
            if group_size
            else rng.permutation(len(worlds))
        )
        if self._data.neighbors is None:
            return order
        return insert_neighbors(order, self._data.neighbors, rng)

    def _step(
        self, batch: NDArray[np.int64], seed: np.random.SeedSequence
    ) -> tuple[float, dict[str, float]]:
        chunks, view = self._prepare(batch, seed)
        mine = self._processes.share(chunks)
        with torch.set_grad_enabled(not self.config.multistage):
            embeddings = [self._forward(chunk) for chunk in mine]
        values = [embedding.detach() for embedding in embeddings]
        empty = torch.empty(0, self.model.out_dim, device=self.device)
        gathered = self._processes.gather(values, [len(c.counts) for c in chunks], empty)
        gathered.requires_grad_()
        positives, negatives = self._masks(batch, view)
        loss, statistics = self._loss(gathered, positives, negatives)
        if not torch.isfinite(loss):
            raise DivergenceError(f'loss is {float(loss.detach())}')
        loss.backward()
        self.optimizer.zero_grad(set_to_none=False)
        gradients = gathered.grad.split([len(c.counts) for c in chunks])
        for number, gradient in enumerate(self._processes.share(gradients)):
            recompute = self.config.multistage
            embedding = self._forward(mine[number]) if recompute else embeddings[number]
            embedding.backward(gradient)
        self._processes.sum_gradients(self.model)
        self._check_gradients()
        self.optimizer.step()
        return float(loss.detach()), statistics

    def _check_gradients(self) -> None:
        """Raise DivergenceError before a step with non-finite gradients."""
        for name, parameter in self.model.named_parameters():
            if parameter.grad is not None and not torch.isfinite(parameter.grad).all():
                raise DivergenceError(f'the gradient of {name} is not finite')

    def _forward(self, chunk: CloudBatch) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.mixed_precision):
            return self.model(chunk)

    def _draw_view(self, count: int, rng: np.random.Generator) -> BatchView:
        augment = self.config.augment
        rotation, deformation = draw_batch_matrix(augment, rng), draw_stretch(augment, rng)
        return BatchView(rotation, deformation, draw_moves(augment, count, rng))

    def _prepare(
        self, batch: NDArray[np.int64], seed: np.random.SeedSequence
    ) -> tuple[list[CloudBatch], BatchView]:
        """Augment, quantize and collate; the chunks of other processes stay empty."""
        *seeds, view_seed = seed.spawn(len(batch) + 1)
        view = self._draw_view(len(batch), np.random.default_rng(view_seed))
        size = self.config.chunk_size
        chunks = []
        for number, start in enumerate(range(0, len(batch), size)):
            members = range(start, min(start + size, len(batch)))
            if not self._processes.owns(number):
                chunks.append(CloudBatch(torch.empty(0, 3), (0,) * len(members)))
                continue
            clouds = [
                self._cloud(int(batch[m]), np.random.default_rng(seeds[m]), view, m)
                for m in members
            ]
            chunks.append(collate(clouds).to(self.device))
        return chunks, view

    def _cloud(
        self, index: int, rng: np.random.Generator, view: BatchView, member: int
    ) -> NDArray[np.generic]:
        place, augment = self._data.places[index], self.config.augment
        points = place.points
        if augment.stretch > 0 or augment.move > 0:
            points = view_from(
                points, place.T_world_sensor, view.deformation, view.displacements[member]
            )
        points = crop_to_range(points, self._input, augment.shift)
        points = augment_cloud(points, augment, rng) @ view.rotation.T
        try:
            return quantize(points, self._input)
        except CloudError as error:
            raise TrainingError(f'{place.run}/{place.name}: {error}') from error

    def _masks(self, batch: NDArray[np.int64], view: BatchView) -> tuple[Tensor, Tensor]:
        tuples, positions, data = self._data.tuples, self._data.positions, self.config.data
        if positions is None:
            masks = batch_masks(batch, tuples.positives, tuples.non_negatives)
        else:
            displaced = positions[batch] @ view.deformation[:2, :2].T + view.displacements[:, :2]
            masks = masks_by_distance(displaced, data.positive_m, data.non_negative_m)
        positives, negatives = (torch.from_numpy(mask).to(self.device) for mask in masks)
        return positives, negatives
