"""Simulation of the scans of a drive, with a cache: simulating takes minutes, loading seconds."""

from dataclasses import dataclass, replace
import hashlib
from pathlib import Path

import numpy as np

from lpr_ros.core.files import atomic_file
from lpr_ros.core.io.npz_reader import Expected, NpzFile
from lpr_ros.core.types import Scan
from lpr_training.benchmarks.loops.recorded_drive import ODOMETRY, SPACING_M, RecordedDrive
from lpr_training.simulator import (
    Drive,
    OdometryConfig,
    Sensor,
    Simulation,
    SimulationConfig,
    World,
    load_sensor,
    simulate_drive,
)

COLUMNS = 1024  # per beam: the full resolution of the sensors, or half of it
ARRAYS = {'points': Expected('f', (None, 3)), 'offsets': Expected('i', (None,))}


@dataclass(frozen=True)
class Recorder:
    """Records drives; a cached one is found by what it was simulated from."""

    seed: int
    cache: Path | None = None  # folder; delete it after changing the scanner or the traffic

    def record(
        self,
        world: World,
        drive: Drive,
        sensor: str = 'hdl64',
        *,
        odometry: OdometryConfig = ODOMETRY,
    ) -> RecordedDrive:
        """Simulate the scans of a drive and its odometry."""
        device = replace(load_sensor(sensor), columns=COLUMNS)
        config = SimulationConfig(spacing_m=SPACING_M, odometry=odometry)
        simulation = simulate_drive(world, device, drive, config, seed=self.seed)
        if self.cache is None:
            scans = [Scan(s.points, s.stamp_ns, s.T_odom_sensor) for s in simulation]
        else:
            key = self._key(world, drive, device)
            scans = _cached_scans(simulation, self.cache / f'{world.kind}_{sensor}_{key}.npz')
        return RecordedDrive(world.kind, scans, simulation.T_world_sensor, odometry=odometry)

    def _key(self, world: World, drive: Drive, device: Sensor) -> str:
        """Return a hash of everything that points depend on, which odometry is not."""
        digest = hashlib.sha256(world.mesh().tobytes())
        digest.update(drive.xy.tobytes() + drive.time_s.tobytes())
        digest.update(repr((self.seed, world.seed, world.day, device, SPACING_M)).encode())
        return digest.hexdigest()[:16]


def _cached_scans(simulation: Simulation, path: Path) -> list[Scan]:
    """Return the scans with the points of a file, which is written first if it is missing."""
    if not path.is_file():
        clouds = [scan.points for scan in simulation]
        offsets = np.cumsum([0, *map(len, clouds)])
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as partial, partial.open('wb') as stream:
            np.savez(stream, points=np.concatenate(clouds), offsets=offsets)
    file = NpzFile(path, ARRAYS)
    clouds = np.split(file['points'], file['offsets'][1:-1])
    return [
        Scan(points, int(stamp_ns), T_odom)
        for points, stamp_ns, T_odom in zip(
            clouds, simulation.stamps_ns, simulation.T_odom_sensor, strict=True
        )
    ]
