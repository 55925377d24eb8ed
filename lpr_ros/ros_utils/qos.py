"""Quality of service of our topics, where publisher and subscriber must agree."""

from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

# The last message is kept for those who come later, as on a latched topic.
LATCHED = QoSProfile(
    depth=1,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)
# A back-end that starts late gets the loops it missed, and a busy one loses none.
LOOPS = QoSProfile(
    depth=1000,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)
# Odometry is small and every message counts for interpolation.
ODOMETRY = QoSProfile(depth=1000, reliability=ReliabilityPolicy.BEST_EFFORT)
