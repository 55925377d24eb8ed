"""Axes that all figures share: one look, no global state."""

from collections.abc import Iterator, Mapping
from typing import TypeVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure

T = TypeVar('T')

# Okabe and Ito's palette, told apart by colour-blind readers too.
COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#000000')
MARKERS = ('o', 's', '^', 'D', 'v', 'P', 'X')
RIGHT, WRONG, MISSED = '#009E73', '#D55E00', '#E69F00'
PANEL_INCHES = (3.4, 2.8)


def panels(names: Mapping[str, T], rows: int = 1) -> tuple[Figure, Iterator[tuple[Axes, str, T]]]:
    """Return a figure with one titled panel per entry, and the panels with their entries."""
    columns = max(1, -(-len(names) // rows))
    size = (PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows)
    figure = Figure(figsize=size, layout='constrained', dpi=150)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for unused in grid[len(names) :]:
        unused.set_axis_off()
    return figure, _titled(grid, names)


def _titled(grid: list[Axes], names: Mapping[str, T]) -> Iterator[tuple[Axes, str, T]]:
    for axes, (name, value) in zip(grid, names.items(), strict=False):
        axes.set_title(name, fontsize=10)
        yield axes, name, value


def style_of(index: int) -> dict[str, str]:
    """Return colour and marker of the index-th method, the same in every panel."""
    return {'color': COLOURS[index % len(COLOURS)], 'marker': MARKERS[index % len(MARKERS)]}
