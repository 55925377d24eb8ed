"""The drives of the loop benchmark by name and group."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lpr_ros.core.errors import DatasetError
from lpr_training.benchmarks.loops.real import (
    BALM,
    KITTI_DRIVES,
    REAL_FILES,
    balm_drive,
    kitti_drive,
)
from lpr_training.benchmarks.loops.recorded_drive import RecordedDrive
from lpr_training.benchmarks.loops.recorder import Recorder
from lpr_training.benchmarks.loops.simulated import ADVERSARIAL, SIMULATED, simulated_drive

# Weights are trained on seeds below 100; thresholds and models were tuned on seeds 100 to 399.
REPORTED_SEED = 400
ODOMETRY_DRAWS = 5
GROUPS: dict[str, tuple[str, ...]] = {
    'simulated': SIMULATED,
    'adversarial': tuple(ADVERSARIAL),
    'real': tuple(REAL_FILES),
}


def drive_names(groups: Sequence[str] = tuple(GROUPS)) -> tuple[str, ...]:
    """Return the names of all drives of some groups."""
    return tuple(name for group in groups for name in GROUPS[group])


def load_drive(
    name: str,
    data: Path,
    seed: int = REPORTED_SEED,
    *,
    draw: int = 1,
    cache: Path | None = None,
) -> RecordedDrive:
    """Simulate or load a drive; `draw` numbers the draws of the odometry of a KITTI drive.

    With a `cache` folder, the scans of a simulated drive are kept there for the next time.
    """
    if name == BALM:
        return balm_drive(data)
    if name in KITTI_DRIVES:
        return kitti_drive(name, data, draw)
    recorder = Recorder(seed, cache)
    if name in ADVERSARIAL:
        drive = ADVERSARIAL[name](recorder)
    else:
        drive = simulated_drive(recorder, *name.split())
    return replace(drive, name=name)


def draws_of(name: str) -> int:
    """Return how many draws of the odometry a drive has."""
    return ODOMETRY_DRAWS if name in KITTI_DRIVES else 1


def available(names: Sequence[str], data: Path) -> list[str]:
    """Return the names without the real drives whose files are missing.

    Raises DatasetError for an unknown name.
    """
    for name in names:
        if name not in drive_names():
            raise DatasetError(f'--drives {name!r}: expected some of {list(drive_names())}')
    files = REAL_FILES
    return [name for name in names if name not in files or (data / files[name]).is_file()]
