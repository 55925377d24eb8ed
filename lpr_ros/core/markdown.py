"""Tables of documents and results as markdown."""

from collections.abc import Iterable, Sequence


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table with a title for every column, one line per row."""
    lines = [head, *rows]
    cells = [f'| {" | ".join(map(str, line))} |\n' for line in lines]
    return ''.join([cells[0], '|---' * len(head) + '|\n', *cells[1:]])
