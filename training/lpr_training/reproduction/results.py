"""Results of protocols on disk, read back as what the tables and figures take."""

from collections.abc import Mapping, Sequence
import json
from pathlib import Path
from typing import Any

import numpy as np

from lpr_ros.core.detections import Detections
from lpr_ros.core.errors import DatasetError
from lpr_training.protocols.runs import RunsResult
from lpr_training.protocols.wild_places_intra import IntraResult
from lpr_training.tables import Values


def read_json(path: Path) -> dict[str, Any]:
    """Read a result of an earlier stage."""
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding='utf-8'))
    except (OSError, ValueError) as error:
        raise DatasetError(f'{path}: expected a result; remove it to redo: {error}') from error
    return values


def read_runs(path: Path) -> RunsResult:
    """Read a result between runs; the details of its pairs are left in the file."""
    values = _numbers(read_json(path)) | {'details': ()}
    return RunsResult(**values)


def read_intra(path: Path) -> IntraResult:
    """Read a result within a sequence."""
    values = _numbers(read_json(path))
    return IntraResult(**values | {'counts': Detections(**_numbers(values['counts']))})


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Turn lists into arrays and null into NaN."""
    return {
        key: np.array(value, dtype=float) if isinstance(value, list) and key != 'details'
        else float('nan') if value is None else value
        for key, value in values.items()
    }  # fmt: skip


def mean_of(scores: Sequence[Values]) -> dict[str, dict[str, float | None]]:
    """Return the mean over seeds of every cell; a cell that one seed lacks is left out."""
    first = scores[0]
    return {
        name: {
            metric: float(np.mean([s[name][metric] for s in scores]))
            for metric in first[name]
            if all(s.get(name, {}).get(metric) is not None for s in scores)
        }
        for name in first
    }


def spread_of(scores: Sequence[Values]) -> dict[str, dict[str, float]]:
    """Return the standard deviation over seeds of every cell, 0 with one seed."""
    ddof = min(1, len(scores) - 1)
    return {
        name: {
            metric: float(np.std(np.array([s[name][metric] for s in scores], float), ddof=ddof))
            for metric in cells
        }
        for name, cells in mean_of(scores).items()
    }
