"""Configuration of a training run: model, data, loss, augmentation, optimizer."""

from dataclasses import dataclass, field

from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import ConfigError
from lpr_ros.core.model.config import ModelConfig
from lpr_training.train.augment import AugmentConfig
from lpr_training.train.losses import LossConfig


@dataclass(frozen=True)
class DataConfig(Config):
    """Training places, held-out places, and the radii that define the same place."""

    source: str = option(
        'kitti_bev',
        'Benchmark split (oxford_baseline, oxford_refined, wild_places) or name of a dataset, '
        'whose places are the same by distance',
    )
    runs: tuple[str, ...] = option((), 'Runs to train on, all if empty (not of benchmark splits)')
    spacing_m: float = option(
        0.0,
        'Minimum distance between training places of a run (not of benchmark splits)',
        unit='m',
        low=0.0,
    )
    positive_m: float = option(5.0, 'Maximum distance of positive pairs', unit='m', low=0.0)
    non_negative_m: float = option(20.0, 'Minimum distance of negative pairs', unit='m', low=0.0)
    neighbor_m: float = option(
        0.0,
        'Maximum distance of the nearby negative pair added after every pair of a batch; 0 '
        'disables it (not of benchmark splits)',
        unit='m',
        low=0.0,
    )
    revisit_m: float = option(
        0.0,
        'Prefer positives from another run or at least this traveled distance apart; 0 disables '
        'the preference (not of benchmark splits)',
        unit='m',
        low=0.0,
    )
    worlds_per_batch: int = option(
        0,
        'Number of worlds that a batch is drawn from; 0 draws from all (not of benchmark splits)',
        low=0,
    )
    validation_x: tuple[float, ...] = option(
        (), 'x of the centers of the held-out squares (not of benchmark splits)'
    )
    validation_y: tuple[float, ...] = option(
        (), 'y of the centers of the held-out squares (not of benchmark splits)'
    )
    validation_half_m: float = option(
        45.0, 'Half the side length of the held-out squares', unit='m', low=0.0
    )
    validation_runs: tuple[str, ...] = option(
        (), 'Runs, or worlds of runs, held out entirely (not of benchmark splits)'
    )
    validation_gap: int = option(
        300, 'Minimum age of a validation match relative to its query, in scans', low=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.positive_m <= self.non_negative_m:
            raise ConfigError(
                f'DataConfig: expected positive_m <= non_negative_m, got {self.positive_m} and '
                f'{self.non_negative_m}'
            )
        if self.neighbor_m and not self.neighbor_m > self.non_negative_m:
            raise ConfigError(
                f'DataConfig: expected neighbor_m 0 or above non_negative_m '
                f'{self.non_negative_m}, got {self.neighbor_m}'
            )
        if len(self.validation_x) != len(self.validation_y):
            raise ConfigError(
                f'DataConfig: expected validation_x and validation_y of equal length, got '
                f'{self.validation_x} and {self.validation_y}'
            )


@dataclass(frozen=True)
class GrowthConfig(Config):
    """Growth of the batch size once most triplets are learned (MinkLoc3D)."""

    below: float = option(
        0.0,
        'Grow the batch after an epoch with a smaller fraction of active triplets; 0 disables '
        'growth',
        low=0.0,
        high=1.0,
    )
    factor: float = option(1.4, 'Growth factor of the batch size', low=1.0)
    limit: int = option(256, 'Maximum batch size', low=4)

    def grown(self, batch_size: int, active: float) -> int:
        """Return the batch size after an epoch with this fraction of active triplets."""
        if active >= self.below:
            return batch_size
        return max(batch_size, min(int(batch_size * self.factor), self.limit))


@dataclass(frozen=True)
class MiningConfig(Config):
    """Extension of batches by the hardest negatives of their queries (PointNetVLAD)."""

    hardest: int = option(0, 'Number of hard negatives per query; 0 disables mining', low=0)
    sampled: int = option(4000, 'Number of random negatives to mine from', low=1)
    from_epoch: int = option(5, 'First epoch with mining', low=0)
    refresh_steps: int = option(
        700, 'Number of steps between updates of the descriptors used for mining', low=1
    )

    def is_active(self, epoch: int) -> bool:
        """Return whether negatives are mined in this epoch."""
        return self.hardest > 0 and epoch >= self.from_epoch

    def pairs_size(self, batch_size: int) -> int:
        """Return how many places of a batch are positive pairs; the rest are hard negatives."""
        return max(4, 2 * (batch_size // (2 + self.hardest)))


@dataclass(frozen=True)
class TrainConfig(Config):
    """Everything that determines the result of a training run."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    growth: GrowthConfig = field(default_factory=GrowthConfig)
    mining: MiningConfig = field(default_factory=MiningConfig)
    epochs: int = option(400, 'Number of passes over the training places', low=1)
    batch_size: int = option(2048, 'Initial number of places ranked against each other', low=4)
    chunk_size: int = option(
        128, 'Number of places per forward pass, which share batch statistics', low=2
    )
    multistage: bool = option(
        True,
        'Compute every chunk twice, which bounds memory for any batch size; false keeps all '
        'chunks in memory',
    )
    learning_rate: float = option(1e-3, 'Initial learning rate of Adam', low=0.0)
    min_learning_rate: float = option(
        1e-5, 'Learning rate at the end of the cosine schedule', low=0.0
    )
    weight_decay: float = option(1e-4, 'L2 penalty of Adam', low=0.0)
    warmup_epochs: int = option(0, 'Number of epochs with linear warm-up', low=0)
    validate_every: int = option(
        10, 'Number of epochs between validations; 0 disables validation', low=0
    )
    seed: int = option(1, 'Seed of weights, batches and augmentation', low=0)
    mixed_precision: bool = option(
        False, 'Run the backbone in bfloat16 on CUDA; the whitening stays in float64'
    )
    license: str = option('', 'License of the weights, stored in the checkpoint')

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.growth.below > 0.0 and self.loss.name == 'truncated_smooth_ap':
            raise ConfigError(
                'TrainConfig: growth needs a loss with active triplets, batch_hard_triplet or '
                f'lazy_quadruplet, got {self.loss.name!r}'
            )
