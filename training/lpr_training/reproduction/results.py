"""Read results of earlier stages, and average them over seeds."""

from collections.abc import Mapping, Sequence
import json
from pathlib import Path
from typing import Any

import numpy as np

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.offline.precision_recall import Detections
from lpr_training.evaluation.between_runs import RunsResult
from lpr_training.evaluation.paper_tables import Values
from lpr_training.evaluation.wild_places_intra import IntraResult


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON file of an earlier stage."""
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding='utf-8'))
    except (OSError, ValueError) as error:
        raise DatasetError(
            f'{path}: not a JSON result; remove the file to repeat its stage: {error}'
        ) from error
    return values


def read_runs(path: Path) -> RunsResult:
    """Read a result between runs, without the details of its pairs."""
    values = _numbers(read_json(path)) | {'details': ()}
    return RunsResult(**values)


def read_intra(path: Path) -> IntraResult:
    """Read a result within a sequence."""
    values = _numbers(read_json(path))
    return IntraResult(**values | {'counts': Detections(**_numbers(values['counts']))})


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert lists to arrays and null to NaN."""
    numbers: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, list) and key != 'details':
            numbers[key] = np.array(value, dtype=float)
        else:
            numbers[key] = float('nan') if value is None else value
    return numbers


def mean_of(scores: Sequence[Values]) -> dict[str, dict[str, float | None]]:
    """Return the mean over seeds of every cell that all seeds have."""
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
