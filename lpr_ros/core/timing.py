"""Time in the core: integer nanoseconds."""

NS_PER_S = 1_000_000_000
CLOCK_JUMP_NS = NS_PER_S  # stamps this much back are a clock set back or a bag begun again
