"""One training run as a value: model, data, loss, augmentation, optimiser."""

from dataclasses import dataclass, field

from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import ConfigError
from lpr_ros.core.model.config import ModelConfig
from lpr_training.augment import AugmentConfig
from lpr_training.losses import LossConfig


@dataclass(frozen=True)
class DataConfig(Config):
    """Which places are trained on, and which pairs of them are the same place."""

    source: str = option(
        'kitti_bev',
        'how the folder given by --data is read and split',
        choices=('kitti_bev', 'oxford_baseline', 'oxford_refined', 'wild_places', 'places'),
    )
    runs: tuple[str, ...] = option((), 'kitti_bev, places: only these runs; empty takes all')
    spacing_m: float = option(
        0.0, 'kitti_bev, places: keep a place every so many metres of a run', unit='m', low=0.0
    )
    positive_m: float = option(5.0, 'nearer places are the same', unit='m', low=0.0)
    non_negative_m: float = option(20.0, 'farther places are others', unit='m', low=0.0)
    neighbour_m: float = option(
        0.0, 'kitti_bev, places: in batches, every pair is followed by one that is another place '
        'and at most so far away, 0 leaves it to chance', unit='m', low=0.0,
    )  # fmt: skip
    revisit_m: float = option(
        0.0, 'kitti_bev, places: a place is paired with one of another run, or passed at least so '
        'far away along the way, as long as one of these is unused, 0 for any', unit='m', low=0.0,
    )  # fmt: skip
    worlds_per_batch: int = option(
        0, 'places, kitti_bev: batches are drawn from so many worlds at a time, 0 from all', low=0
    )
    validation_x: tuple[float, ...] = option((), 'kitti_bev, places: centres of held-out squares')
    validation_y: tuple[float, ...] = option((), 'the other coordinate of those centres')
    validation_half_m: float = option(45.0, 'half side of those squares', unit='m', low=0.0)
    validation_runs: tuple[str, ...] = option(
        (), 'kitti_bev, places: runs, or worlds of runs, that are held out whole'
    )
    validation_gap: int = option(
        300, 'validation: a match must be this many scans older than its query', low=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.positive_m <= self.non_negative_m:
            raise ConfigError(
                f'DataConfig: need positive_m <= non_negative_m, got {self.positive_m} and '
                f'{self.non_negative_m}'
            )
        if self.neighbour_m and not self.neighbour_m > self.non_negative_m:
            raise ConfigError(
                f'DataConfig: need neighbour_m above non_negative_m, {self.non_negative_m}, or 0, '
                f'got {self.neighbour_m}'
            )
        if len(self.validation_x) != len(self.validation_y):
            raise ConfigError(
                f'DataConfig: validation_x {self.validation_x} and validation_y '
                f'{self.validation_y} need the same length'
            )


@dataclass(frozen=True)
class GrowthConfig(Config):
    """Whether batches grow once most triplets are learned (MinkLoc3D)."""

    below: float = option(
        0.0, 'grow after an epoch with a smaller share of active triplets, 0 for never', low=0.0,
        high=1.0,
    )  # fmt: skip
    factor: float = option(1.4, 'how much larger the next batches are', low=1.0)
    limit: int = option(256, 'the largest batch', low=4)

    def grown(self, batch_size: int, active: float) -> int:
        """Return the batch size after an epoch with this share of active triplets."""
        if active >= self.below:
            return batch_size
        return max(batch_size, min(int(batch_size * self.factor), self.limit))


@dataclass(frozen=True)
class MiningConfig(Config):
    """Whether batches are filled up with the negatives that are hardest for their queries."""

    hardest: int = option(0, 'negatives per query, 0 for random batches only', low=0)
    sampled: int = option(4000, 'random negatives they are chosen from', low=1)
    from_epoch: int = option(5, 'first epoch with mining', low=0)
    refresh_steps: int = option(
        700, 'steps after which all places are described anew, and at every start of an epoch',
        low=1,
    )  # fmt: skip

    def is_on(self, epoch: int) -> bool:
        """Tell whether negatives are mined in this epoch."""
        return self.hardest > 0 and epoch >= self.from_epoch

    def pairs_size(self, batch_size: int) -> int:
        """Return how many of a batch are queries and partners; the rest are their negatives."""
        return max(4, 2 * (batch_size // (2 + self.hardest)))


@dataclass(frozen=True)
class TrainConfig(Config):
    """Everything that decides the outcome of a training run."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    growth: GrowthConfig = field(default_factory=GrowthConfig)
    mining: MiningConfig = field(default_factory=MiningConfig)
    epochs: int = option(400, 'passes over the training places', low=1)
    batch_size: int = option(2048, 'places ranked against each other, at the start', low=4)
    chunk_size: int = option(128, 'places in memory at once, with their own statistics', low=2)
    multistage: bool = option(
        True,
        'compute every chunk twice and keep none in memory (any batch size), or once and keep all',
    )
    learning_rate: float = option(1e-3, 'Adam, at the start', low=0.0)
    min_learning_rate: float = option(1e-5, 'at the end of the cosine', low=0.0)
    weight_decay: float = option(1e-4, 'L2, as Adam adds it to the gradient', low=0.0)
    warmup_epochs: int = option(0, 'epochs of linear warm-up', low=0)
    validate_every: int = option(10, 'epochs between validations, 0 for never', low=0)
    seed: int = option(1, 'of weights, batches and augmentation', low=0)
    mixed_precision: bool = option(False, 'bfloat16 backbone on CUDA; the whitening stays float64')
    licence: str = option('', 'of the weights, written into the checkpoint')

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.growth.below > 0.0 and self.loss.name == 'truncated_smooth_ap':
            raise ConfigError(
                'TrainConfig: growth counts active triplets; expected the loss '
                f'batch_hard_triplet or lazy_quadruplet, got {self.loss.name!r}'
            )
