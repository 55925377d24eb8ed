"""Training curves: one panel per quantity."""

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
import numpy as np
from numpy.typing import NDArray

from lpr_training.figures.axes import COLORS, panels

Series = tuple[NDArray[np.floating], NDArray[np.floating]]  # epochs, values


def plot_history(history: Mapping[str, Mapping[str, Series]]) -> Figure:
    """Plot quantity -> series -> (epochs, values), e.g. loss -> train, validation.

    The quantities `loss` and `learning rate` have a logarithmic axis if they are positive.
    """
    rows = 1 if len(history) <= 3 else 2
    figure, entries = panels(history, rows)
    for axes, quantity, series in entries:
        for i, (name, (epochs, values)) in enumerate(series.items()):
            axes.plot(epochs, values, color=COLORS[i % len(COLORS)], label=name, linewidth=1.2)
        all_values = np.concatenate([np.asarray(v, dtype=float) for _, v in series.values()])
        finite = all_values[np.isfinite(all_values)]
        if quantity in ('loss', 'learning rate') and len(finite) and finite.min() > 0:
            axes.set_yscale('log')
        axes.set_xlabel('epoch')
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        if len(series) > 1:
            axes.legend(fontsize=7)
    return figure
