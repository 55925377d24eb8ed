"""Sustained load: two fast LiDARs in real time, and a drive of many hours, accelerated."""

import argparse
from typing import Any

from lpr_training.benchmarks.load import drive, lidars
from lpr_training.benchmarks.options import add_option


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_option(parser, '--minutes', 10.0, 'Duration of the load by two LiDARs; 0 skips it')
    add_option(parser, '--keyframes', 20_000, 'Length of the accelerated drive; 0 skips it')
    parser.add_argument(
        '--standing',
        action='store_true',
        help='The two LiDARs stand still: no keyframes, so memory must not grow',
    )


def run(minutes: float = 10.0, keyframes: int = 20_000, standing: bool = False) -> dict[str, Any]:
    """Run the selected parts."""
    result = {}
    if minutes:
        result['lidars'] = lidars.run(minutes, standing=standing)
    if keyframes:
        result['drive'] = drive.run(keyframes)
    return result


def table(result: dict[str, Any]) -> str:
    """Return the results as markdown tables."""
    parts = {'lidars': lidars, 'drive': drive}
    return '\n'.join(parts[name].table(part) for name, part in result.items())
