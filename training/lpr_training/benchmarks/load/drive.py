"""An accelerated drive of many hours through the pipeline, to find what grows.

A robot at walking pace drives laps of half a kilometer, one in four in the opposite direction,
with a keyframe every 2 m. Pipeline, weights, search and verification are real. The scans are
simulated: a few laps with a small sensor, on slightly different paths and days; every visit
rotates them by a few degrees, adds noise and drops points. Odometry drifts over the whole drive.
Two limits are lowered, so that the drive reaches the size at which clouds are kept on disk and an
approximate index is used.

Memory is resident memory without file-backed and shared pages. Memory that the database accounts
for is expected; any other growth is a leak. Slopes are fitted over the second half, when all
limits have been reached.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
import os
from pathlib import Path
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from lpr_ros.core.config import override
from lpr_ros.core.geometry.se3 import pose_from_euler
from lpr_ros.core.loop_closure.worker_process import VerificationProcess
from lpr_ros.core.markdown import metric_table
from lpr_ros.core.model.descriptor_extractor import NetworkDescriptorExtractor
from lpr_ros.core.offline.evaluation import loop_errors
from lpr_ros.core.pipeline import Pipeline, PipelineConfig, Step
from lpr_ros.core.resources import weights_path
from lpr_ros.core.types import Scan
from lpr_training.benchmarks.loops.recorded_drive import ODOMETRY
from lpr_training.harness.processes import private_mb
from lpr_training.simulator import (
    Day,
    SimulationConfig,
    World,
    load_sensor,
    make_drive,
    make_world,
    on_day,
    simulate_drive,
)
from lpr_training.simulator.drive.odometry import drifting
from lpr_training.simulator.world.recorded_route import trajectory_from

SEED = 200
RADIUS_M = 80.0  # of the lap
SPACING_M = 2.0
STEP_NS = 1_440_000_000  # between keyframes: 20,000 of them are eight hours
LAPS = 6  # to simulate
REVERSED_EVERY = 4
SENSOR, COLUMNS = 'vlp16', 600
TURN_DEG = 10.0  # maximum rotation of a visit against its simulated scan
RANGE_SIGMA_M = 0.02
MISSING = 0.1  # fraction of the points dropped per scan
SAMPLE_EVERY = 20  # keyframes
SETTINGS: dict[str, Any] = {
    # Make every scan a keyframe.
    'keyframes.distance_m': 0.0,
    'keyframes.interval_s': 1e-6,
    # Move clouds to disk after about 5,000 keyframes, use the index after 4,096.
    'database.cloud_memory_mib': 128,
    'database.brute_force_limit_mib': 4,
    # Verify only some keyframes per 20 m, one candidate each, to finish within minutes.
    'sequence.repeat_m': 20.0,
    'max_candidates': 1,
}
TARGETS = {
    'precision': '1.00',
    'precision_last_tenth': '1.00',
    'ms_last_tenth': 'as second tenth',
    'memory_bytes_per_keyframe': 'as known',
    'other_bytes_per_keyframe': '< 500',
}


@dataclass(frozen=True, eq=False)
class Lap:
    """One simulated lap."""

    clouds: list[NDArray[np.float32]]
    T_world_sensor: NDArray[np.float64]  # (N, 4, 4)


class EndlessDrive:
    """A drive of `count` scans, lap after lap, computed on demand; no two scans are equal."""

    def __init__(self, laps: Sequence[Lap], count: int):
        self._laps = laps
        rng = np.random.default_rng(SEED)
        self._visits: list[tuple[int, int]] = []  # lap, place
        turns_deg: list[float] = []
        while len(self._visits) < count:
            number = int(rng.integers(len(laps)))
            places = list(range(len(laps[number].clouds)))
            is_reversed = rng.integers(REVERSED_EVERY) == 0
            self._visits += [(number, i) for i in (places[::-1] if is_reversed else places)]
            straight_deg = 180.0 if is_reversed else 0.0
            turns_deg += (straight_deg + rng.uniform(-TURN_DEG, TURN_DEG, len(places))).tolist()
        del self._visits[count:]
        self._T_turn = [pose_from_euler([0.0, 0.0, 0.0], [0.0, 0.0, np.radians(a)])
                        for a in turns_deg[:count]]  # fmt: skip
        self.T_world_sensor = np.stack([
            laps[number].T_world_sensor[place] @ T_turn
            for (number, place), T_turn in zip(self._visits, self._T_turn, strict=True)
        ])  # fmt: skip
        self._T_odom_sensor = drifting(self.T_world_sensor, ODOMETRY, rng)

    def __len__(self) -> int:
        return len(self._visits)

    def scan(self, index: int) -> Scan:
        """Return one scan."""
        number, place = self._visits[index]
        rng = np.random.default_rng([SEED, index])
        points = self._laps[number].clouds[place]
        points = points[rng.random(len(points)) >= MISSING]
        points = points @ self._T_turn[index][:3, :3].astype(np.float32)  # to the sensor frame
        range_m = np.linalg.norm(points, axis=1)
        noise = rng.normal(0.0, RANGE_SIGMA_M, len(points)) / np.maximum(range_m, 1.0)
        points = points * (1.0 + noise).astype(np.float32)[:, None]
        return Scan(points, (index + 1) * STEP_NS, self._T_odom_sensor[index])


class Growth:
    """Memory of this process by keyframe count, with the share that the database accounts for."""

    def __init__(self) -> None:
        self.keyframes: list[int] = []
        self.total: list[float] = []  # bytes
        self.database: list[int] = []  # bytes
        self.verification_mb = 0.0  # maximum of the verification process

    def sample(self, pipeline: Pipeline, verification_pid: int) -> None:
        """Record the current memory."""
        verification_mb, _ = private_mb(verification_pid)
        self.verification_mb = max(self.verification_mb, verification_mb)
        self.keyframes.append(len(pipeline.database))
        self.total.append(1e6 * private_mb(os.getpid())[0])
        self.database.append(pipeline.database.memory_bytes())

    def metrics(self) -> dict[str, Any]:
        """Return the slopes over the second half, and the unexplained growth."""
        half = len(self.keyframes) // 2
        keyframes = np.array(self.keyframes[half:], dtype=np.float64)
        total, database = np.array(self.total[half:]), np.array(self.database[half:])
        other = slope(keyframes, total - database)
        return {
            'memory_mb': self.total[-1] / 1e6,
            'verification_mb_most': self.verification_mb,
            'memory_bytes_per_keyframe': slope(keyframes, total),
            'known_bytes_per_keyframe': slope(keyframes, database),
            'other_bytes_per_keyframe': other,
            'other_growth_mb': other * float(keyframes[-1] - keyframes[0]) / 1e6,
        }


class Tally:
    """Outcome of every keyframe, in arrays of fixed size: the tally itself must not grow."""

    def __init__(self, drive: EndlessDrive):
        self._truth = dict(enumerate(drive.T_world_sensor))
        self.ms: dict[str, NDArray[np.float64]] = {}  # by stage and keyframe
        self.right, self.wrong, self.verified, self.rejected = (
            np.zeros(len(drive), dtype=np.int64) for _ in range(4)
        )

    def add(self, step: Step) -> None:
        """Record a keyframe."""
        number = step.keyframe_query.keyframe.id
        for stage, seconds in step.seconds.items():
            times = self.ms.setdefault(stage, np.zeros(len(self.right)))
            times[number] = 1e3 * seconds
        is_correct = loop_errors(step.result.trusted, self._truth).is_correct
        self.right[number] = int(is_correct.sum())
        self.wrong[number] = int((~is_correct).sum())
        self.verified[number] = step.result.verified is not None
        self.rejected[number] = len(step.result.rejected)

    def metrics(self) -> dict[str, Any]:
        """Return metrics of the whole drive, and of its second and its last tenth."""
        tenth = max(1, len(self.right) // 10)
        early, late = slice(tenth, 2 * tenth), slice(-tenth, None)
        return {
            'verifications': int(self.verified.sum() + self.rejected.sum()),
            'loops': int((self.right + self.wrong).sum()),
            'wrong': int(self.wrong.sum()),
            'precision': self._precision(slice(None)),
            'precision_last_tenth': self._precision(late),
            'loops_second_tenth': int(self.right[early].sum()),
            'loops_last_tenth': int(self.right[late].sum()),
            'ms_second_tenth': self._ms(early),
            'ms_last_tenth': self._ms(late),
            'stages_ms': {
                stage: [float(ms[part].mean()) for part in (early, late)]
                for stage, ms in self.ms.items()
            },
        }

    def _precision(self, part: slice) -> float:
        right, wrong = int(self.right[part].sum()), int(self.wrong[part].sum())
        return right / (right + wrong) if right + wrong else float('nan')

    def _ms(self, part: slice) -> float:
        return float(sum(ms[part].mean() for ms in self.ms.values()))


def run(keyframes: int, *, weights: str | Path | None = None) -> dict[str, Any]:
    """Drive until there are this many keyframes and return the measurements."""
    drive = EndlessDrive(simulate_laps(), keyframes)
    extractor = NetworkDescriptorExtractor.load(weights_path(weights))
    config = override(PipelineConfig(), SETTINGS)
    # In its own process, as in the node: registration libraries never release some memory.
    verifier = VerificationProcess(config.verification)
    pipeline = Pipeline(config, extractor, verifier=verifier)
    tally, growth = Tally(drive), Growth()
    started_s = time.monotonic()
    try:
        for index in tqdm(range(len(drive)), desc='drive', unit='keyframe'):
            step = pipeline.add(drive.scan(index))
            if step is not None:
                tally.add(step)
            if index % SAMPLE_EVERY == 0:
                growth.sample(pipeline, verifier.pid)
    finally:
        pipeline.close()
        verifier.stop()
    traveled_m = np.linalg.norm(np.diff(drive.T_world_sensor[:, :3, 3], axis=0), axis=1).sum()
    return {
        'keyframes': len(pipeline.database),
        'simulated_hours': keyframes * STEP_NS / 3.6e12,
        'way_km': float(traveled_m) / 1e3,
        'minutes': (time.monotonic() - started_s) / 60.0,
        **tally.metrics(),
        **growth.metrics(),
        'settings': SETTINGS,
    }


def table(result: dict[str, Any]) -> str:
    """Return the results as a markdown table."""
    return metric_table('accelerated drive', result, TARGETS)


def circular_world(radius_m: float) -> World:
    """Return a city along a circular road, in which drives end where they start."""
    angle = np.linspace(0.0, 2.0 * np.pi, 1000)
    circle = radius_m * np.stack([np.sin(angle), 1.0 - np.cos(angle), 0.0 * angle], axis=1)
    return make_world('city', SEED, trajectory=trajectory_from(circle, 'circle'))


def simulate_laps() -> list[Lap]:
    """Simulate the laps that all visits are derived from."""
    world = circular_world(RADIUS_M)
    sensor = replace(load_sensor(SENSOR), columns=COLUMNS)
    laps = []
    for number in tqdm(range(LAPS), desc='simulate', unit='lap'):
        today = on_day(world, Day(number=number))
        drive = make_drive(today, seed=number)
        simulation = simulate_drive(
            today, sensor, drive, SimulationConfig(spacing_m=SPACING_M), seed=number
        )
        laps.append(Lap([scan.points for scan in simulation], simulation.T_world_sensor))
    return laps


def slope(x: NDArray[np.float64], y: NDArray[Any]) -> float:
    """Return the slope of the least-squares line."""
    return float(np.polyfit(x, y, 1)[0]) if len(x) > 1 else float('nan')
