"""Command-line options that several benchmarks share."""

import argparse
from pathlib import Path
from typing import Any

from lpr_ros.core.resources import REPOSITORY

SHARED_DATA = REPOSITORY.parent / 'shared' / 'data'


def add_option(parser: argparse.ArgumentParser, name: str, default: Any, text: str) -> None:
    """Add an option of the type of its default, which `--help` shows."""
    parser.add_argument(name, type=type(default), default=default, help=f'{text} (%(default)s)')


def add_data_option(parser: argparse.ArgumentParser, contents: str) -> None:
    """Add `--data`, the folder of the real scans."""
    parser.add_argument(
        '--data', type=Path, default=SHARED_DATA, help=f'Folder with {contents} (%(default)s)'
    )
