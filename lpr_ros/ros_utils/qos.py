"""QoS profiles of topics that several nodes publish or subscribe to."""

from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

# Late subscribers receive the last message, as on a latched ROS 1 topic.
LATCHED = QoSProfile(
    depth=1,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)
# A back-end that starts late receives the loop closures it missed, and a slow one loses none.
LOOPS = QoSProfile(
    depth=1000,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)
# Deep, because every odometry message is needed for interpolation.
ODOMETRY = QoSProfile(depth=1000, reliability=ReliabilityPolicy.BEST_EFFORT)
