"""Panels, colors and markers shared by all figures."""

from collections.abc import Iterator, Mapping
from typing import TypeVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure

T = TypeVar('T')

# The palette of Okabe and Ito, distinguishable by color-blind readers.
COLORS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#000000')
MARKERS = ('o', 's', '^', 'D', 'v', 'P', 'X')
CORRECT, WRONG, MISSED = '#009E73', '#D55E00', '#E69F00'
PANEL_INCHES = (3.4, 2.8)


def panels(names: Mapping[str, T], rows: int = 1) -> tuple[Figure, Iterator[tuple[Axes, str, T]]]:
    """Return a figure with one titled panel per entry, and (axes, name, entry) of each."""
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
    """Return the color and marker of the index-th method."""
    return {'color': COLORS[index % len(COLORS)], 'marker': MARKERS[index % len(MARKERS)]}
