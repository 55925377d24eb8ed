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
        if len(self.validation_x) != len(self.validation_y):
            raise ConfigError(
                f'DataConfig: validation_x {self.validation_x} and validation_y '
                f'{self.validation_y} need the same length'
            )


@dataclass(frozen=True)
class TrainConfig(Config):
    """Everything that decides the outcome of a training run."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    epochs: int = option(400, 'passes over the training places', low=1)
    batch_size: int = option(2048, 'places ranked against each other', low=4)
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
