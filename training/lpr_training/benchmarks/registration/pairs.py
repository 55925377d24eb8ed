"""Pairs of scans with known relative pose: consecutive real scans, revisits, false pairs."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.geometry.points import voxel_downsample
from lpr_ros.core.geometry.se3 import invert, pose_from_euler, transform_points
from lpr_ros.core.types import Keyframe
from lpr_training.datasets.registry import make_dataset
from lpr_training.descriptors.scan_context import ScanContextConfig, compare, describe
from lpr_training.simulator import (
    Simulation,
    SimulationConfig,
    load_sensor,
    make_drive,
    make_world,
    simulate_drive,
)

STORED_VOXEL_M = 0.2  # as stored in the database
SPACING_M = 2.0
MIN_GAP = 30  # keyframes between two visits
REVISIT_M = 8.0
MIN_FALSE_PAIR_M = 25.0


@dataclass(frozen=True, eq=False)
class Pair:
    """Two keyframes and their true relative pose."""

    match: Keyframe
    query: Keyframe
    T_match_query: NDArray[np.float64]


def real_pairs(data: Path, run: str, apart: int, every: int, seed: int) -> Iterator[Pair]:
    """Yield real scans `apart` frames apart, the later one rotated by a random yaw."""
    scans = make_dataset('scans', data, runs=[run])
    rng = np.random.default_rng(seed)
    for i in range(0, len(scans) - apart, every):
        turn = pose_from_euler([0.0, 0.0, 0.0], [0.0, 0.0, rng.uniform(-np.pi, np.pi)])
        T_match_query = invert(scans.T_world_sensor[i]) @ scans.T_world_sensor[i + apart]
        points = transform_points(turn, scans.points(i + apart))
        yield Pair(
            _keyframe(i, scans.points(i)),
            _keyframe(i + apart, points),
            T_match_query @ invert(turn),
        )


def simulated_pairs(
    kind: str, sensor: str, count: int, seed: int, size_m: float
) -> tuple[list[Pair], list[Pair]]:
    """Return revisits, half of them in the opposite direction, and similar false pairs."""
    world = make_world(kind, seed, size_m=size_m)
    drive = make_drive(world, 1000.0, seed=seed)
    config = SimulationConfig(spacing_m=SPACING_M, workers=1)
    device = replace(load_sensor(sensor), columns=1024)
    simulation = simulate_drive(world, device, drive, config, seed=seed)
    revisits = _revisits(simulation.T_world_sensor, count, np.random.default_rng(seed))
    keyframes = {i: _simulated_keyframe(simulation, i) for pair in revisits for i in pair}
    T = simulation.T_world_sensor
    true, false = (
        [Pair(keyframes[a], keyframes[b], invert(T[a]) @ T[b]) for a, b in pairs]
        for pairs in (revisits, _similar_pairs(keyframes, T, count))
    )
    return true, false


def _revisits(
    T: NDArray[np.float64], count: int, rng: np.random.Generator
) -> list[tuple[int, int]]:
    """Draw nearby pairs (earlier, later), half in the same direction, half opposite."""
    distance = np.linalg.norm(T[:, None, :2, 3] - T[None, :, :2, 3], axis=2)
    numbers = np.arange(len(T))
    near = (distance < REVISIT_M) & (numbers[None] - numbers[:, None] > MIN_GAP)
    facing = T[:, :2, 0] @ T[:, :2, 0].T
    chosen: list[tuple[int, int]] = []
    for kind in (facing > 0.8, facing < -0.8):
        found = np.argwhere(near & kind)
        drawn = rng.permutation(len(found))[: count // 2]
        chosen += [(int(a), int(b)) for a, b in found[drawn]]
    return chosen


def _similar_pairs(
    keyframes: dict[int, Keyframe], T: NDArray[np.float64], count: int
) -> list[tuple[int, int]]:
    """Return the pairs of different places that are most similar by Scan Context."""
    ids = sorted(keyframes)
    contexts = np.stack([describe(keyframes[i].points, ScanContextConfig()) for i in ids])
    scored = []
    for row, b in enumerate(ids):
        distance, _ = compare(contexts[row], contexts[:row]) if row else (np.zeros(0), None)
        for a, value in zip(ids, distance, strict=False):
            if np.linalg.norm(T[a, :2, 3] - T[b, :2, 3]) > MIN_FALSE_PAIR_M:
                scored.append((float(value), a, b))
    return [(a, b) for _, a, b in sorted(scored)[:count]]


def _simulated_keyframe(simulation: Simulation, index: int) -> Keyframe:
    scan = simulation.scan(index)
    keyframe = _keyframe(index, voxel_downsample(scan.points, STORED_VOXEL_M))
    return replace(keyframe, T_odom_sensor=scan.T_odom_sensor, traveled_m=SPACING_M * index)


def _keyframe(index: int, points: NDArray[np.float32]) -> Keyframe:
    """Return a keyframe that has only points."""
    return Keyframe(index, 'benchmark', index, np.zeros(1, np.float32), points, None, 0.0)
