"""Every parameter of lpr_node: the pipeline's settings, and those of the node around it."""

from dataclasses import dataclass, field

from rclpy.qos import QoSProfile, ReliabilityPolicy

from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import ConfigError
from lpr_ros.core.model.descriptor_extractor import DEVICES
from lpr_ros.core.pipeline import PipelineConfig
from lpr_ros.slam_adapters.registry import ADAPTERS, adapters_config

RELIABILITIES = {
    'best_effort': ReliabilityPolicy.BEST_EFFORT,
    'reliable': ReliabilityPolicy.RELIABLE,
}
# Built here and not in the registry: another package registers its adapter before this import.
AdaptersConfig = adapters_config(ADAPTERS)


@dataclass(frozen=True)
class SubscriptionQosConfig(Config):
    """QoS of one subscription."""

    reliability: str = option(
        'best_effort', 'Reliability of the subscription; best_effort matches any publisher',
        choices=tuple(RELIABILITIES), fixed=True,
    )  # fmt: skip
    depth: int = option(
        2, 'Depth of the subscription queue; a deep queue delays scans, a depth of 1 drops some',
        low=1, high=10_000, fixed=True,
    )  # fmt: skip

    def profile(self) -> QoSProfile:
        """Return the profile that rclpy takes."""
        return QoSProfile(depth=self.depth, reliability=RELIABILITIES[self.reliability])


@dataclass(frozen=True)
class QosConfig(Config):
    """QoS of the subscriptions."""

    points: SubscriptionQosConfig = field(default_factory=SubscriptionQosConfig)
    odometry: SubscriptionQosConfig = field(
        default_factory=lambda: SubscriptionQosConfig(depth=1000)
    )


@dataclass(frozen=True)
class NodeConfig(PipelineConfig):
    """The parameters of lpr_node."""

    weights: str = option(
        '', 'Checkpoint file, or the name of shipped weights; empty selects the default weights',
        fixed=True,
    )  # fmt: skip
    device: str = option('auto', 'Device the network runs on', choices=DEVICES, fixed=True)
    device_fallback: bool = option(
        True, 'Fall back to the CPU if the device is missing, lost or out of memory', fixed=True
    )
    threads: int = option(
        1, 'CPU threads of the network; leave cores for the other nodes of the robot', low=1,
        high=64, fixed=True,
    )  # fmt: skip
    map_path: str = option(
        '', 'Map file of ~/save_map and ~/load_map; at run time it can only move within the '
        'folder it had at startup (~/.ros if it was empty)',
    )  # fmt: skip
    autosave_s: float = option(
        60.0, 'Interval between automatic saves of the map to map_path, and on shutdown; 0 saves '
        'only when ~/save_map is called', unit='s', low=0.0,
    )  # fmt: skip
    load_map: bool = option(
        False, 'Load the map at map_path on startup if the file exists', fixed=True
    )
    backends: tuple[str, ...] = option(
        (), 'SLAM back-ends that receive the loop closures', choices=tuple(ADAPTERS), fixed=True
    )
    use_odometry: bool = option(
        True, 'Use odometry; without it keyframes are taken by time only (keyframes.interval_s)',
        fixed=True,
    )  # fmt: skip
    odometry_source: str = option(
        'auto', 'Source of the odometry; auto: the topic if it is published, else tf if it has '
        'odom_frame -> base_frame, else lidar, which is LiDAR odometry from the clouds',
        choices=('auto', 'topic', 'tf', 'lidar'), fixed=True,
    )  # fmt: skip
    odom_frame: str = option('odom', 'Odometry frame of odometry_source tf and lidar', fixed=True)
    base_frame: str = option('base_link', 'Base frame of odometry_source tf and lidar', fixed=True)
    publish_tf: bool = option(
        False, 'Publish odom_frame -> base_frame on tf with odometry_source lidar', fixed=True
    )
    odometry_wait_s: float = option(
        0.5, 'Maximum time a scan waits for its odometry before it is dropped', unit='s', low=0.0,
        high=60.0,
    )  # fmt: skip
    odometry_gap_s: float = option(
        1.0, 'Maximum odometry gap to interpolate across', unit='s', low=0.001, fixed=True
    )
    extrinsic_source: str = option(
        'auto', 'Source of the LiDAR mounting pose; auto: tf, with the parameter extrinsic as '
        'fallback', choices=('auto', 'parameter', 'tf'), fixed=True,
    )  # fmt: skip
    extrinsic: tuple[float, float, float, float, float, float, float] = option(
        (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0),
        'Pose of the LiDAR in the base frame of the odometry: x y z qx qy qz qw', unit='m',
        fixed=True,
    )  # fmt: skip
    verification_queue_size: int = option(
        3, 'Keyframes queued for verification; when the queue is full the oldest is skipped',
        low=1, high=1000, fixed=True,
    )  # fmt: skip
    verification_timeout_s: float = option(
        60.0, 'Maximum time to verify one candidate before the verification process is restarted',
        unit='s', low=0.1, high=3600.0, fixed=True,
    )  # fmt: skip
    autostart: bool = option(
        False, 'Configure and activate on startup, without a lifecycle manager', fixed=True
    )
    qos: QosConfig = field(default_factory=QosConfig)
    adapters: AdaptersConfig = field(default_factory=AdaptersConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not any(self.extrinsic[3:]):
            raise ConfigError(
                f'extrinsic: {list(self.extrinsic)}, expected x y z and a nonzero quaternion'
            )
        if not self.use_odometry and self.keyframes.interval_s == 0.0:
            raise ConfigError(
                'use_odometry is false and keyframes.interval_s is 0: no keyframe would ever be '
                'taken; set keyframes.interval_s, e.g. to 0.5'
            )
