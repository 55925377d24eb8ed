"""A second process that holds the lock of a map."""

from collections.abc import Iterator
from contextlib import contextmanager
import os
from pathlib import Path
import subprocess
import sys

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = (
    'import pathlib, sys, time; from lpr_ros.lpr_node.map_lock import MapLock; '
    'lock = MapLock(pathlib.Path(sys.argv[1])); print("locked", flush=True); time.sleep(600)'
)


@contextmanager
def holding_process(path: Path) -> Iterator[subprocess.Popen]:
    """Yield a process that holds the lock until it is stopped."""
    process = subprocess.Popen(
        [sys.executable, '-c', PROGRAM, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {'PYTHONPATH': str(ROOT)},
    )
    try:
        assert process.stdout.readline() == 'locked\n'
        yield process
    finally:
        stop(process)
        process.stdout.close()


def stop(process: subprocess.Popen) -> None:
    """Kill the process as `kill -9` does."""
    process.kill()
    process.wait()
