"""Places are distinct in ordinary worlds and aliased in hard ones."""

from dataclasses import replace

import numpy as np

from lpr_training.simulator import (
    Day,
    Drive,
    SimulationConfig,
    load_sensor,
    make_drive,
    make_world,
    on_day,
    simulate_drive,
)
from lpr_training.simulator.geometry.polylines import left_normals


def descriptor(points: np.ndarray) -> np.ndarray:
    """Return the maximum height per cell of a polar grid, (rings, sectors)."""
    r, azimuth = np.hypot(points[:, 0], points[:, 1]), np.arctan2(points[:, 1], points[:, 0])
    ring = np.minimum(r / 2.0, 19).astype(int)
    sector = ((azimuth + np.pi) / (2 * np.pi) * 60).astype(int) % 60
    grid = np.zeros((20, 60))
    np.maximum.at(grid, (ring, sector), points[:, 2] + 2.0)
    return np.minimum(grid, 6.0)


def recall_next_day(kind: str, size_m: float) -> float:
    """Return the fraction of places recognized on another day, from the other lane."""
    world = make_world(kind, 6, size_m=size_m)
    sensor = replace(load_sensor('vlp16'), columns=300)
    config = SimulationConfig(spacing_m=10.0, traffic_per_km=3.0)
    there = make_drive(world, 400.0)
    back = there.xy[::-1] + 1.5 * left_normals(there.xy[::-1])
    tomorrow = on_day(world, Day(number=1))
    first = list(simulate_drive(world, sensor, there, config))
    second = list(simulate_drive(tomorrow, sensor, Drive(back, there.time_s), config, seed=1))
    seen = np.array([descriptor(scan.points) for scan in first])
    where = np.array([scan.T_world_sensor[:2, 3] for scan in first])
    hits = []
    for scan in second:
        far = np.linalg.norm(where - scan.T_world_sensor[:2, 3], axis=1)
        now = descriptor(scan.points)
        turned = [np.roll(now, k, axis=1) for k in range(60)]
        unlike = np.min([np.abs(seen - t).sum(axis=(1, 2)) for t in turned], axis=0)
        hits.append(far[unlike.argmin()] < 7.5)
    return float(np.mean(hits))


def test_places_are_distinct_in_ordinary_worlds_only():
    ordinary = recall_next_day('suburb', 120.0)
    hard = {
        'car_park': recall_next_day('car_park', 150.0),
        'identical_houses': recall_next_day('identical_houses', 200.0),
    }
    assert ordinary > 0.85
    assert max(hard.values()) < 0.7, hard
