"""Fuzz target: whatever the pipeline accepts as a scan, the map it is saved to can be loaded."""

from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.database.place_database import DatabaseConfig, PlaceDatabase
from lpr_ros.core.errors import MapError, ScanError
from lpr_ros.core.geometry.odometry_noise import OdometryNoiseConfig
from lpr_ros.core.geometry.se3 import pose_from_euler
from lpr_ros.core.retrieval.keyframing import KeyframeConfig
from lpr_ros.core.retrieval.place_recognizer import PlaceRecognizer, SessionConfig
from lpr_ros.core.retrieval.sequence_filter import SequenceFilterConfig
from lpr_ros.core.timing import MAX_STAMP_NS
from lpr_ros.core.types import Scan
from lpr_training.benchmarks.fuzz.target import Target

DIM = 4
SCANS = 6
EXTREME = (0.0, -0.0, 1.0, 1e-45, 1e4, 1e9, 1e30, -3e38, float('nan'))
STAMPS = (-MAX_STAMP_NS - 1, -MAX_STAMP_NS, -1, 0, 1, MAX_STAMP_NS, MAX_STAMP_NS + 1)
NAMES = ('robot', 'ä' * 100, 'x' * 255)


class _Extractor:
    """Describes every cloud by the same vector."""

    dim, fingerprint, calibration = DIM, 'f', None

    def describe(self, points: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.ones(DIM, np.float32)


def stored_keyframes(folder: Path) -> Target:
    """Return a target that drives through hostile scans, and saves and loads the map."""
    path = folder / 'stored.map'

    def read(drive: tuple[str, list[Scan]]) -> None:
        name, scans = drive
        database = PlaceDatabase(DatabaseConfig(), DIM, fingerprint='f')
        recognizer = PlaceRecognizer(
            SessionConfig(name=name),
            KeyframeConfig(interval_s=1e-9),
            SequenceFilterConfig(),
            OdometryNoiseConfig(),
            _Extractor(),
            database,
        )
        refused: ScanError | None = None
        for scan in scans:
            try:
                recognizer.add(scan)
            except ScanError as error:
                refused = error
        database.save(path)
        try:
            loaded = PlaceDatabase.load(path, DatabaseConfig(), fingerprint='f')
        except MapError as error:
            raise AssertionError(f'saved, but cannot be loaded: {error}') from error
        assert len(loaded) == len(database)
        for i in range(len(database)):
            assert np.array_equal(loaded[i].points, database[i].points)
            assert loaded[i].traveled_m == database[i].traveled_m
        loaded.close()
        database.close()
        if refused is not None:
            raise refused

    return Target('stored keyframes', _make, read)


def _make(random: Random) -> tuple[str, list[Scan]]:
    stamp_ns, scans = random.choice((0, 10**18)), []
    for _ in range(SCANS):
        stamp_ns = random.choice((*[stamp_ns + 10**8] * 9, random.choice(STAMPS)))
        scans.append(Scan(_points(random), stamp_ns, _pose(random)))
    return random.choice(NAMES), scans


def _points(random: Random) -> NDArray[np.float32]:
    points = np.random.default_rng(random.getrandbits(32)).normal(scale=20.0, size=(20, 3))
    for _ in range(random.choice((0, 0, 0, 1, 3))):
        points[random.randrange(20), random.randrange(3)] = random.choice(EXTREME)
    with np.errstate(over='ignore'):
        return points.astype(np.float32)[: random.choice((1, 20, 20, 20))]


def _pose(random: Random) -> NDArray[np.float64] | None:
    if random.random() < 0.2:
        return None
    xyz = [random.uniform(-5.0, 5.0) for _ in range(3)]
    T = pose_from_euler(xyz, [0.0, 0.0, random.uniform(-3.0, 3.0)])
    for _ in range(random.choice((0, 0, 0, 0, 1))):
        T[random.randrange(4), random.randrange(4)] = random.choice((*EXTREME, -1e300))
    return T
