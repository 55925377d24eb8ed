"""What a model is and what it takes as input: the configuration that a checkpoint carries."""

from dataclasses import dataclass, field
import math

from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import ConfigError


@dataclass(frozen=True)
class InputConfig(Config):
    """How points become what the backbone takes."""

    quantizer: str = option(
        'cartesian',
        'cartesian voxels, polar voxels (sector, ring, height), bev column counts, or raw points',
        choices=('cartesian', 'polar', 'bev', 'points'),
    )
    step: tuple[float, float, float] = option(
        (0.4, 0.4, 0.4),
        'cell size along x, y, z; for polar: sector in degrees, ring and height in metres',
        unit='m',
        low=1e-6,
        high=1e3,
    )
    min_range_m: float = option(
        0.0, 'points nearer than this (the vehicle itself) are dropped', unit='m', low=0.0
    )
    max_range_m: float = option(
        0.0,
        'points farther than this are dropped, 0 keeps all; a square of this half side for bev, '
        'a disc with align_yaw',
        unit='m',
        low=0.0,
    )
    max_points: int = option(
        0, 'a cloud of more points is thinned evenly to this many, 0 keeps all', low=0
    )
    bev_counts: str = option(
        'occupied',
        'bev only: occupied = voxels of 0.4 m per column where there are two; published = layers '
        'of 0.2 m above the ground, scaled to a maximum of 10, as in the public KITTI images',
        choices=('occupied', 'published'),
    )
    above_ground_m: float = option(
        0.0,
        'cartesian only: points lower than this above the ground are dropped and heights are '
        'counted from it, 0 leaves all as it is; the ground says little about the place and is '
        'most of the voxels',
        unit='m',
        low=0.0,
    )
    align_yaw: bool = option(
        False,
        'cartesian and bev: turn the cloud so that its walls lie along x and y; with '
        'quarter_turns the descriptor hardly depends on the heading then',
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if 0.0 < self.max_range_m <= self.min_range_m:
            raise ConfigError(
                f'InputConfig: need min_range_m < max_range_m, got {self.min_range_m} and '
                f'{self.max_range_m}'
            )
        if self.above_ground_m and self.quantizer != 'cartesian':
            raise ConfigError(
                f'InputConfig: above_ground_m needs a cartesian grid, got {self.quantizer!r}'
            )
        if self.align_yaw and self.quantizer not in ('cartesian', 'bev'):
            raise ConfigError(
                f'InputConfig: align_yaw needs a cartesian or bev grid, got {self.quantizer!r}'
            )


@dataclass(frozen=True)
class BackboneConfig(Config):
    """The network that gives every voxel (or point) a feature."""

    kind: str = option(
        'minkfpn', 'sparse pyramid, or PointNet on raw points', choices=('minkfpn', 'pointnet')
    )
    planes: tuple[int, ...] = option(
        (64, 128, 64, 32), 'minkfpn: channels per level', low=1, high=4096
    )
    layers: tuple[int, ...] = option(
        (1, 1, 1, 1), 'minkfpn: residual blocks per level', low=1, high=64
    )
    num_top_down: int = option(2, 'minkfpn: levels to come back up', low=0, high=16)
    conv0_kernel_size: int = option(5, 'minkfpn: size of the first kernel', choices=(3, 5, 7))
    feature_size: int = option(256, 'minkfpn: channels of the output', low=1, high=4096)
    attention: bool = option(True, 'minkfpn: channel attention (MinkLoc3Dv2) or none (MinkLoc3D)')
    quarter_turns: bool = option(
        False,
        'minkfpn: see the cloud also turned by 90, 180 and 270 degrees and pool all four, which '
        'makes the descriptor invariant to quarter turns at four times the cost',
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.planes) != len(self.layers) or not self.planes:
            raise ConfigError(
                f'BackboneConfig: planes {self.planes} and layers {self.layers} '
                'need the same length, at least 1'
            )
        if self.num_top_down >= len(self.planes):
            raise ConfigError(
                f'BackboneConfig: num_top_down {self.num_top_down} needs more than '
                f'{len(self.planes)} levels'
            )


@dataclass(frozen=True)
class PoolingConfig(Config):
    """How the features of a cloud become one descriptor."""

    kind: str = option(
        'whitened',
        'whitened second-order pooling, or a baseline',
        choices=('whitened', 'gem', 'netvlad', 'o2p'),
    )
    channels: int = option(16, 'whitened, o2p: C, projected feature width', low=1, high=4096)
    clusters: int = option(16, 'whitened, netvlad: M, number of clusters', low=1, high=4096)
    hidden: int = option(256, 'whitened, o2p: hidden width of the two MLPs', low=1, high=8192)
    sigma_exponent: float = option(
        0.5,
        'whitened: the descriptor is divided by sigma = M ** this; 0.5 on Oxford, 1 on '
        'Wild-Places',
        low=-8.0,
        high=8.0,
    )
    gradient: str = option(
        'svdpi', 'whitened: gradient of the matrix root', choices=('svdpi', 'exact', 'eigh')
    )
    shrinkage: bool = option(True, 'whitened: RBLW shrinkage of the covariance')
    output_dim: int = option(256, 'netvlad: descriptor size', low=1, high=65536)

    @property
    def sigma(self) -> float:
        """What the whitened descriptor is divided by."""
        return math.pow(self.clusters, self.sigma_exponent)


@dataclass(frozen=True)
class ModelConfig(Config):
    """A whole place model."""

    input: InputConfig = field(default_factory=InputConfig)
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    pooling: PoolingConfig = field(default_factory=PoolingConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        takes_points = self.backbone.kind == 'pointnet'
        if takes_points != (self.input.quantizer == 'points'):
            raise ConfigError(
                f'backbone {self.backbone.kind!r} does not take input {self.input.quantizer!r}; '
                "pointnet needs 'points', minkfpn one of the voxel quantizers"
            )
        if self.backbone.quarter_turns and self.input.quantizer not in ('cartesian', 'bev'):
            raise ConfigError(
                f'quarter_turns needs a cartesian or bev grid, got {self.input.quantizer!r}'
            )


def minkloc3dv2() -> ModelConfig:
    """Return MinkLoc3Dv2 with its own GeM head, on clouds scaled to [-1, 1]."""
    return ModelConfig(
        input=InputConfig(step=(0.01, 0.01, 0.01)), pooling=PoolingConfig(kind='gem')
    )


def minkloc3d() -> ModelConfig:
    """Return MinkLoc3D with its own GeM head, on clouds scaled to [-1, 1]."""
    return ModelConfig(
        input=InputConfig(step=(0.01, 0.01, 0.01)),
        backbone=BackboneConfig(
            planes=(32, 64, 64), layers=(1, 1, 1), num_top_down=1, attention=False
        ),
        pooling=PoolingConfig(kind='gem'),
    )


def wild_places() -> ModelConfig:
    """Return the five-level variant on polar voxels with the whitened head of the paper."""
    return ModelConfig(
        input=InputConfig(quantizer='polar', step=(0.8, 0.15, 0.15)),
        backbone=BackboneConfig(planes=(64, 128, 128, 128, 64), layers=(1, 1, 1, 1, 1)),
        pooling=PoolingConfig(sigma_exponent=1.0),
    )


def pointnetvlad() -> ModelConfig:
    """Return PointNetVLAD: PointNet on 4096 raw points, NetVLAD with 64 clusters."""
    return ModelConfig(
        input=InputConfig(quantizer='points', max_points=4096),
        backbone=BackboneConfig(kind='pointnet'),
        pooling=PoolingConfig(kind='netvlad', clusters=64),
    )


PRESETS = {
    'minkloc3d': minkloc3d,
    'minkloc3dv2': minkloc3dv2,
    'pointnetvlad': pointnetvlad,
    'wild_places': wild_places,
}
