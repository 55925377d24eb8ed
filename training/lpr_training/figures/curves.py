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
    """Plot MAP@1..K in percent, data set -> method -> (K,) fractions.

    AP@K is divided by min(K, number of true neighbours).
    """
    figure, entries = panels(curves)
    for axes, _, methods in entries:
        for i, (method, values) in enumerate(methods.items()):
            k = np.arange(1, len(values) + 1)
            axes.plot(k, 100 * np.asarray(values), label=method, markersize=4, **style_of(i))
        axes.set_xlabel('K')
        axes.set_ylabel('MAP@K (%)')
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _finish(axes, 'best')
    return figure


def plot_roc(curves: Mapping[str, Mapping[str, Curve]]) -> Figure:
    """Plot true against false positive rates, sequence -> method -> (fpr, tpr).

    The end points need not reach (1, 1): distances may exceed the largest threshold.
    """
    figure, entries = panels(curves)
    for axes, _, methods in entries:
        axes.plot([0, 1], [0, 1], color='0.8', linewidth=1)
        for i, (method, (fpr, tpr)) in enumerate(methods.items()):
            axes.plot(fpr, tpr, label=method, color=style_of(i)['color'])
        axes.set_xlabel('false positive rate')
        axes.set_ylabel('true positive rate')
        _unit_square(axes)
        _finish(axes, 'lower right')
    return figure


def plot_precision_recall(curves: Mapping[str, Curve], title: str = '') -> Figure:
    """Plot precision over recall, method -> (recall, precision), with F1max marked and named."""
    figure, entries = panels({title: curves})
    for axes, _, methods in entries:
        for i, (method, (recall, precision)) in enumerate(methods.items()):
            recall, precision = np.asarray(recall), np.asarray(precision)
            total = np.maximum(recall + precision, np.finfo(float).tiny)
            f1 = 2 * recall * precision / total
            best = int(f1.argmax())
            colour = style_of(i)['color']
            axes.plot(recall, precision, color=colour, label=f'{method} (F1max {f1[best]:.3f})')
            axes.plot(recall[best], precision[best], color=colour, marker='o', markersize=5)
        axes.set_xlabel('recall')
        axes.set_ylabel('precision')
        _unit_square(axes)
        _finish(axes, 'lower left')
    return figure


def _unit_square(axes: Axes) -> None:
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)


def _finish(axes: Axes, legend: str) -> None:
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, loc=legend, framealpha=0.9)
