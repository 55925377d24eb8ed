"""Where the files that ship with the package are: weights, configuration, launch files."""

import os
from pathlib import Path
import sys

from lpr_ros.core.errors import CheckpointError

PACKAGE = 'lpr_ros'
REPOSITORY = Path(__file__).resolve().parents[2]
# Of several that ship, these are asked for first.
PREFERRED_WEIGHTS = ('kitti_bev',)


def resource_folders(name: str) -> list[Path]:
    """Return the folders called `name` (weights, config, launch) that exist, the nearest first.

    That of the repository, where it runs from one; that below share of the ROS workspaces; that
    below share of the Python environment.
    """
    shares = [REPOSITORY, *_ament_shares(), Path(sys.prefix) / 'share' / PACKAGE]
    return [share / name for share in shares if (share / name).is_dir()]


def find_resource(folder: str, name: str) -> Path | None:
    """Return a file that ships with the package, or None."""
    paths = [root / name for root in resource_folders(folder)]
    return next((path for path in paths if path.is_file()), None)


def default_weights() -> Path:
    """Return the weights used when none are named; CheckpointError says where it looked."""
    folders = resource_folders('weights')
    found = [path for folder in folders for path in sorted(folder.glob('*.safetensors'))]
    preferred = [path for stem in PREFERRED_WEIGHTS for path in found if path.stem == stem]
    if not found:
        raise CheckpointError(
            f'no weights ship here: expected weights/*.safetensors in {REPOSITORY} or in '
            f'share/{PACKAGE} of {sys.prefix}; name a file'
        )
    return (preferred or found)[0]


def _ament_shares() -> list[Path]:
    """Return the share folders of the package in the sourced ROS 2 workspaces, if there are any.

    The variable is read here as ament_index_python reads it: the core imports no ROS.
    """
    prefixes = os.environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep)
    return [Path(prefix) / 'share' / PACKAGE for prefix in prefixes if prefix]
