"""Fixtures shared by all tests. Everything random is seeded."""

from collections.abc import Iterator
import errno
from importlib.util import find_spec
import os
from pathlib import Path
import stat
from typing import Any

import numpy as np
import pytest
import torch
from toy_clouds import random_scene, random_walk, tiny_config

from lpr_ros.core.model.place_model import PlaceModel

# As on Humble: messages check the types and ranges of their fields. Read when they are imported.
os.environ['ROS_PYTHON_CHECK_FIELDS'] = '1'

# The tensors of tests are tiny: threads would only wait for each other.
torch.set_num_threads(1)

HAS_ROS = find_spec('rclpy') is not None
# The Makefile reads the same file.
ROS_TESTS = Path(__file__).with_name('ros_tests.txt').read_text(encoding='utf-8').split()
collect_ignore = [] if HAS_ROS else ROS_TESTS

SHARED_DATA = Path(__file__).resolve().parents[2] / 'shared' / 'data'


def pytest_report_header() -> str:
    """Say which tests are left out."""
    return 'ROS: yes' if HAS_ROS else 'ROS: no, tests of nodes are skipped (pip install .[ros])'


@pytest.fixture(autouse=True)
def _seeded_torch() -> Iterator[None]:
    """Give every test the same weights, and leave the caller's stream alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def clouds(rng: np.random.Generator) -> list[np.ndarray]:
    """Three quantized clouds of different size."""
    return [random_walk(rng, count) for count in (400, 90, 250)]


@pytest.fixture
def scene(rng: np.random.Generator) -> np.ndarray:
    """Points of one simulated scan."""
    return random_scene(rng)


@pytest.fixture
def tiny_model() -> PlaceModel:
    """A small network with batch statistics that are not the identity."""
    model = PlaceModel(tiny_config())
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            torch.nn.init.uniform_(module.running_mean, -0.5, 0.5)
            torch.nn.init.uniform_(module.running_var, 0.5, 2.0)
    return model.eval()


@pytest.fixture(scope='session')
def shared_data() -> Path:
    """Real LiDAR data, present on development machines only."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f'real data is not on this machine: {SHARED_DATA}')
    return SHARED_DATA


@pytest.fixture(scope='session')
def real_scans(shared_data: Path) -> list[np.ndarray]:
    """Full-resolution HDL-64 scans, (N, 3) float32 each."""
    files = sorted((shared_data / 'kitti_full').glob('*.bin'))
    if not files:
        pytest.skip(f'no scans in {shared_data / "kitti_full"}')
    return [np.fromfile(file, np.float32).reshape(-1, 4)[:, :3] for file in files]


@pytest.fixture
def ros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Real ROS nodes on a domain of their own: see ros_processes.py."""
    from ros_processes import ros_session

    with ros_session(tmp_path, monkeypatch) as session:
        yield session


@pytest.fixture
def folders_cannot_be_synced(monkeypatch):
    """Have the system sync files and fail on folders."""
    real = os.fsync

    def fsync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, 'Input/output error')
        real(descriptor)

    monkeypatch.setattr(os, 'fsync', fsync)
