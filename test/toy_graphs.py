"""Laps on a circle and loop closures between them."""

from dataclasses import dataclass

import gtsam
import numpy as np

from lpr_ros.core.geometry.se3 import SWAP_POSITION_ROTATION, invert, pose_from_euler
from lpr_ros.core.pose_graph.graph import Edge
from lpr_ros.core.types import Keyframe, LoopClosure, Match

LAP = 200  # keyframes, 2 m apart
COVARIANCE = np.diag(np.square([0.02] * 3 + [0.002] * 3))


def laps(count):
    """Return poses along a hilly circle."""
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
        traveled_m=2.0 * index,
    )


def loop_closure(match, query, T_match_query):
    return LoopClosure(
        query, match, T_match_query, COVARIANCE, 0.8, 900, Match(match, 0.1, 0.9), log_odds=5.0
    )


def perturb(T, rng):
    sigma = np.sqrt(np.diag(COVARIANCE))
    motion = sigma * rng.standard_normal(6)
    return T @ pose_from_euler(motion[:3], motion[3:])


def error_m(poses, T_true):
    """Return the RMS position error, with the first poses aligned."""
    T = np.stack([poses[i] for i in range(len(T_true))])
    moved = T_true[0] @ invert(T[0]) @ T
    return float(np.sqrt(np.mean(np.sum((moved - T_true)[:, :3, 3] ** 2, axis=1))))


@dataclass(frozen=True, eq=False)
class G2oGraph:
    """A g2o file as gtsam reads it."""

    poses: dict  # (4, 4) by vertex
    edges: list  # in file order; `is_loop` if the IDs are not consecutive


def read_g2o(path):
    factors, values = gtsam.readG2o(str(path), True)
    edges = []
    for factor in (factors.at(i) for i in range(factors.size())):
        start, end = factor.keys()
        swap = np.ix_(SWAP_POSITION_ROTATION, SWAP_POSITION_ROTATION)
        covariance = factor.noiseModel().covariance()[swap]
        T = factor.measured().matrix()
        edges.append(Edge(start, end, T, covariance, abs(end - start) != 1))
    keys = values.keys()
    return G2oGraph({key: values.atPose3(key).matrix() for key in keys}, edges)
