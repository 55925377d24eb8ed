"""The benchmarks of `training/benchmark.py`, one line each.

A benchmark is a module with three functions:

    add_options(parser)    declares its command-line options
    run(**options)         returns its results as JSON-serializable values
    table(result)          formats them as markdown

Modules are imported only when they run: `--help` needs neither torch nor ROS.
"""

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple, Protocol, cast


class Benchmark(Protocol):
    """What the module of a benchmark provides."""

    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[..., dict[str, Any]]
    table: Callable[[dict[str, Any]], str]


class Entry(NamedTuple):
    """Where a benchmark is implemented, and its line in `--help`."""

    module: str
    summary: str

    def load(self) -> Benchmark:
        """Import the module."""
        return cast(Benchmark, import_module(self.module))


ROOM = 'lpr_training.benchmarks'
BENCHMARKS = {
    'descriptor': Entry(f'{ROOM}.speed.descriptor', 'Time per descriptor, with two references'),
    'training': Entry(f'{ROOM}.speed.training', 'Clouds per second of inference and training'),
    'simulator': Entry(f'{ROOM}.speed.simulator', 'Simulated scans of 64 x 1024 rays per second'),
    'database': Entry(f'{ROOM}.speed.database', 'Query time, memory and recall up to 1e6 places'),
    'registration': Entry(f'{ROOM}.registration.run', 'Verification of true and false pairs'),
    'covariance': Entry(f'{ROOM}.covariance.run', 'Errors of verified pairs against covariances'),
    'odometry': Entry(f'{ROOM}.odometry.run', 'Drift of LiDAR odometry on real scans'),
    'node': Entry(f'{ROOM}.speed.node', 'Latency of lpr_node at 10 Hz and 130,000 points'),
    'loops': Entry(f'{ROOM}.loops.run', 'Whole drives: precision, recall, poses, trajectories'),
    'calibration': Entry(f'{ROOM}.calibration.run', 'Honesty of the probabilities of matches'),
    'load': Entry(f'{ROOM}.load.run', 'Sustained overload, and a drive of many hours'),
    'fuzz': Entry(f'{ROOM}.fuzz.run', 'Damaged inputs to every reader of external data'),
    'faults': Entry(f'{ROOM}.faults.run', 'Faults one at a time: kill -9, full disk, lost sensor'),
    'siege': Entry(f'{ROOM}.siege.run', 'All faults at once, at random, for minutes or hours'),
}
