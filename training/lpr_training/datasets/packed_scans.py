"""Datasets packed into one .npz per run: found by name."""

from collections.abc import Sequence
from pathlib import Path

from lpr_ros.core.errors import DatasetError
from lpr_training.datasets.base import describe_folder


def find_npz(root: Path, prefix: str, runs: Sequence[str] | None) -> dict[str, Path]:
    """Return run -> ROOT/<prefix><run>.npz, of the given runs or of all; ROOT may be one file."""
    root = Path(root)
    paths = [root] if root.is_file() else sorted(root.glob(f'{prefix}*.npz'))
    found = {path.stem.removeprefix(prefix): path for path in paths}
    missing = sorted(set(runs or ()) - set(found))
    if not found or missing:
        raise DatasetError(
            f'expected {root}/{prefix}{missing[0] if missing else "<run>"}.npz, '
            f'found {describe_folder(root)}'
        )
    return found if runs is None else {run: found[run] for run in runs}
