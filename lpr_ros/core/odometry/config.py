"""Settings of LiDAR odometry; apart from it, so that they can be read without kiss_icp."""

from dataclasses import dataclass

from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import ConfigError


@dataclass(frozen=True)
class LidarOdometryConfig(Config):
    """Odometry from the point clouds (odometry_source lidar)."""

    max_range_m: float = option(
        100.0, 'Points farther away are not used for LiDAR odometry', unit='m', low=1.0,
        high=1000.0, fixed=True,
    )  # fmt: skip
    min_range_m: float = option(
        1.0, 'Points nearer than this, such as the robot itself, are not used for LiDAR odometry',
        unit='m', low=0.0, fixed=True,
    )  # fmt: skip
    voxel_size_m: float = option(
        0.0, 'Voxel size of the local map of LiDAR odometry; 0: a hundredth of max_range_m',
        unit='m', low=0.0, high=10.0, fixed=True,
    )  # fmt: skip
    min_overlap: float = option(
        0.6, 'Fraction of a scan that must agree with the scan before; below it, LiDAR odometry '
        'is lost and starts again', low=0.0, high=1.0, fixed=True,
    )  # fmt: skip
    min_constraint: float = option(
        0.02, 'Fraction of the surfaces that must face the least constrained direction; below it, '
        'LiDAR odometry is degenerate, as in a tunnel', low=0.0, high=0.33, fixed=True,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_range_m >= self.max_range_m:
            raise ConfigError(
                f'min_range_m {self.min_range_m}: expected less than max_range_m '
                f'{self.max_range_m}'
            )
