"""Voronoi cells: distances between them, and one query among its neighbours in each."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
import numpy as np
from numpy.typing import NDArray

from lpr_training.figures.axes import panels
from lpr_training.ica import fit_ica

NEIGHBOUR_COLOURS = ('#FF4D4D', '#FFD23F', '#3FE0FF')


def plot_cell_distances(matrices: Mapping[str, NDArray[np.floating]]) -> Figure:
    """Show, model -> W2 between cells (M, M), on one colour scale: brighter is farther."""
    figure, entries = panels(matrices)
    highest = max(float(np.max(matrix)) for matrix in matrices.values())
    for axes, _, matrix in entries:
        image = axes.imshow(matrix, cmap='magma', vmin=0.0, vmax=highest)
        axes.set_xlabel('cell')
        axes.set_ylabel('cell')
    figure.colorbar(image, ax=figure.axes, label='2-Wasserstein distance', shrink=0.8)
    return figure


def plot_cells(
    before: NDArray[np.floating],
    after: NDArray[np.floating],
    query: int,
    neighbours: Sequence[int],
    cells: Sequence[int],
    rng: np.random.Generator,
) -> Figure:
    """Show one query and its neighbours among all clouds, per cell, before and after whitening.

    `before` and `after` are (N, M, C); each panel has its own two independent components. The
    query is a white dot, its neighbours are crosses.
    """
    names = {
        f'cell {m}, {stage}': vectors[:, m]
        for stage, vectors in (('before', before), ('whitened', after))
        for m in cells
    }
    figure, entries = panels(names, rows=2)
    for axes, _, vectors in entries:
        _draw_cell(axes, fit_ica(vectors, 2, rng).apply(vectors), query, neighbours)
    figure.supxlabel('white dot: query; crosses: its nearest neighbours', fontsize=9)
    return figure


def _draw_cell(
    axes: Axes, projected: NDArray[np.float64], query: int, neighbours: Sequence[int]
) -> None:
    """Draw the density of all clouds, the neighbours as crosses and the query as a dot."""
    low, high = np.percentile(projected, [0.5, 99.5], axis=0)
    shown = projected[[query, *neighbours]]
    low, high = np.minimum(low, shown.min(axis=0)), np.maximum(high, shown.max(axis=0))
    margin = 0.05 * (high - low)
    extent = (low[0] - margin[0], high[0] + margin[0], low[1] - margin[1], high[1] + margin[1])
    axes.hexbin(*projected.T, gridsize=30, cmap='viridis', bins='log', extent=extent)
    axes.set_facecolor('#440154')
    for neighbour, colour in zip(neighbours, NEIGHBOUR_COLOURS, strict=False):
        axes.plot(*projected[neighbour], 'x', color=colour, markersize=8, markeredgewidth=2.5)
    axes.plot(*projected[query], 'o', color='white', markersize=6, markeredgecolor='black')
    axes.set_xlim(extent[:2])
    axes.set_ylim(extent[2:])
    axes.set_xticks([])
    axes.set_yticks([])
