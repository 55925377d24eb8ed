"""Fuzz targets: readers of external data with valid inputs to mutate.

A reader must reject damage with an LprError or accept it; the `read` of a target also checks the
guarantees of what was accepted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from lpr_training.benchmarks.fuzz.mutations import BINARY, TEXT, Mutation, damage


@dataclass(frozen=True, eq=False)
class Target:
    """A reader under test: `make` returns a damaged input, `read` reads it."""

    name: str
    make: Callable[[Random], Any]
    read: Callable[[Any], None]
    label: str = ''  # that every error must contain


@dataclass(frozen=True)
class DamagedFile:
    """A file of a valid folder with damaged contents."""

    path: Path
    data: bytes


TEXT_SUFFIXES = ('.csv', '.txt', '.yaml', '.timestamps', '.tum')


def files_target(
    name: str,
    root: Path,
    read: Callable[[], object],
    mutations: Sequence[Mutation] | None = None,
) -> Target:
    """Return a target for a valid file or folder; one file at a time is damaged."""
    paths = sorted(p for p in root.rglob('*') if p.is_file()) if root.is_dir() else [root]
    valid = {path: path.read_bytes() for path in paths}
    read()  # the undamaged input must be accepted

    def make(random: Random) -> DamagedFile:
        path = random.choice(paths)
        similar = [
            valid[path],
            *(valid[p] for p in paths if p.suffix == path.suffix and p != path),
        ]
        default = TEXT if path.suffix in TEXT_SUFFIXES else BINARY
        return DamagedFile(path, damage(similar[:3], random, mutations or default))

    def read_damaged(damaged: DamagedFile) -> None:
        damaged.path.write_bytes(damaged.data)
        try:
            read()
        finally:
            damaged.path.write_bytes(valid[damaged.path])

    return Target(name, make, read_damaged, str(root))


def random_of(name: str, seed: int, index: int) -> Random:
    """Return the random generator of one input."""
    return Random(f'{seed} {name} {index}')
