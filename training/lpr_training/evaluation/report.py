"""The results of an evaluation, written as JSON, Markdown, PNG and PDF."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lpr_ros.core.files import atomic_file
from lpr_ros.core.markdown import markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURE_FORMATS = ('png', 'pdf')


@dataclass(frozen=True, eq=False)
class Result:
    """Base class of results; fractions are in [0, 1], undefined values are NaN (null in JSON)."""

    def to_dict(self) -> dict[str, Any]:
        """Return nested dicts, lists and scalars that `json.dump` accepts."""
        return {f.name: to_json(getattr(self, f.name)) for f in fields(self)}


@dataclass(frozen=True, eq=False)
class Report:
    """Numbers, Markdown tables and figures of one evaluation."""

    values: Mapping[str, Any]
    markdown: str
    figures: 'Mapping[str, Figure]' = field(default_factory=dict)


def to_json(value: Any) -> Any:
    """Convert arrays, tuples, NumPy scalars, nested dataclasses and NaN to JSON values."""
    if hasattr(value, '__dataclass_fields__'):
        return {f.name: to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, np.ndarray | np.generic):
        return to_json(value.tolist())
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def write_json(path: Path, values: Any) -> None:
    """Write values as JSON; NaN becomes null."""
    with atomic_file(Path(path)) as partial:
        partial.write_text(json.dumps(to_json(values), indent=1) + '\n', encoding='utf-8')


def write_figures(folder: Path, figures: 'Mapping[str, Figure]') -> None:
    """Write every figure as PNG and PDF."""
    for name, figure in figures.items():
        for extension in FIGURE_FORMATS:
            with atomic_file(Path(folder) / f'{name}.{extension}') as partial:
                figure.savefig(partial, format=extension)


def values_table(title: str, rows: Sequence[tuple[str, Any]]) -> str:
    """Return a titled Markdown table of names and values."""
    table = markdown_table(('metric', 'value'), [(name, _format(value)) for name, value in rows])
    return f'**{title}**\n\n{table}'


def percent(fraction: float | None) -> str:
    """Format a fraction in [0, 1] as a percentage, '-' if undefined."""
    return '-' if fraction is None or math.isnan(fraction) else f'{100 * fraction:.2f} %'


def _format(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return '-' if math.isnan(value) else f'{value:.4g}'
