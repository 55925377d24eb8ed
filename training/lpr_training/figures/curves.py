"""Retrieval and detection curves: MAP@K, ROC, precision-recall."""

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
import numpy as np
from numpy.typing import NDArray

from lpr_training.figures.axes import panels, style_of

Curve = tuple[NDArray[np.floating], NDArray[np.floating]]  # x, y


def plot_map_at_k(curves: Mapping[str, Mapping[str, NDArray[np.floating]]]) -> Figure:
    """Plot MAP@1 to MAP@K in percent, dataset -> method -> (K,) fractions.

    AP@K is divided by min(K, number of true neighbors).
    """
    figure, entries = panels(curves)
    for axes, _, methods in entries:
        for i, (method, values) in enumerate(methods.items()):
            k = np.arange(1, len(values) + 1)
            axes.plot(k, 100 * np.asarray(values), label=method, markersize=4, **style_of(i))
        axes.set_xlabel('K')
        axes.set_ylabel('MAP@K (%)')
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _add_grid_and_legend(axes, 'best')
    return figure


def plot_roc(curves: Mapping[str, Mapping[str, Curve]]) -> Figure:
    """Plot true over false positive rates, sequence -> method -> (fpr, tpr).

    Curves may end before (1, 1), because distances can exceed the largest threshold.
    """
    figure, entries = panels(curves)
    for axes, _, methods in entries:
        axes.plot([0, 1], [0, 1], color='0.8', linewidth=1)
        for i, (method, (fpr, tpr)) in enumerate(methods.items()):
            axes.plot(fpr, tpr, label=method, color=style_of(i)['color'])
        axes.set_xlabel('false positive rate')
        axes.set_ylabel('true positive rate')
        _unit_square(axes)
        _add_grid_and_legend(axes, 'lower right')
    return figure


def plot_precision_recall(curves: Mapping[str, Curve], title: str = '') -> Figure:
    """Plot precision over recall, method -> (recall, precision), with F1max marked."""
    figure, entries = panels({title: curves})
    for axes, _, methods in entries:
        for i, (method, (recall, precision)) in enumerate(methods.items()):
            recall, precision = np.asarray(recall), np.asarray(precision)
            total = np.maximum(recall + precision, np.finfo(float).tiny)
            f1 = 2 * recall * precision / total
            best = int(f1.argmax())
            color = style_of(i)['color']
            axes.plot(recall, precision, color=color, label=f'{method} (F1max {f1[best]:.3f})')
            axes.plot(recall[best], precision[best], color=color, marker='o', markersize=5)
        axes.set_xlabel('recall')
        axes.set_ylabel('precision')
        _unit_square(axes)
        _add_grid_and_legend(axes, 'lower left')
    return figure


def _unit_square(axes: Axes) -> None:
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)


def _add_grid_and_legend(axes: Axes, location: str) -> None:
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, loc=location, framealpha=0.9)
