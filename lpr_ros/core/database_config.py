"""The settings of the place database."""

from dataclasses import dataclass

from lpr_ros.core.config import Config, option


@dataclass(frozen=True)
class DatabaseConfig(Config):
    """What may match, how it is searched, and what a keyframe may cost."""

    top_k: int = option(10, 'most matches of one query', low=1, high=1000)
    exclude_s: float = option(
        30.0, 'keyframes of the same session younger than this do not match', unit='s', low=0.0
    )
    exclude_m: float = option(
        50.0, 'nor those of it less travelled ago, where there is odometry', unit='m', low=0.0
    )
    exclude_keyframes: int = option(0, 'nor so many of the newest of it', low=0)
    exact_mib: int = option(
        32, 'descriptors up to this size are all compared; above, an index picks', unit='MiB',
        low=0, fixed=True,
    )
    index_probe_share: float = option(
        0.4, 'least share of the cells of the index looked into by a query', low=0.0, high=1.0,
        fixed=True,
    )
    index_refined: int = option(
        128, 'picks of the index that are compared exactly', low=1, fixed=True
    )
    cloud_voxel_m: float = option(
        0.3, 'one point is kept per voxel of a stored cloud; 0 keeps all', unit='m', low=0.0
    )
    cloud_points: int = option(20_000, 'most points of a stored cloud (6 bytes each)', low=1)
    cloud_memory_mib: int = option(
        1024, 'clouds beyond this go to disk, oldest first; 0 keeps all', unit='MiB', low=0,
        fixed=True,
    )
    cloud_folder: str = option(
        '', 'where they go; empty is the folder for temporary files', fixed=True
    )
