"""Locate the files shipped with the package: weights, configuration, launch files."""

import os
from pathlib import Path
import sys

from lpr_ros.core.errors import CheckpointError
from lpr_ros.core.files import user_path

PACKAGE = 'lpr_ros'
REPOSITORY = Path(__file__).resolve().parents[2]
DEFAULT_WEIGHTS = 'kitti_bev'
WEIGHTS_SUFFIX = '.safetensors'
WEIGHTS_HELP = 'checkpoint file, or name of shipped weights (kitti_bev, sim)'


def weights_path(weights: str | Path | None = None) -> Path:
    """Return the checkpoint for a path, the name of shipped weights, or nothing (the default)."""
    name = str(weights or '')
    if not name:
        return default_weights()
    if os.path.isfile(user_path(name, 'weights')):
        return Path(name).expanduser()  # links not resolved: reports show the given name
    shipped = find_resource('weights', f'{name}{WEIGHTS_SUFFIX}')
    if shipped is None:
        known = sorted({path.stem for path in _shipped_weights()})
        raise CheckpointError(
            f'weights {name!r}: no such file, and not the name of shipped weights: {known}'
        )
    return shipped


def default_weights() -> Path:
    """Return the default weights; CheckpointError if no weights are installed."""
    found = _shipped_weights()
    if not found:
        raise CheckpointError(
            f'no weights are installed: expected weights/*{WEIGHTS_SUFFIX} in {REPOSITORY} or in '
            f'share/{PACKAGE} of {sys.prefix}; specify a checkpoint file'
        )
    return next((path for path in found if path.stem == DEFAULT_WEIGHTS), found[0])


def _shipped_weights() -> list[Path]:
    folders = resource_folders('weights')
    return [path for folder in folders for path in sorted(folder.glob(f'*{WEIGHTS_SUFFIX}'))]


def resource_folders(name: str) -> list[Path]:
    """Return the existing folders called `name` (weights, config, launch) in search order.

    First the repository, if running from one, then share/lpr_ros of the sourced ROS workspaces,
    then share/lpr_ros of the Python environment.
    """
    shares = [REPOSITORY, *_ament_shares(), Path(sys.prefix) / 'share' / PACKAGE]
    return [share / name for share in shares if (share / name).is_dir()]


def find_resource(folder: str, name: str) -> Path | None:
    """Return the path of a shipped file, or None."""
    paths = [root / name for root in resource_folders(folder)]
    return next((path for path in paths if path.is_file()), None)


def _ament_shares() -> list[Path]:
    """Return the share folders of the package in the sourced ROS 2 workspaces.

    Reads the variable that ament_index_python reads: the core does not import ROS.
    """
    prefixes = os.environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep)
    return [Path(prefix) / 'share' / PACKAGE for prefix in prefixes if prefix]
