"""The figures of a benchmark beside their goals, as markdown."""

from collections.abc import Mapping
from typing import Any


def figure_table(title: str, figures: Mapping[str, Any], goals: Mapping[str, str]) -> str:
    """Return a row for each figure that is a number."""
    rows = [
        f'| {name} | {_text(value)} | {goals.get(name, "")} |'
        for name, value in figures.items() if isinstance(value, int | float)
    ]  # fmt: skip
    return '\n'.join([f'| {title} | figure | goal |', '|---|---|---|', *rows])


def _text(value: float) -> str:
    return str(value) if isinstance(value, int) else f'{value:.2f}'
