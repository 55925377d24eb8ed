"""Figures F.3 to F.5: ranks, distances between cells, and a query with its neighbors."""

from collections.abc import Mapping

from matplotlib.figure import Figure
import numpy as np
from numpy.typing import NDArray

from lpr_training.analysis.wasserstein import between_cells
from lpr_training.evaluation.retrieval import nearest
from lpr_training.figures import plot_cell_distances, plot_cells, plot_ranks
from lpr_training.reproduction.head_activations import Cells

SHOWN_CELLS = 4
NEIGHBORS = 3


def cell_figures(models: Mapping[str, Cells], main: str) -> dict[str, Figure]:
    """Plot the cells of several models on the same clouds, ranks for the main one."""
    cells = models[main]
    ranks = {
        'S': cells.sample,
        'S_R': cells.shrunk,
        "Q L Q'": cells.decomposed,
        "Z Z' / M": cells.whitened,
    }
    figures = {
        'F3_ranks': plot_ranks(ranks),
        'F4_cell_distances': plot_cell_distances(
            {name: between_cells(model.after) for name, model in models.items()}
        ),
    }
    if len(cells.after) > max(NEIGHBORS, *cells.after.shape[2:]):
        query, neighbors = _choose_query(cells.after)
        shown = range(min(SHOWN_CELLS, cells.after.shape[1]))
        figures['F5_cells'] = plot_cells(
            cells.before, cells.after, query, neighbors, shown, np.random.default_rng(0)
        )
    return figures


def _choose_query(after: NDArray[np.float64]) -> tuple[int, list[int]]:
    """Return the cloud with the closest neighbors, and these neighbors."""
    flat = after.reshape(len(after), -1)
    ranked, distances = nearest(flat, flat, NEIGHBORS + 1)
    others = [[int(i) for i in row if i != q][:NEIGHBORS] for q, row in enumerate(ranked)]
    query = int(distances[:, -1].argmin())
    return query, others[query]
