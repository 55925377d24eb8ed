"""Reliability diagrams: how often matches of a given probability were right."""

from collections.abc import Mapping

from matplotlib.figure import Figure
import numpy as np
from numpy.typing import NDArray

from lpr_training.figures.axes import panels, style_of

Diagram = tuple[NDArray[np.floating], NDArray[np.floating], NDArray[np.integer]]
LARGEST_MARKER = 120.0
PANELS_PER_ROW = 5


def plot_reliability(diagrams: Mapping[str, Mapping[str, Diagram]]) -> Figure:
    """Plot observed over predicted, set -> method -> (predicted, observed, counts) per bin.

    The area of a marker is the share of the predictions in its bin.
    """
    figure, entries = panels(diagrams, rows=max(1, round(len(diagrams) / PANELS_PER_ROW)))
    for axes, _, methods in entries:
        axes.plot([0, 1], [0, 1], color='0.8', linewidth=1)
        for i, (method, (predicted, observed, counts)) in enumerate(methods.items()):
            used = counts > 0
            color = style_of(i)['color']
            axes.plot(predicted[used], observed[used], color=color, linewidth=0.8)
            area = 8.0 + LARGEST_MARKER * counts[used] / max(1, counts.sum())
            axes.scatter(
                predicted[used], observed[used], s=area, color=color, alpha=0.7, label=method
            )
        axes.set_xlim(-0.05, 1.05)
        axes.set_ylim(-0.05, 1.05)
        axes.set_xlabel('predicted probability')
        axes.set_ylabel('fraction right')
        axes.grid(alpha=0.3)
        axes.legend(loc='upper left', fontsize='x-small')
    return figure
