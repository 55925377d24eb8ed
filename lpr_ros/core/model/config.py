"""Configuration of a place model and its input; stored in every checkpoint."""

from dataclasses import dataclass, field
import math

from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import ConfigError
from lpr_ros.core.model.place_model import BACKBONES
from lpr_ros.core.model.pooling import POOLINGS
from lpr_ros.core.model.quantize import QUANTIZERS
from lpr_ros.core.model.whitening import GRADIENTS


@dataclass(frozen=True)
class InputConfig(Config):
    """How points are quantized for the backbone."""

    quantizer: str = option(
        'cartesian',
        'Quantizer of the points: cartesian voxels, polar voxels (sector, ring, height), bev '
        'column counts, or raw points',
        choices=QUANTIZERS,
    )
    step: tuple[float, float, float] = option(
        (0.4, 0.4, 0.4),
        'Cell size along x, y, z; for polar: sector in degrees, ring and height in meters',
        unit='m',
        low=1e-6,
        high=1e3,
    )
    min_range_m: float = option(
        0.0, 'Minimum range of points, to drop the vehicle itself', unit='m', low=0.0
    )
    max_range_m: float = option(
        0.0,
        'Maximum range of points, 0 for no limit; bev crops to a square of this half side, or '
        'to a disc with align_yaw',
        unit='m',
        low=0.0,
    )
    max_points: int = option(
        0, 'Maximum number of points, larger clouds are thinned evenly; 0 for no limit', low=0
    )
    bev_counts: str = option(
        'occupied',
        'Column counts of the bev quantizer: occupied = voxels of 0.4 m per column, if at least '
        'two; published = layers of 0.2 m above the ground, scaled to a maximum of 10, as in the '
        'public KITTI images',
        choices=('occupied', 'published'),
    )
    above_ground_m: float = option(
        0.0,
        'Minimum height above ground of points (cartesian quantizer); heights are then relative '
        'to the ground. 0 keeps the ground, which fills most voxels and tells places apart the '
        'least',
        unit='m',
        low=0.0,
    )
    align_yaw: bool = option(
        False,
        'Rotate the cloud so that its walls are parallel to x and y (cartesian and bev '
        'quantizers); with quarter_turns the descriptor is nearly independent of the heading',
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if 0.0 < self.max_range_m <= self.min_range_m:
            raise ConfigError(
                f'InputConfig: expected min_range_m < max_range_m, got {self.min_range_m} and '
                f'{self.max_range_m}'
            )
        if self.above_ground_m and self.quantizer != 'cartesian':
            raise ConfigError(
                f'InputConfig: above_ground_m needs a cartesian grid, got {self.quantizer!r}'
            )
        if self.align_yaw and not QUANTIZERS[self.quantizer].is_cartesian:
            raise ConfigError(
                f'InputConfig: align_yaw needs a cartesian or bev grid, got {self.quantizer!r}'
            )


@dataclass(frozen=True)
class BackboneConfig(Config):
    """The network that computes a feature for every voxel or point."""

    kind: str = option(
        'minkfpn',
        'Backbone: minkfpn (sparse feature pyramid) or pointnet (raw points)',
        choices=BACKBONES,
    )
    planes: tuple[int, ...] = option(
        (64, 128, 64, 32), 'Channels per level of minkfpn', low=1, high=4096
    )
    layers: tuple[int, ...] = option(
        (1, 1, 1, 1), 'Residual blocks per level of minkfpn', low=1, high=64
    )
    num_top_down: int = option(2, 'Upsampled levels of minkfpn', low=0, high=16)
    conv0_kernel_size: int = option(5, 'Size of the first kernel of minkfpn', choices=(3, 5, 7))
    feature_size: int = option(256, 'Output channels of minkfpn', low=1, high=4096)
    attention: bool = option(
        True, 'Channel attention in minkfpn, as in MinkLoc3Dv2; MinkLoc3D has none'
    )
    quarter_turns: bool = option(
        False,
        'Also process the cloud rotated by 90, 180 and 270 degrees and pool all four: the '
        'descriptor becomes invariant to quarter turns at four times the cost',
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
                f'BackboneConfig: num_top_down {self.num_top_down}, expected less than the '
                f'{len(self.planes)} levels of planes'
            )


@dataclass(frozen=True)
class PoolingConfig(Config):
    """How the features of a cloud are pooled to one descriptor."""

    kind: str = option(
        'whitened',
        'Pooling: whitened second-order pooling, or one of the baselines gem, netvlad and o2p',
        choices=POOLINGS,
    )
    channels: int = option(
        16, 'Channels C of projected features (whitened, o2p)', low=1, high=4096
    )
    clusters: int = option(16, 'Number of clusters M (whitened, netvlad)', low=1, high=4096)
    hidden: int = option(256, 'Hidden width of the MLPs (whitened, o2p)', low=1, high=8192)
    sigma_exponent: float = option(
        0.5,
        'Exponent of the scale sigma = M ** exponent that divides the whitened descriptor; the '
        'paper uses 0.5 on Oxford and 1 on Wild-Places',
        low=-8.0,
        high=8.0,
    )
    gradient: str = option(
        'svdpi', 'Gradient of the inverse matrix root in whitening', choices=GRADIENTS
    )
    shrinkage: bool = option(True, 'RBLW shrinkage of the covariance in whitening')
    output_dim: int = option(256, 'Descriptor size of netvlad', low=1, high=65536)

    @property
    def sigma(self) -> float:
        """Divisor of the whitened descriptor."""
        return math.pow(self.clusters, self.sigma_exponent)


@dataclass(frozen=True)
class ModelConfig(Config):
    """A place model: input, backbone and pooling."""

    input: InputConfig = field(default_factory=InputConfig)
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    pooling: PoolingConfig = field(default_factory=PoolingConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        quantizer = QUANTIZERS[self.input.quantizer]
        takes_voxels = BACKBONES[self.backbone.kind].takes_voxels
        if quantizer.gives_voxels != takes_voxels:
            accepted = [n for n, q in QUANTIZERS.items() if q.gives_voxels == takes_voxels]
            raise ConfigError(
                f'backbone {self.backbone.kind!r} does not take input {self.input.quantizer!r}; '
                f'expected one of the quantizers {accepted}'
            )
        if self.backbone.quarter_turns and not quantizer.is_cartesian:
            raise ConfigError(
                f'quarter_turns needs a cartesian or bev grid, got {self.input.quantizer!r}'
            )


def minkloc3dv2() -> ModelConfig:
    """Return MinkLoc3Dv2 with its GeM head, for clouds scaled to [-1, 1]."""
    return ModelConfig(
        input=InputConfig(step=(0.01, 0.01, 0.01)), pooling=PoolingConfig(kind='gem')
    )


def minkloc3d() -> ModelConfig:
    """Return MinkLoc3D with its GeM head, for clouds scaled to [-1, 1]."""
    return ModelConfig(
        input=InputConfig(step=(0.01, 0.01, 0.01)),
        backbone=BackboneConfig(
            planes=(32, 64, 64), layers=(1, 1, 1), num_top_down=1, attention=False
        ),
        pooling=PoolingConfig(kind='gem'),
    )


def wild_places() -> ModelConfig:
    """Return the five-level variant on polar voxels with the whitened pooling of the paper."""
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
