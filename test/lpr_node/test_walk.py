"""The walk of one scan in docs/architecture.md is what the node really does, and is short."""

import os
from pathlib import Path
import subprocess
import sys

import pytest
import scan_walk

MAX_HOPS = 45


@pytest.mark.skipif(sys.version_info < (3, 11), reason='qualified names need Python 3.11')
def test_the_walk_of_a_scan_is_the_one_the_page_lists(ros):
    """Traced in a process of its own: a profiler slows down everything else in this one."""
    code = 'import scan_walk; print(scan_walk.section(scan_walk.trace_scan()), end="")'
    root = scan_walk.ROOT
    path = os.pathsep.join(map(str, (root, root / 'training', root / 'test')))
    done = subprocess.run(
        [sys.executable, '-c', code],
        env=ros.env | {'PYTHONPATH': path},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    # Two threads work at once, so only what is listed is compared, not the order across threads.
    traced, listed = (
        {line.partition('. ')[2] for line in text.splitlines()}
        for text in (done.stdout, scan_walk.written())
    )
    assert traced == listed, 'run python test/scan_walk.py'


def test_the_walk_is_short_and_names_existing_files():
    lines = scan_walk.written().splitlines()
    assert 20 < len(lines) <= MAX_HOPS
    for line in lines:
        for file in line.split('`')[1:4:2]:
            assert (Path(scan_walk.PACKAGE) / file).is_file(), line
