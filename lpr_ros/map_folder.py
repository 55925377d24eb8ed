"""Where maps may be read and written: who can set a parameter must not reach every file.

`os.path` rather than `Path`: what may not be looked at is not there, and not an error of ours.
"""

import os
from pathlib import Path

from lpr_ros.core.errors import ConfigError, MapError
from lpr_ros.core.files import user_path
from lpr_ros.core.map_file import MAGIC


class MapFolder:
    """The folder of the map given at start, or that of ROS; nothing in it but maps is replaced."""

    def __init__(self, map_path: str):
        if map_path:
            self._folder = user_path(map_path, 'map_path').parent
            if not os.path.isdir(self._folder):  # better told now than after the drive
                raise MapError(f'map_path {map_path}: expected a folder that is there')
        else:
            self._folder = user_path(os.environ.get('ROS_HOME', '~/.ros'), 'ROS_HOME')

    def file(self, map_path: str) -> Path:
        """Return the file of a map; ConfigError where it would be outside."""
        if not map_path:
            raise MapError('the parameter map_path is empty, expected the file of the map')
        path = user_path(map_path, 'map_path')
        if not path.is_relative_to(self._folder):
            raise ConfigError(
                f'map_path: {path} is outside {self._folder}, expected a file in it: the folder '
                'is that of map_path at start'
            )
        return path

    def file_to_write(self, map_path: str) -> Path:
        """Return the file of a map that may be replaced; MapError where it may not."""
        path = self.file(map_path)
        if not os.path.isdir(path.parent):
            raise MapError(f'{path}: expected a folder that is there')
        if os.path.exists(path) and not _is_map(path):
            raise MapError(f'{path}: is there and is not a map, expected a new file or a map')
        return path


def _is_map(path: Path) -> bool:
    try:
        with path.open('rb') as stream:
            return stream.read(len(MAGIC)) == MAGIC
    except OSError:
        return False
