"""Random poses and loop closures, and a trip through CDR, for tests of message conversions."""

import numpy as np
from rclpy.serialization import deserialize_message, serialize_message

from lpr_ros.core.geometry.se3 import pose_from_euler
from lpr_ros.core.types import LoopClosure, Match

STAMP_NS = 1_700_000_000_123_456_789


def round_trip(message):
    """Return the message as a subscriber would receive it."""
    return deserialize_message(serialize_message(message), type(message))


def random_pose(rng):
    return pose_from_euler(rng.normal(scale=10.0, size=3), rng.uniform(-np.pi, np.pi, size=3))


def random_loop(rng, query_id=7, match_id=3):
    root = rng.normal(size=(6, 6))
    match = Match(match_id, 0.5, 0.9)
    return LoopClosure(
        query_id, match_id, random_pose(rng), root @ root.T + np.eye(6), 0.8, 500, match
    )
