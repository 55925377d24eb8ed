"""Time to build a world, and simulated scans per second."""

import argparse
from dataclasses import replace
import time
from typing import Any

from tqdm import tqdm

from lpr_ros.core.markdown import markdown_table
from lpr_training.benchmarks.options import add_option
from lpr_training.simulator import (
    WORLDS,
    SimulationConfig,
    load_sensor,
    make_drive,
    make_world,
    simulate_drive,
)

BEAMS, COLUMNS = 64, 1024


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_option(parser, '--scans', 100, 'Scans per world')


def run(
    *, worlds: tuple[str, ...] = WORLDS, scans: int = 100, seed: int = 3, workers: int = 2
) -> dict[str, Any]:
    """Simulate scans of 64 x 1024 rays in every kind of world."""
    bar = tqdm(worlds, unit='world')
    measured = {}
    for kind in bar:
        bar.set_description(kind)
        measured[kind] = _measure(kind, scans, seed, workers)
    return {'rays_per_scan': BEAMS * COLUMNS, 'workers': workers, 'worlds': measured}


def table(result: dict[str, Any]) -> str:
    """Return the results as a markdown table."""
    digits = {'scans_per_s': 1, 'points_per_scan': 0, 'triangles': 0, 'world_s': 1, 'tree_s': 1}
    rows = [
        (kind, *(f'{row[key]:.{n}f}' for key, n in digits.items()))
        for kind, row in result['worlds'].items()
    ]
    head = ('world', 'scans/s', 'points per scan', 'triangles', 'world s', 'search tree s')
    return markdown_table(head, rows)


def _measure(kind: str, scans: int, seed: int, workers: int) -> dict[str, float]:
    start = time.perf_counter()
    world = make_world(kind, seed)
    built = time.perf_counter()
    sensor = replace(load_sensor('hdl64'), columns=COLUMNS)
    drive = make_drive(world, length_m=10.0 * scans)
    simulation = simulate_drive(
        world, sensor, drive, SimulationConfig(spacing_m=10.0, workers=workers)
    )
    simulation.scan(0)  # the first ray builds the search tree
    ready = time.perf_counter()
    points = [len(scan.points) for scan in simulation]
    done = time.perf_counter()
    return {
        'scans_per_s': len(points) / (done - ready),
        'points_per_scan': sum(points) / len(points),
        'world_s': built - start,
        'tree_s': ready - built,
        'triangles': float(len(world.mesh().faces)),
    }
