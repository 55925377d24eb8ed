"""Voronoi cells: distances between cells, and a query with its neighbors per cell."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
import numpy as np
from numpy.typing import NDArray

from lpr_training.analysis.ica import fit_ica
from lpr_training.figures.axes import panels

NEIGHBOR_COLORS = ('#FF4D4D', '#FFD23F', '#3FE0FF')


def plot_cell_distances(matrices: Mapping[str, NDArray[np.floating]]) -> Figure:
    """Plot model -> W2 between cells (M, M) on a common color scale."""
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
    neighbors: Sequence[int],
    cells: Sequence[int],
    rng: np.random.Generator,
) -> Figure:
    """Plot a query and its neighbors among all clouds, per cell, before and after whitening.

    `before` and `after` are (N, M, C). Each panel shows two independent components, fitted to
    that panel; the query is a white dot, its neighbors are crosses.
    """
    names = {
        f'cell {m}, {stage}': vectors[:, m]
        for stage, vectors in (('before', before), ('whitened', after))
        for m in cells
    }
    figure, entries = panels(names, rows=2)
    for axes, _, vectors in entries:
        _draw_cell(axes, fit_ica(vectors, 2, rng).apply(vectors), query, neighbors)
    figure.supxlabel('white dot: query; crosses: nearest neighbors', fontsize=9)
    return figure


def _draw_cell(
    axes: Axes, projected: NDArray[np.float64], query: int, neighbors: Sequence[int]
) -> None:
    """Plot the density of all clouds, the neighbors as crosses and the query as a dot."""
    low, high = np.percentile(projected, [0.5, 99.5], axis=0)
    shown = projected[[query, *neighbors]]
    low, high = np.minimum(low, shown.min(axis=0)), np.maximum(high, shown.max(axis=0))
    margin = 0.05 * (high - low)
    extent = (low[0] - margin[0], high[0] + margin[0], low[1] - margin[1], high[1] + margin[1])
    axes.hexbin(*projected.T, gridsize=30, cmap='viridis', bins='log', extent=extent)
    axes.set_facecolor('#440154')
    for neighbor, color in zip(neighbors, NEIGHBOR_COLORS, strict=False):
        axes.plot(*projected[neighbor], 'x', color=color, markersize=8, markeredgewidth=2.5)
    axes.plot(*projected[query], 'o', color='white', markersize=6, markeredgecolor='black')
    axes.set_xlim(extent[:2])
    axes.set_ylim(extent[2:])
    axes.set_xticks([])
    axes.set_yticks([])
