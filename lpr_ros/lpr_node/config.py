"""Every parameter of lpr_node: the pipeline's settings and what the shell around it needs."""

from dataclasses import dataclass, field, replace

from rclpy.qos import QoSProfile, ReliabilityPolicy

from lpr_ros.backends.selection import ADAPTERS, AdaptersConfig
from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import ConfigError
from lpr_ros.core.model.describer import DEVICES
from lpr_ros.core.pipeline import PipelineConfig

RELIABILITIES = {
    'best_effort': ReliabilityPolicy.BEST_EFFORT,
    'reliable': ReliabilityPolicy.RELIABLE,
}


@dataclass(frozen=True)
class InputQosConfig(Config):
    """How a topic is subscribed to."""

    reliability: str = option(
        'best_effort', 'best effort takes from any publisher', choices=tuple(RELIABILITIES),
        fixed=True,
    )  # fmt: skip
    depth: int = option(
        2, 'messages that may wait: one would be lost when we are held up, many grow old', low=1,
        high=10_000, fixed=True,
    )  # fmt: skip

    def profile(self) -> QoSProfile:
        """Return it as rclpy takes it."""
        return QoSProfile(depth=self.depth, reliability=RELIABILITIES[self.reliability])


@dataclass(frozen=True)
class NodeConfig(PipelineConfig):
    """The parameters of lpr_node."""

    weights: str = option(
        '', 'checkpoint file, or the name of a shipped one; empty is the default one', fixed=True
    )
    device: str = option('auto', 'where the network runs', choices=DEVICES, fixed=True)
    device_fallback: bool = option(
        True, 'go on with the CPU when the device is not there, lost or out of memory', fixed=True
    )
    threads: int = option(
        1, 'threads of the network; two at most where other nodes need the cores', low=1, high=64,
        fixed=True,
    )  # fmt: skip
    session: str = option('robot', 'name of this robot and run in the map', fixed=True)
    map_path: str = option(
        '', 'file of save_map and load_map; live, only in the folder it had at start (or ~/.ros)'
    )
    autosave_s: float = option(
        60.0, 'the map is saved this often where map_path is set, and at the end; 0: by save_map '
        'only', unit='s', low=0.0,
    )  # fmt: skip
    load_map: bool = option(False, 'load map_path when it is there, at start', fixed=True)
    backends: tuple[str, ...] = option(
        (), 'SLAM back-ends that get the loops', choices=tuple(ADAPTERS), fixed=True
    )
    use_odometry: bool = option(
        True, 'without it keyframes go by time alone: set keyframes.interval_s', fixed=True
    )
    odometry_wait_s: float = option(
        0.5, 'a scan waits this long for its odometry, then it is dropped', unit='s', low=0.0,
        high=60.0,
    )  # fmt: skip
    odometry_gap_s: float = option(
        1.0, 'no pose is made up in a longer silence of odometry', unit='s', low=0.001, fixed=True
    )
    extrinsic_source: str = option(
        'auto', 'tf; or the parameter; auto asks tf and takes the parameter where it is silent',
        choices=('auto', 'parameter', 'tf'), fixed=True,
    )  # fmt: skip
    extrinsic: tuple[float, float, float, float, float, float, float] = option(
        (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0),
        'LiDAR on the body that odometry follows: x y z qx qy qz qw', unit='m', fixed=True,
    )  # fmt: skip
    waiting_keyframes: int = option(
        3, 'keyframes that may wait for verification; beyond, the oldest is not verified', low=1,
        high=1000, fixed=True,
    )  # fmt: skip
    verification_timeout_s: float = option(
        60.0, 'verification that takes longer is given up and begins anew with the next keyframe',
        unit='s', low=0.1, high=3600.0, fixed=True,
    )  # fmt: skip
    autostart: bool = option(
        False, 'configure and activate at start, without a lifecycle manager', fixed=True
    )
    points: InputQosConfig = field(default_factory=InputQosConfig)
    odometry: InputQosConfig = field(
        default_factory=lambda: replace(InputQosConfig(), depth=1000)
    )
    adapters: AdaptersConfig = field(default_factory=AdaptersConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not any(self.extrinsic[3:]):
            raise ConfigError(
                f'extrinsic: {list(self.extrinsic)}, expected x y z and a quaternion, not all 0'
            )
        if not self.use_odometry and self.keyframes.interval_s == 0.0:
            raise ConfigError(
                'use_odometry is false and keyframes.interval_s is 0: expected an interval above '
                '0, such as 0.5, as nothing else tells when a keyframe is due'
            )
