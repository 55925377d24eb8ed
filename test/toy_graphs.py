"""Laps on a circle with loops between them, for the pose graph and its node."""

import numpy as np

from lpr_ros.core.geometry import invert, pose_from_euler
from lpr_ros.core.records import Keyframe, LoopClosure, Match

LAP = 200  # keyframes, 2 m apart
COVARIANCE = np.diag(np.square([0.02] * 3 + [0.002] * 3))


def laps(count):
    """Round and round on a hilly circle."""
    angle = 2.0 * np.pi * np.arange(count) / LAP
    radius = 2.0 * LAP / (2.0 * np.pi)
    xyz = np.stack([radius * np.sin(angle), radius * (1 - np.cos(angle)), np.sin(angle)], axis=1)
    rpy = np.stack([0.02 * np.sin(angle), 0.05 * np.cos(angle), angle], axis=1)
    return pose_from_euler(xyz, rpy)


def keyframe(index, T, *, keyframe_id=None, session='a'):
    return Keyframe(
        id=index if keyframe_id is None else keyframe_id,
        session=session,
        stamp_ns=index * 10**9,
        descriptor=np.zeros(1, np.float32),
        points=np.zeros((0, 3), np.float32),
        T_odom_sensor=T,
        travelled_m=2.0 * index,
    )


def closure(match, query, T_match_query):
    return LoopClosure(query, match, T_match_query, COVARIANCE, 0.8, 900, Match(match, 0.1, 0.9))


def noisy(T, rng):
    sigma = np.sqrt(np.diag(COVARIANCE))
    motion = sigma * rng.standard_normal(6)
    return T @ pose_from_euler(motion[:3], motion[3:])


def error_m(poses, T_true):
    """Root mean square distance; both begin at the same pose."""
    T = np.stack([poses[i] for i in range(len(T_true))])
    moved = T_true[0] @ invert(T[0]) @ T
    return float(np.sqrt(np.mean(np.sum((moved - T_true)[:, :3, 3] ** 2, axis=1))))
