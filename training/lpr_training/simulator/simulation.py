"""A drive through a world with a sensor on the roof, scan by scan."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.clock import NS_PER_S
from lpr_ros.core.config import Config, option
from lpr_training.datasets.records import RecordedScan
from lpr_training.simulator.drives import Drive
from lpr_training.simulator.odometry import OdometryConfig, drifting
from lpr_training.simulator.scanner import Scanner
from lpr_training.simulator.sensor import Sensor
from lpr_training.simulator.traffic import Traffic
from lpr_training.simulator.worlds import World

EPOCH_NS = 1_700_000_000 * NS_PER_S  # when day 0 starts
DAY_NS = 86_400 * NS_PER_S


@dataclass(frozen=True)
class SimulationConfig(Config):
    """How a drive is recorded."""

    spacing_m: float = option(0.0, 'scan every so far; 0: at the rate of the sensor', unit='m',
                              low=0.0)  # fmt: skip
    motion_distortion: bool = option(False, 'points are measured while the vehicle moves')
    traffic_per_km: float = option(5.0, 'moving vehicles per km of road', low=0.0, high=200.0)
    odometry: OdometryConfig = field(default_factory=OdometryConfig)
    workers: int = option(2, 'threads that cast rays; no effect on the result', low=1, high=64)


class Simulation:
    """Everything needed to make scan number i, independent of any other scan."""

    def __init__(
        self, world: World, sensor: Sensor, drive: Drive, config: SimulationConfig, seed: int
    ) -> None:
        self._sensor, self._config, self._seed = sensor, config, seed
        self._scanner = Scanner(world.mesh(), sensor)
        self._times = drive.sample_times(sensor.rate_hz, config.spacing_m)
        T_base_sensor = np.eye(4)
        T_base_sensor[2, 3] = sensor.mount_height_m
        T_start = drive.poses(world.ground, self._times) @ T_base_sensor
        ends = np.minimum(self._times + 1.0 / sensor.rate_hz, drive.duration_s)
        T_end = drive.poses(world.ground, ends) @ T_base_sensor
        self._T_world_sensor = T_start
        still = np.tile(np.eye(4), (len(self._times), 1, 1))
        moving = np.linalg.inv(T_start) @ T_end
        self._T_start_end = moving if config.motion_distortion else still
        rng = np.random.default_rng([seed, world.seed, world.day.number, 1])
        self._T_odom_sensor = drifting(T_start, config.odometry, rng)
        busy = config.traffic_per_km * world.recipe.traffic
        self._traffic = Traffic(world, busy, rng)
        self._start_ns = EPOCH_NS + world.day.number * DAY_NS

    def __len__(self) -> int:
        return len(self._times)

    @property
    def T_world_sensor(self) -> NDArray[np.float64]:
        """True poses of all scans, (N, 4, 4)."""
        return self._T_world_sensor

    @property
    def stamps_ns(self) -> NDArray[np.int64]:
        """When each scan starts, (N,)."""
        return self._start_ns + np.round(self._times * NS_PER_S).astype(np.int64)

    def scan(self, index: int) -> RecordedScan:
        """Make one scan; the same index always gives the same bytes."""
        rng = np.random.default_rng([self._seed, index, 2])
        pose, time_s = self._T_world_sensor[index], float(self._times[index])
        movers = self._traffic.mesh_at(time_s, pose[:2, 3], self._sensor.max_range_m)
        found = self._scanner.sweep(pose, self._T_start_end[index], rng, movers)
        sweep_s = 1.0 / self._sensor.rate_hz if self._config.motion_distortion else 0.0
        return RecordedScan(
            points=found.points,
            intensity=found.intensity,
            ring=found.ring,
            time_s=found.share * np.float32(sweep_s),
            stamp_ns=int(self.stamps_ns[index]),
            T_odom_sensor=self._T_odom_sensor[index],
            T_world_sensor=pose,
        )

    def __iter__(self) -> Iterator[RecordedScan]:
        """Yield scans in order; a few are computed ahead, never more."""
        ahead: deque[Future[RecordedScan]] = deque()
        with ThreadPoolExecutor(self._config.workers) as pool:
            try:
                for index in range(len(self)):
                    ahead.append(pool.submit(self.scan, index))
                    if len(ahead) > 2 * self._config.workers:
                        yield ahead.popleft().result()
                while ahead:
                    yield ahead.popleft().result()
            finally:
                for future in ahead:
                    future.cancel()


def simulate_drive(
    world: World,
    sensor: Sensor,
    drive: Drive,
    config: SimulationConfig | None = None,
    *,
    seed: int = 0,
) -> Simulation:
    """Simulate a drive: iterate the result for its scans; `len` says how many there will be."""
    return Simulation(world, sensor, drive, config or SimulationConfig(), seed)
