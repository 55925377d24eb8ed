"""What an evaluation hands back, and how it is written: JSON, markdown, PNG and PDF."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
import json
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from lpr_ros.core.files import whole_file
from lpr_ros.core.markdown import markdown_table
from lpr_training.protocols.results import plain

FIGURE_FORMATS = ('png', 'pdf')


@dataclass(frozen=True, eq=False)
class Report:
    """Numbers, a table and figures of one evaluation."""

    values: Mapping[str, Any]
    markdown: str
    figures: Mapping[str, Figure] = field(default_factory=dict)


def write_json(path: Path, values: Any) -> None:
    """Write values as JSON; NaN becomes null."""
    with whole_file(Path(path)) as partial:
        partial.write_text(json.dumps(plain(values), indent=1) + '\n', encoding='utf-8')


def write_figures(folder: Path, figures: Mapping[str, Figure]) -> None:
    """Write every figure as PNG and PDF."""
    for name, figure in figures.items():
        for kind in FIGURE_FORMATS:
            with whole_file(Path(folder) / f'{name}.{kind}') as partial:
                figure.savefig(partial, format=kind)


def values_table(title: str, rows: Sequence[tuple[str, Any]]) -> str:
    """Return a table of two columns: what, and how much."""
    table = markdown_table(('', ''), [(name, _text(value)) for name, value in rows])
    return f'**{title}**\n\n{table}'


def _text(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return '-' if value != value else f'{value:.4g}'


def percent(share: float | None) -> str:
    """Return a share in [0, 1] as percent, '-' where it is undefined."""
    return '-' if share is None or share != share else f'{100 * share:.2f} %'
