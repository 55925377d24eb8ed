"""A small drive for tests of the nodes: laps around a few walls, and an untrained network."""

from dataclasses import dataclass
import functools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
import torch
from toy_clouds import tiny_config

from lpr_ros.core.geometry.se3 import transform_points
from lpr_ros.core.model.checkpoint import from_model, save_checkpoint
from lpr_ros.core.model.descriptor_extractor import NetworkDescriptorExtractor
from lpr_ros.core.model.place_model import PlaceModel

START_NS = 1_700_000_000_000_000_000
STEP_NS = 500_000_000
STEPS_PER_LAP = 24
RADIUS_M = 12.0


@dataclass(frozen=True, eq=False)
class Step:
    """One scan of the drive, with its pose."""

    points: NDArray[np.float32]
    stamp_ns: int
    T_odom_sensor: NDArray[np.float64]


@functools.cache
def world() -> NDArray[np.float32]:
    """Return points on walls in all directions, and on the ground."""
    rng = np.random.default_rng(5)
    parts = []
    for _ in range(40):
        center, yaw = rng.uniform(-30.0, 30.0, 2), rng.uniform(0.0, np.pi)
        along, up = rng.uniform(-3.0, 3.0, 250), rng.uniform(0.0, rng.uniform(2.0, 6.0), 250)
        wall = np.stack([along * np.cos(yaw), along * np.sin(yaw), up], axis=1)
        parts.append(wall + np.array([*center, 0.0]))
    parts.append(np.column_stack([rng.uniform(-30.0, 30.0, (3000, 2)), np.zeros(3000)]))
    return np.concatenate(parts).astype(np.float32)


def step(index: int, *, start_ns: int = START_NS) -> Step:
    """Return scan number `index`; every lap visits the same places."""
    angle = 2.0 * np.pi * index / STEPS_PER_LAP
    T = np.eye(4)
    T[:2, 3] = RADIUS_M * np.cos(angle), RADIUS_M * np.sin(angle)
    T[2, 3] = 1.7
    heading = angle + np.pi / 2.0
    T[:2, :2] = [[np.cos(heading), -np.sin(heading)], [np.sin(heading), np.cos(heading)]]
    seen = transform_points(np.linalg.inv(T), world())
    near = np.linalg.norm(seen[:, :2], axis=1) < 20.0
    return Step(seen[near], start_ns + index * STEP_NS, T)


def pose_at(x_m: float) -> NDArray[np.float64]:
    """Return an unrotated pose at this x."""
    T = np.eye(4)
    T[0, 3] = x_m
    return T


def tiny_extractor() -> NetworkDescriptorExtractor:
    """Return an untrained network: the same scan still has the same descriptor."""
    model = PlaceModel(tiny_config()).eval()
    return NetworkDescriptorExtractor(model, device='cpu', fingerprint='tiny')


def write_weights(path: Path) -> Path:
    """Write the checkpoint of an untrained network."""
    torch.manual_seed(0)
    save_checkpoint(path, from_model(PlaceModel(tiny_config()).eval()))
    return path
