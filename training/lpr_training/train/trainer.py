"""Training by multistaged backpropagation: any batch size on bounded memory (SPEC B.3).

Every random draw comes from a generator seeded by (seed, epoch, batch), so that resuming after
an epoch needs no random state and continues exactly.
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
from lpr_ros.core.model.quantise import quantise
from lpr_ros.core.sparse import CloudBatch, collate
from lpr_training.augment import (
    augment_cloud,
    draw_batch_matrix,
    draw_moves,
    draw_stretch,
    see_from,
)
from lpr_training.cloud_input import in_reach, input_for
from lpr_training.config import TrainConfig
from lpr_training.datasets.base import UNIT_CUBE
from lpr_training.losses import build_loss
from lpr_training.mining import NegativeMiner
from lpr_training.pairs import batch_masks, masks_by_distance
from lpr_training.processes import ALONE, Processes
from lpr_training.sampling import each_with_a_neighbour, few_worlds_at_a_time, plan_epoch
from lpr_training.training_data import TrainingData, world_of


class TrainingError(LprError):
    """Training cannot go on; the message names the batch."""


class DivergenceError(TrainingError):
    """A loss or a gradient is not finite."""


@dataclass(frozen=True)
class BatchView:
    """How a whole batch sees the world."""

    turn: NDArray[np.float32]  # (3, 3), of every cloud
    world: NDArray[np.float32]  # (3, 3), of the world before anything is seen
    moves: NDArray[np.float32]  # (B, 3), of each sensor, in the frame of the world


@dataclass(frozen=True)
class Step:
    """What one optimiser step reports."""

    batch: int
    batches: int
    clouds: int
    loss: float
    statistics: dict[str, float]


def learning_rate(config: TrainConfig, epoch: int) -> float:
    """Return the cosine-annealed rate of an epoch, after a linear warm-up (SPEC G.6)."""
    if epoch < config.warmup_epochs:
        return config.learning_rate * (epoch + 1) / config.warmup_epochs
    span = config.epochs + 1 - config.warmup_epochs
    turn = math.pi * (epoch - config.warmup_epochs) / span
    low, high = config.min_learning_rate, config.learning_rate
    return low + (high - low) * (1.0 + math.cos(turn)) / 2.0


class Trainer:
    """Owns model, optimiser and data, and runs one epoch at a time."""

    def __init__(
        self,
        config: TrainConfig,
        model: PlaceModel,
        data: TrainingData,
        *,
        device: torch.device,
        processes: Processes = ALONE,
    ):
        self.config = config
        self.model = model.to(device)
        self.optimiser = torch.optim.Adam(
            model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        self._loss = build_loss(config.loss)
        self._data = data
        self._positives = [data.tuples.positives[i] for i in range(len(data.tuples))]
        self.device = device
        self._input = input_for(data.places, config.model.input)
        if config.augment.stretch > 0.0 and data.places.clouds == UNIT_CUBE:
            raise ConfigError(
                f'augment.stretch {config.augment.stretch} needs clouds in the frame of the '
                'sensor; these are scaled to [-1, 1], expected 0'
            )
        if config.augment.move > 0.0 and data.positions is None:
            raise ConfigError(
                f'augment.move {config.augment.move} needs places told apart by distance alone, '
                f'in metres; source {config.data.source!r} is not so, expected 0'
            )
        self._processes = processes
        self._miner = NegativeMiner(config.mining, data, processes)
        self.batch_size = config.batch_size  # of the next epoch

    def run_epoch(self, epoch: int) -> Iterator[Step]:
        """Train one epoch, yielding after every optimiser step."""
        self.model.train()
        for group in self.optimiser.param_groups:
            group['lr'] = learning_rate(self.config, epoch)
        rng = np.random.default_rng([self.config.seed, epoch])
        mining = self.config.mining
        is_mining = mining.is_on(epoch)
        size = mining.pairs_size(self.batch_size) if is_mining else self.batch_size
        order = self._order(rng)
        batches = plan_epoch(self._positives, size, rng, order, self._data.revisits)
        if not batches:
            raise TrainingError(
                f'no batch can be made: {len(self._positives)} places, '
                f'{sum(map(len, self._positives))} positive pairs; expected at least 2'
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
                    f'(places {batch[:4].tolist()}...); the last good checkpoint is kept'
                ) from error
            active += statistics.get('active', 0.0) / len(batches)
            yield Step(number, len(batches), len(batch), loss, statistics)
        self.batch_size = self.config.growth.grown(self.batch_size, active)

    def _order(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the order in which an epoch takes the places."""
        worlds = [world_of(run) for run in self._data.places.runs]
        together = self.config.data.worlds_per_batch
        order = (
            few_worlds_at_a_time(worlds, together, rng)
            if together
            else rng.permutation(len(worlds))
        )
        if self._data.neighbours is None:
            return order
        return each_with_a_neighbour(order, self._data.neighbours, rng)

    def _step(
        self, batch: NDArray[np.int64], seed: np.random.SeedSequence
    ) -> tuple[float, dict[str, float]]:
        chunks, view = self._prepare(batch, seed)
        mine = self._processes.share(chunks)
        with torch.set_grad_enabled(not self.config.multistage):
            embeddings = [self._forward(chunk) for chunk in mine]
        values = [embedding.detach() for embedding in embeddings]
        empty = torch.empty(0, self.model.out_dim, device=self.device)
        everyone = self._processes.gather(values, [len(c.counts) for c in chunks], empty)
        everyone.requires_grad_()
        positives, negatives = self._masks(batch, view)
        loss, statistics = self._loss(everyone, positives, negatives)
        if not torch.isfinite(loss):
            raise DivergenceError(f'loss is {float(loss.detach())}')
        loss.backward()
        self.optimiser.zero_grad(set_to_none=False)
        gradients = everyone.grad.split([len(c.counts) for c in chunks])
        for number, gradient in enumerate(self._processes.share(gradients)):
            again = self.config.multistage
            (self._forward(mine[number]) if again else embeddings[number]).backward(gradient)
        self._processes.sum_gradients(self.model)
        self._check_gradients()
        self.optimiser.step()
        return float(loss.detach()), statistics

    def _check_gradients(self) -> None:
        """Refuse a step that would make the weights, and the next checkpoint, useless."""
        for name, parameter in self.model.named_parameters():
            if parameter.grad is not None and not torch.isfinite(parameter.grad).all():
                raise DivergenceError(f'the gradient of {name} is not finite')

    def _forward(self, chunk: CloudBatch) -> Tensor:
        with torch.autocast(
            self.device.type, torch.bfloat16, enabled=self.config.mixed_precision
        ):
            return self.model(chunk)

    def _draw_view(self, count: int, rng: np.random.Generator) -> BatchView:
        augment = self.config.augment
        turn, world = draw_batch_matrix(augment, rng), draw_stretch(augment, rng)
        return BatchView(turn, world, draw_moves(augment, count, rng))

    def _prepare(
        self, batch: NDArray[np.int64], seed: np.random.SeedSequence
    ) -> tuple[list[CloudBatch], BatchView]:
        """Augment, quantise and collate; only this process's chunks hold points."""
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
            points = see_from(points, place.T_world_sensor, view.world, view.moves[member])
        points = in_reach(points, self._input, augment.shift)
        points = augment_cloud(points, augment, rng) @ view.turn.T
        try:
            return quantise(points, self._input)
        except CloudError as error:
            raise TrainingError(f'{place.run}/{place.name}: {error}') from error

    def _masks(self, batch: NDArray[np.int64], view: BatchView) -> tuple[Tensor, Tensor]:
        tuples, positions, data = self._data.tuples, self._data.positions, self.config.data
        if positions is None:
            masks = batch_masks(batch, tuples.positives, tuples.non_negatives)
        else:
            spots = positions[batch] @ view.world[:2, :2].T + view.moves[:, :2]
            masks = masks_by_distance(spots, data.positive_m, data.non_negative_m)
        positives, negatives = (torch.from_numpy(mask).to(self.device) for mask in masks)
        return positives, negatives
