"""Pairs of simulated scans of the same and of different places, with true relative poses."""

from dataclasses import dataclass, field, replace
import functools

import numpy as np

from lpr_ros.core.geometry.points import voxel_downsample
from lpr_ros.core.geometry.se3 import invert
from lpr_ros.core.types import Keyframe
from lpr_training.simulator import (
    SimulationConfig,
    load_sensor,
    make_drive,
    make_world,
    simulate_drive,
)

STORED_VOXEL_M = 0.2


@dataclass(frozen=True, eq=False)
class SimulatedDrive:
    """A drive with a scan every 2 m, simulated on demand."""

    simulation: object
    kept: dict = field(default_factory=dict)

    @property
    def T_world_sensor(self):
        return self.simulation.T_world_sensor

    def keyframe(self, index):
        if index not in self.kept:
            self.kept[index] = self._keyframe(index)
        return self.kept[index]

    def _keyframe(self, index):
        scan = self.simulation.scan(index)
        return Keyframe(
            id=index,
            session='a',
            stamp_ns=scan.stamp_ns,
            descriptor=np.zeros(1, np.float32),
            points=voxel_downsample(scan.points, STORED_VOXEL_M),
            T_odom_sensor=scan.T_odom_sensor,
            traveled_m=2.0 * index,
        )

    def true_pose(self, match, query):
        """Return T_match_query."""
        return invert(self.T_world_sensor[match]) @ self.T_world_sensor[query]

    def pairs(self, *, count, nearer_m=8.0, farther_m=0.0, seed=0):
        """Return pairs (match, query) in this distance range, at least 60 m of travel apart."""
        xy = self.T_world_sensor[:, :2, 3]
        distance_m = np.linalg.norm(xy[:, None] - xy[None], axis=2)
        later = np.arange(len(xy))[None] - np.arange(len(xy))[:, None] > 30
        found = np.argwhere(later & (distance_m < nearer_m) & (distance_m >= farther_m))
        chosen = np.random.default_rng(seed).permutation(len(found))[:count]
        return [(int(a), int(b)) for a, b in found[chosen]]


@functools.cache
def simulate(kind, sensor='hdl64', *, columns=512, seed=21, size_m=160.0, length_m=600.0):
    """Simulate a drive through a small world that the defaults were not tuned on."""
    world = make_world(kind, seed, size_m=size_m)
    drive = make_drive(world, length_m, seed=seed)
    config = SimulationConfig(spacing_m=2.0, workers=1)
    device = replace(load_sensor(sensor), columns=columns)
    return SimulatedDrive(simulate_drive(world, device, drive, config, seed=seed))
