"""Markdown tables for documents and results."""

from collections.abc import Iterable, Mapping, Sequence


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [head, *rows]
    cells = [f'| {" | ".join(map(str, line))} |\n' for line in lines]
    return ''.join([cells[0], '|---' * len(head) + '|\n', *cells[1:]])


def metric_table(
    title: str, metrics: Mapping[str, object], targets: Mapping[str, str] | None = None
) -> str:
    """Return a table of the numbers in `metrics` with their targets; other values are skipped."""
    rows = [
        (name, value if isinstance(value, int) else f'{value:.2f}', (targets or {}).get(name, ''))
        for name, value in metrics.items()
        if isinstance(value, int | float)
    ]
    return markdown_table((title, 'value', 'target'), rows)
