"""Figures F.3 to F.5: ranks, distances between cells, and one query among its neighbours."""

from collections.abc import Mapping

from matplotlib.figure import Figure
import numpy as np
from numpy.typing import NDArray

from lpr_training.figures import plot_cell_distances, plot_cells, plot_ranks
from lpr_training.protocols.retrieval import nearest
from lpr_training.reproduction.cells import Cells
from lpr_training.wasserstein import between_cells

SHOWN_CELLS = 4
NEIGHBOURS = 3


def cell_figures(models: Mapping[str, Cells], main: str) -> dict[str, Figure]:
    """Draw the cells of some models on the same clouds; ranks and neighbours of the main one."""
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
            {name: between_cells(inside.after) for name, inside in models.items()}
        ),
    }
    if len(cells.after) > max(NEIGHBOURS, *cells.after.shape[2:]):
        query, neighbours = _query(cells.after)
        shown = range(min(SHOWN_CELLS, cells.after.shape[1]))
        figures['F5_cells'] = plot_cells(
            cells.before, cells.after, query, neighbours, shown, np.random.default_rng(0)
        )
    return figures


def _query(after: NDArray[np.float64]) -> tuple[int, list[int]]:
    """Return the cloud whose nearest neighbours are nearest, and those neighbours."""
    flat = after.reshape(len(after), -1)
    ranked, distances = nearest(flat, flat, NEIGHBOURS + 1)
    others = [[int(i) for i in row if i != q][:NEIGHBOURS] for q, row in enumerate(ranked)]
    query = int(distances[:, -1].argmin())
    return query, others[query]
