"""Histograms of rank and effective rank before and after shrinkage and whitening."""

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
import numpy as np
from numpy.typing import NDArray

from lpr_training.figures.axes import panels
from lpr_training.spectra import effective_rank, rank

RANK_COLOUR, EFFECTIVE_COLOUR = '#D62728', '#1F77B4'


def plot_ranks(covariances: Mapping[str, NDArray[np.floating]]) -> Figure:
    """Plot, stage -> covariances (N, C, C), both ranks with red and blue lines at the medians."""
    figure, entries = panels(covariances)
    for axes, _, matrices in entries:
        size = matrices.shape[-1]
        bins = np.arange(0.5, size + 1.0, 0.5) - 0.25
        for name, values, colour in (
            ('rank', rank(matrices), RANK_COLOUR),
            ('effective rank', effective_rank(matrices), EFFECTIVE_COLOUR),
        ):
            median = float(np.median(values))
            axes.hist(values, bins=bins, color=colour, alpha=0.5)
            axes.axvline(median, color=colour, label=f'{name}, median {median:.1f}')
        axes.set_xlim(0, size + 0.7)
        axes.set_ylim(0, 1.35 * axes.get_ylim()[1])  # room for the legend
        axes.set_xlabel('rank')
        axes.set_ylabel('clouds')
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(fontsize=7, loc='upper left')
    return figure
