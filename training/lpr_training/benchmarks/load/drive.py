"""A drive of hours through the pipeline, as fast as it goes, to see what grows.

A robot at walking pace goes round and round a lap of half a kilometre, one in four rounds the
other way, a keyframe every 2 m. Real are the pipeline, its weights, search and verification.
Simulated are the scans: of a few rounds with a small sensor, beside each other and on other days,
which every visit sees turned by some degrees, with new noise and other points missing; between
keyframes there are no scans. Odometry drifts over the whole way. Two limits are set low, so that
the drive comes to where maps of large sensors are: clouds go to disk, and an index picks.

Memory is the resident one of the process, without files and what is shared. What the database says
it holds is known; all other growth is suspect. Slopes are fitted over the second half, when all
limits were reached.
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

from lpr_ros.core.closer_process import CloserProcess
from lpr_ros.core.config import override
from lpr_ros.core.drive_truth import loop_errors
from lpr_ros.core.geometry import pose_from_euler
from lpr_ros.core.model.describer import Describer
from lpr_ros.core.pipeline import Pipeline, PipelineConfig, Step
from lpr_ros.core.records import Scan
from lpr_ros.core.resources import default_weights
from lpr_training.benchmarks.figure_table import figure_table
from lpr_training.benchmarks.loop_drives import ODOMETRY
from lpr_training.demo.processes import own_mb
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
from lpr_training.simulator.odometry import drifting
from lpr_training.simulator.trajectory import trajectory_from

SEED = 200
RADIUS_M = 80.0  # of the lap
SPACING_M = 2.0
STEP_NS = 1_440_000_000  # between keyframes: 20,000 of them are eight hours
ROUNDS = 6  # that are simulated
REVERSED_EVERY = 4
SENSOR, COLUMNS = 'vlp16', 600
TURN_DEG = 10.0  # of a visit against the scan it is made of
RANGE_SIGMA_M = 0.02
MISSING = 0.1  # of the points of a scan
SAMPLE_EVERY = 20  # keyframes
SETTINGS: dict[str, Any] = {
    # Every scan is a keyframe.
    'keyframes.distance_m': 0.0,
    'keyframes.interval_s': 1e-6,
    # Clouds go to disk after about 5,000 keyframes, an index picks after 4,096.
    'database.cloud_memory_mib': 128,
    'database.exact_mib': 4,
    # Of a stretch of 20 m only some are verified, one candidate each: it must end today.
    'support.repeat_m': 20.0,
    'candidates': 1,
}
GOALS = {
    'precision': '1.00',
    'precision_last_tenth': '1.00',
    'ms_last_tenth': 'as in the second tenth',
    'memory_bytes_per_keyframe': 'as known',
    'other_bytes_per_keyframe': '< 500',
}


@dataclass(frozen=True, eq=False)
class Round:
    """One time round, as simulated."""

    clouds: list[NDArray[np.float32]]
    T_world_sensor: NDArray[np.float64]  # (N, 4, 4)


class EndlessDrive:
    """So many scans of round after round, made when asked for, each other than all before."""

    def __init__(self, rounds: Sequence[Round], count: int):
        self._rounds = rounds
        rng = np.random.default_rng(SEED)
        self._visits: list[tuple[int, int]] = []  # round, place
        turns_deg: list[float] = []
        while len(self._visits) < count:
            number = int(rng.integers(len(rounds)))
            places = list(range(len(rounds[number].clouds)))
            is_reversed = rng.integers(REVERSED_EVERY) == 0
            self._visits += [(number, i) for i in (places[::-1] if is_reversed else places)]
            straight_deg = 180.0 if is_reversed else 0.0
            turns_deg += (straight_deg + rng.uniform(-TURN_DEG, TURN_DEG, len(places))).tolist()
        del self._visits[count:]
        self._T_turn = [pose_from_euler([0.0, 0.0, 0.0], [0.0, 0.0, np.radians(a)])
                        for a in turns_deg[:count]]  # fmt: skip
        self.T_world_sensor = np.stack([
            rounds[number].T_world_sensor[place] @ T_turn
            for (number, place), T_turn in zip(self._visits, self._T_turn, strict=True)
        ])  # fmt: skip
        self._T_odom_sensor = drifting(self.T_world_sensor, ODOMETRY, rng)

    def __len__(self) -> int:
        return len(self._visits)

    def scan(self, index: int) -> Scan:
        """Return what the robot sees now."""
        number, place = self._visits[index]
        rng = np.random.default_rng([SEED, index])
        points = self._rounds[number].clouds[place]
        points = points[rng.random(len(points)) >= MISSING]
        points = points @ self._T_turn[index][:3, :3].astype(np.float32)  # into the turned sensor
        range_m = np.linalg.norm(points, axis=1)
        noise = rng.normal(0.0, RANGE_SIGMA_M, len(points)) / np.maximum(range_m, 1.0)
        points = points * (1.0 + noise).astype(np.float32)[:, None]
        return Scan(points, (index + 1) * STEP_NS, self._T_odom_sensor[index])


class Growth:
    """Memory of this process against keyframes, beside what the database says it holds."""

    def __init__(self) -> None:
        self.keyframes: list[int] = []
        self.own: list[float] = []  # bytes
        self.known: list[int] = []
        self.verification_mb = 0.0  # the most that its process held

    def sample(self, pipeline: Pipeline, verification_pid: int) -> None:
        """Look now."""
        beside_mb, _ = own_mb(verification_pid)
        self.verification_mb = max(self.verification_mb, beside_mb)
        self.keyframes.append(len(pipeline.database))
        self.own.append(1e6 * own_mb(os.getpid())[0])
        self.known.append(pipeline.database.memory_bytes())

    def figures(self) -> dict[str, Any]:
        """Return slopes over the second half, and what all else grew by in it."""
        half = len(self.keyframes) // 2
        keyframes = np.array(self.keyframes[half:], dtype=np.float64)
        own, known = np.array(self.own[half:]), np.array(self.known[half:])
        other = slope(keyframes, own - known)
        return {
            'memory_mb': self.own[-1] / 1e6,
            'verification_mb_most': self.verification_mb,
            'memory_bytes_per_keyframe': slope(keyframes, own),
            'known_bytes_per_keyframe': slope(keyframes, known),
            'other_bytes_per_keyframe': other,
            'other_growth_mb': other * float(keyframes[-1] - keyframes[0]) / 1e6,
        }


class Tally:
    """What became of every keyframe: numbers only, as this must not grow either."""

    def __init__(self, drive: EndlessDrive):
        self._truth = dict(enumerate(drive.T_world_sensor))
        self.ms: dict[str, NDArray[np.float64]] = {}  # by stage and keyframe
        self.right, self.wrong, self.verified, self.refused = (
            np.zeros(len(drive), dtype=np.int64) for _ in range(4)
        )

    def take(self, step: Step) -> None:
        """Note a keyframe."""
        number = step.sighting.keyframe.id
        for stage, seconds in step.seconds.items():
            times = self.ms.setdefault(stage, np.zeros(len(self.right)))
            times[number] = 1e3 * seconds
        is_right = loop_errors(step.verdict.trusted, self._truth).is_right
        self.right[number] = int(is_right.sum())
        self.wrong[number] = int((~is_right).sum())
        self.verified[number] = step.verdict.verified is not None
        self.refused[number] = len(step.verdict.rejected)

    def figures(self) -> dict[str, Any]:
        """Return figures of the whole drive, of its second tenth and of its last."""
        tenth = max(1, len(self.right) // 10)
        early, late = slice(tenth, 2 * tenth), slice(-tenth, None)
        return {
            'verifications': int(self.verified.sum() + self.refused.sum()),
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


def run(keyframes: int, *, weights: Path | None = None) -> dict[str, Any]:
    """Drive so far that there are as many keyframes; return the figures."""
    drive = EndlessDrive(simulate_rounds(), keyframes)
    describer = Describer.load(weights or default_weights())
    config = override(PipelineConfig(), SETTINGS)
    # As in the node: what the registration libraries never give back ends with their process.
    closer = CloserProcess(config.verification, config.pairwise, config.candidates)
    pipeline = Pipeline(config, describer, closer=closer)
    tally, growth = Tally(drive), Growth()
    began_s = time.monotonic()
    try:
        for index in tqdm(range(len(drive)), desc='drive', unit='keyframe'):
            step = pipeline.add(drive.scan(index))
            if step is not None:
                tally.take(step)
            if index % SAMPLE_EVERY == 0:
                growth.sample(pipeline, closer.pid)
    finally:
        pipeline.close()
        closer.stop()
    way_m = np.linalg.norm(np.diff(drive.T_world_sensor[:, :3, 3], axis=0), axis=1).sum()
    return {
        'keyframes': len(pipeline.database),
        'simulated_hours': keyframes * STEP_NS / 3.6e12,
        'way_km': float(way_m) / 1e3,
        'minutes': (time.monotonic() - began_s) / 60.0,
        **tally.figures(),
        **growth.figures(),
        'settings': SETTINGS,
    }


def table(result: dict[str, Any]) -> str:
    """Return the figures as markdown."""
    return figure_table('hours of driving', result, GOALS)


def circular_world(radius_m: float) -> World:
    """Return a city around a road that is a circle, and drives in it that end where they began."""
    angle = np.linspace(0.0, 2.0 * np.pi, 1000)
    circle = radius_m * np.stack([np.sin(angle), 1.0 - np.cos(angle), 0.0 * angle], axis=1)
    return make_world('city', SEED, trajectory=trajectory_from(circle, 'circle'))


def simulate_rounds() -> list[Round]:
    """Simulate the rounds that all others are made of."""
    world = circular_world(RADIUS_M)
    sensor = replace(load_sensor(SENSOR), columns=COLUMNS)
    rounds = []
    for number in tqdm(range(ROUNDS), desc='simulate', unit='round'):
        today = on_day(world, Day(number=number))
        drive = make_drive(today, seed=number)
        simulation = simulate_drive(
            today, sensor, drive, SimulationConfig(spacing_m=SPACING_M), seed=number
        )
        rounds.append(Round([scan.points for scan in simulation], simulation.T_world_sensor))
    return rounds


def slope(x: NDArray[np.float64], y: NDArray[Any]) -> float:
    """Return the slope of the line through points that is nearest to them."""
    return float(np.polyfit(x, y, 1)[0]) if len(x) > 1 else float('nan')
