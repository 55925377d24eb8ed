"""Histograms of rank and effective rank before and after shrinkage and whitening."""

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
import numpy as np
from numpy.typing import NDArray

from lpr_training.analysis.effective_rank import effective_rank, rank
from lpr_training.figures.axes import panels

RANK_COLOR, EFFECTIVE_COLOR = '#D62728', '#1F77B4'


def plot_ranks(covariances: Mapping[str, NDArray[np.floating]]) -> Figure:
    """Plot stage -> covariances (N, C, C) as histograms of both ranks, with the medians."""
    figure, entries = panels(covariances)
    for axes, _, matrices in entries:
        size = matrices.shape[-1]
        bins = np.arange(0.5, size + 1.0, 0.5) - 0.25
        for name, values, color in (
            ('rank', rank(matrices), RANK_COLOR),
            ('effective rank', effective_rank(matrices), EFFECTIVE_COLOR),
        ):
            median = float(np.median(values))
            axes.hist(values, bins=bins, color=color, alpha=0.5)
            axes.axvline(median, color=color, label=f'{name}, median {median:.1f}')
        axes.set_xlim(0, size + 0.7)
        axes.set_ylim(0, 1.35 * axes.get_ylim()[1])  # room for the legend
        axes.set_xlabel('rank')
        axes.set_ylabel('clouds')
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(fontsize=7, loc='upper left')
    return figure
