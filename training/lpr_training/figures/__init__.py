"""Figures of the paper and the evaluation: functions of arrays that return a Figure.

They do not use pyplot, so nothing is shown or kept; save with `figure.savefig(path)`.
"""

from lpr_training.figures.cells import plot_cell_distances, plot_cells
from lpr_training.figures.curves import plot_map_at_k, plot_precision_recall, plot_roc
from lpr_training.figures.history import plot_history
from lpr_training.figures.matches import plot_matches
from lpr_training.figures.ranks import plot_ranks
from lpr_training.figures.reliability import plot_reliability

__all__ = [
    'plot_cell_distances',
    'plot_cells',
    'plot_history',
    'plot_map_at_k',
    'plot_matches',
    'plot_precision_recall',
    'plot_ranks',
    'plot_reliability',
    'plot_roc',
]
