"""From a recording to a dataset: the keyframes of a bag written place by place."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
import json
from pathlib import Path
from typing import Any

from lpr_ros.core.bags import OnBad
from lpr_ros.core.errors import DatasetError
from lpr_ros.core.files import whole_file
from lpr_training.datasets.base import PlaceDataset
from lpr_training.datasets.places import TABLE, cloud_path, write_cloud, write_poses

RECORD = 'conversion.json'
Progress = Callable[[Iterable[int], int], Iterable[int]]


@dataclass(frozen=True)
class Conversion:
    """What came of one recording."""

    run: str
    places: int  # in the dataset now
    written: int  # of them by this call; the others were there from before


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

    An interrupted conversion goes on where it stopped: places already written are kept. One made
    with other settings is refused. The table of the run is written last, so a run with a table
    is complete.
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
        raise DatasetError(f'{out / run}: expected places to write, got none')
    write_poses(out, run, rows)
    return Conversion(run, len(rows), written)


def is_complete(out: Path, run: str, settings: dict[str, Any]) -> bool:
    """Tell whether a run was converted to the end, with these settings."""
    if not (out / run / TABLE).exists():
        return False
    _check_settings(out, run, settings)
    return True


def _check_settings(out: Path, run: str, settings: dict[str, Any]) -> None:
    """Remember the settings beside the run; refuse to go on with others."""
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
                f'{out / run} was begun with other settings ({", ".join(changed)}: '
                f'{[earlier.get(k) for k in changed]} then, {[plain.get(k) for k in changed]} '
                f'now); remove it or choose another folder'
            )
        return
    with whole_file(path) as partial:
        partial.write_text(json.dumps(plain, indent=2) + '\n', encoding='utf-8')
