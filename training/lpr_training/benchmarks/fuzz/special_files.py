"""Fuzz target: FIFOs, folders, devices, sockets and dead links in place of regular files."""

from collections.abc import Callable
import os
from pathlib import Path
from random import Random
import shutil
import stat

from lpr_ros.core.database.place_database import DatabaseConfig, PlaceDatabase
from lpr_ros.core.io.pose_files import read_kitti_poses, read_tum
from lpr_ros.core.model.checkpoint import load_checkpoint
from lpr_ros.core.model.import_minkloc import read_foreign_tensors
from lpr_ros.core.pipeline import PipelineConfig
from lpr_ros.core.recordings.open import open_recording
from lpr_training.benchmarks.fuzz.target import Target
from lpr_training.datasets.formats.pcd import read_pcd
from lpr_training.train.state_file import read_state

READERS: dict[str, Callable[[Path], object]] = {
    'places.map': lambda path: PlaceDatabase.load(path, DatabaseConfig(), fingerprint='f'),
    'model.safetensors': load_checkpoint,
    'model.pth': read_foreign_tensors,
    'config.yaml': PipelineConfig.from_yaml,
    'poses.tum': read_tum,
    'poses.txt': read_kitti_poses,
    'state.pt': read_state,
    'cloud.pcd': read_pcd,
    'scans_run.npz': open_recording,
    'drive.bag': open_recording,
    'drive.mcap': open_recording,
}


def special_files(folder: Path) -> Target:
    """Return a target that makes one file special: every reader must reject it at once."""

    def make(random: Random) -> tuple[str, Callable[[Path], None]]:
        return random.choice(list(READERS)), random.choice(SPECIAL)

    def read(chosen: tuple[str, Callable[[Path], None]]) -> None:
        name, create = chosen
        path = folder / name
        create(path)
        try:
            READERS[name](path)
        finally:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        raise AssertionError(f'{name}: {create.__name__} was accepted')

    return Target('special files', make, read, str(folder))


def _folder(path: Path) -> None:
    path.mkdir()


def _socket(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o600)


def _endless(path: Path) -> None:
    path.symlink_to('/dev/zero')


def _dead_link(path: Path) -> None:
    path.symlink_to(path.with_name('missing'))


def _itself(path: Path) -> None:
    path.symlink_to(path)


def _missing(path: Path) -> None:
    assert not path.exists()


SPECIAL: tuple[Callable[[Path], None], ...] = (
    os.mkfifo, _folder, _socket, _endless, _dead_link, _itself, _missing,
)  # fmt: skip
