"""What is fuzzed: every reader of what comes from outside, and valid inputs to begin with.

A reader must refuse damage in words, or accept it; what it accepts must keep its promises, which
the `read` of each target checks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from lpr_training.benchmarks.fuzz_mutations import BINARY, TEXT, Mutation, damage


@dataclass(frozen=True, eq=False)
class Target:
    """One reader; `make` gives a damaged input, `read` reads it."""

    name: str
    make: Callable[[Random], Any]
    read: Callable[[Any], None]
    label: str = ''  # what every refusal has to name


@dataclass(frozen=True)
class DamagedFile:
    """One file of a valid folder, with other contents."""

    path: Path
    data: bytes


TEXT_SUFFIXES = ('.csv', '.txt', '.yaml', '.g2o', '.timestamps', '.tum')


def files_target(
    name: str,
    root: Path,
    read: Callable[[], object],
    mutations: Sequence[Mutation] | None = None,
) -> Target:
    """Return a target of a valid file, or folder, `root`: one file at a time is damaged."""
    paths = sorted(p for p in root.rglob('*') if p.is_file()) if root.is_dir() else [root]
    valid = {path: path.read_bytes() for path in paths}
    read()  # what is valid is accepted, or the damage would prove nothing

    def make(random: Random) -> DamagedFile:
        path = random.choice(paths)
        alike = [valid[path], *(valid[p] for p in paths if p.suffix == path.suffix and p != path)]
        usual = TEXT if path.suffix in TEXT_SUFFIXES else BINARY
        return DamagedFile(path, damage(alike[:3], random, mutations or usual))

    def read_damaged(damaged: DamagedFile) -> None:
        damaged.path.write_bytes(damaged.data)
        try:
            read()
        finally:
            damaged.path.write_bytes(valid[damaged.path])

    return Target(name, make, read_damaged, str(root))


def random_of(name: str, seed: int, index: int) -> Random:
    """Return the one source of chance of an input."""
    return Random(f'{seed} {name} {index}')
