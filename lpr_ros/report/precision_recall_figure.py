"""Figure of precision and recall."""

from matplotlib.figure import Figure
import numpy as np

from lpr_ros.core.offline.evaluation import DriveEvaluation
from lpr_ros.report.theme import Theme, legend_below, new_figure, style


def precision_recall_figure(evaluation: DriveEvaluation, theme: Theme) -> Figure:
    """Draw the descriptor alone as a curve over thresholds, and the pipeline as a point."""
    figure = new_figure(theme, 5.2, 4.6)
    axes = figure.add_subplot()
    detections = evaluation.detections
    if detections is not None:
        axes.plot(
            detections.recall(),
            detections.precision(),
            color=theme.path,
            linewidth=1.8,
            label=f'nearest descriptor alone (maximum F1 {detections.f1_max():.2f})',
        )
    metrics = evaluation.loop_metrics
    recall, precision = metrics['recall_each'], metrics['precision']  # the curve is per keyframe
    if np.isfinite([precision, recall]).all():
        axes.plot(
            recall,
            precision,
            'D',
            color=theme.loop,
            markersize=9,
            label='verified loop closures',
            clip_on=False,
            zorder=4,
        )
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.05)
    axes.set_xlabel('recall')
    axes.set_ylabel('precision')
    axes.grid(color=theme.grid, linewidth=0.6)
    style(axes, theme)
    legend_below(figure, axes, theme, 1)
    return figure
