"""Convert a dataset, such as the keyframes of a bag, to the format `places`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
import json
from pathlib import Path
from typing import Any

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.files import atomic_file
from lpr_ros.core.recordings.base import OnBad
from lpr_training.datasets.base import PlaceDataset
from lpr_training.datasets.places import TABLE, cloud_path, write_cloud, write_poses

RECORD = 'conversion.json'
Progress = Callable[[Iterable[int], int], Iterable[int]]


@dataclass(frozen=True)
class Conversion:
    """Result of one conversion."""

    run: str
    places: int  # in the converted run
    written: int  # by this call; the others were written before an interruption


def convert(
    dataset: PlaceDataset,
    out: Path,
    run: str,
    settings: dict[str, Any],
    *,
    progress: Progress = lambda items, total: items,
    on_bad: OnBad | None = None,
) -> Conversion:
    """Write every place of a dataset as a run under `out`.

    An interrupted conversion resumes and keeps the places already written, unless the settings
    have changed, which raises DatasetError. The table is written last: a run with a table is
    complete.
    """
    _check_settings(out, run, settings)
    rows, written = [], 0
    for index in progress(range(len(dataset)), len(dataset)):
        stamp_ns = int(dataset.stamps_ns[index])
        if not cloud_path(out, run, stamp_ns).exists():
            try:
                points = dataset.points(index)
            except DatasetError as error:
                if on_bad is None:
                    raise
                on_bad(error)
                continue
            write_cloud(out, run, stamp_ns, points)
            written += 1
        rows.append((stamp_ns, dataset.T_world_sensor[index]))
    if not rows:
        raise DatasetError(f'{out / run}: no readable places to write')
    write_poses(out, run, rows)
    return Conversion(run, len(rows), written)


def is_complete(out: Path, run: str, settings: dict[str, Any]) -> bool:
    """Return whether a run was converted completely with these settings."""
    if not (out / run / TABLE).exists():
        return False
    _check_settings(out, run, settings)
    return True


def _check_settings(out: Path, run: str, settings: dict[str, Any]) -> None:
    """Store the settings with the run; raise DatasetError if it has others."""
    path = out / run / RECORD
    plain = json.loads(json.dumps(settings))
    if path.exists():
        try:
            earlier = json.loads(path.read_text(encoding='utf-8'))
        except (OSError, ValueError) as error:
            raise DatasetError(f'{path}: expected JSON: {error}') from error
        if earlier != plain:
            changed = sorted(k for k in {*earlier, *plain} if earlier.get(k) != plain.get(k))
            raise DatasetError(
                f'{out / run} was converted with other settings ({", ".join(changed)}: '
                f'{[earlier.get(k) for k in changed]}, expected {[plain.get(k) for k in changed]}'
                f'); remove it or choose another folder'
            )
        return
    with atomic_file(path) as partial:
        partial.write_text(json.dumps(plain, indent=2) + '\n', encoding='utf-8')
