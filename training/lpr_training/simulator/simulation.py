"""Simulate a drive through a world with a roof-mounted LiDAR, scan by scan."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.config import Config, option
from lpr_ros.core.timing import NS_PER_S
from lpr_training.datasets.base import RecordedScan
from lpr_training.simulator.drive.drive import Drive
from lpr_training.simulator.drive.odometry import OdometryConfig, drifting
from lpr_training.simulator.drive.traffic import Traffic
from lpr_training.simulator.sensor.model import Sensor
from lpr_training.simulator.sensor.scanner import Scanner
from lpr_training.simulator.world.world import World

EPOCH_NS = 1_700_000_000 * NS_PER_S  # start of day 0
DAY_NS = 86_400 * NS_PER_S


@dataclass(frozen=True)
class SimulationConfig(Config):
    """Settings of a simulated recording."""

    spacing_m: float = option(
        0.0, 'Distance between scans; 0 scans at the rate of the sensor', unit='m', low=0.0
    )
    motion_distortion: bool = option(False, 'Distort scans by the motion of the vehicle')
    traffic_per_km: float = option(5.0, 'Moving vehicles per km of road', low=0.0, high=200.0)
    odometry: OdometryConfig = field(default_factory=OdometryConfig)
    workers: int = option(
        2, 'Ray casting threads; the result does not depend on them', low=1, high=64
    )


class Simulation:
    """A simulated drive; every scan can be computed independently of the others."""

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
        """Return the true poses of all scans, (N, 4, 4)."""
        return self._T_world_sensor

    @property
    def T_odom_sensor(self) -> NDArray[np.float64]:
        """Return the odometry of all scans, (N, 4, 4)."""
        return self._T_odom_sensor

    @property
    def stamps_ns(self) -> NDArray[np.int64]:
        """Return the start time of each scan, (N,)."""
        return self._start_ns + np.round(self._times * NS_PER_S).astype(np.int64)

    def scan(self, index: int) -> RecordedScan:
        """Simulate one scan; the same index always gives the same bytes."""
        rng = np.random.default_rng([self._seed, index, 2])
        pose, time_s = self._T_world_sensor[index], float(self._times[index])
        vehicles = self._traffic.mesh_at(time_s, pose[:2, 3], self._sensor.max_range_m)
        returns = self._scanner.sweep(pose, self._T_start_end[index], rng, vehicles)
        sweep_s = 1.0 / self._sensor.rate_hz if self._config.motion_distortion else 0.0
        return RecordedScan(
            points=returns.points,
            intensity=returns.intensity,
            ring=returns.ring,
            time_s=returns.phase * np.float32(sweep_s),
            stamp_ns=int(self.stamps_ns[index]),
            T_odom_sensor=self._T_odom_sensor[index],
            T_world_sensor=pose,
        )

    def __iter__(self) -> Iterator[RecordedScan]:
        """Yield scans in order, computing a few ahead."""
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
    """Return a simulation of a drive, whose scans are computed on iteration."""
    return Simulation(world, sensor, drive, config or SimulationConfig(), seed)
