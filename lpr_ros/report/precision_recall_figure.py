"""Precision and recall against the truth, and where the time goes."""

from matplotlib.figure import Figure
import numpy as np

from lpr_ros.core.drive_result import DriveResult
from lpr_ros.core.drive_summary import median_of, percentile_of, stage_ms, stages_of
from lpr_ros.core.drive_truth import Judgement
from lpr_ros.report.theme import FONT_SIZE, Theme, legend_below, new_figure, style
from lpr_ros.report.words import milliseconds


def precision_recall_figure(judgement: Judgement, theme: Theme) -> Figure:
    """Draw the descriptor alone as a curve over thresholds, and the whole pipeline as a point."""
    figure = new_figure(theme, 5.2, 4.6)
    axes = figure.add_subplot()
    detections = judgement.detections
    if detections is not None:
        axes.plot(
            detections.recall(), detections.precision(), color=theme.path, linewidth=1.8,
            label=f'nearest descriptor alone (F1 {detections.f1_max():.2f} at best)',
        )  # fmt: skip
    if np.isfinite([judgement.precision, judgement.recall]).all():
        axes.plot(
            judgement.recall, judgement.precision, 'D', color=theme.loop, markersize=9,
            label='loop closures, verified', clip_on=False, zorder=4,
        )  # fmt: skip
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.05)
    axes.set_xlabel('recall: revisits found')
    axes.set_ylabel('precision: right ones among those claimed')
    axes.grid(color=theme.grid, linewidth=0.6)
    style(axes, theme)
    legend_below(figure, axes, theme, 1)
    return figure


def timings_figure(result: DriveResult, theme: Theme) -> Figure:
    """Draw the median of each stage as a bar, and its 95th percentile as a tick."""
    stages = stages_of(result)
    figure = new_figure(theme, 5.2, 0.42 * len(stages) + 1.1)
    axes = figure.add_subplot()
    medians, tails = [], []
    for row, stage in enumerate(stages):
        ms = stage_ms(result, stage)
        medians.append(median_of(ms))
        tails.append(percentile_of(ms, 95.0))
        axes.plot([medians[-1], tails[-1]], [row, row], color=theme.muted, linewidth=1.0)
        axes.plot(tails[-1], row, '|', color=theme.muted, markersize=9)
    axes.barh(range(len(stages)), medians, height=0.55, color=theme.path, zorder=3)
    longest = max(tails, default=1.0)
    for row, (median, tail) in enumerate(zip(medians, tails, strict=True)):
        axes.text(max(median, tail) + 0.02 * longest, row, milliseconds(median), va='center',
                  color=theme.ink, fontsize=FONT_SIZE)  # fmt: skip
    axes.set_xlim(0.0, 1.2 * longest)
    axes.set_yticks(range(len(stages)), stages)
    axes.invert_yaxis()
    axes.set_xlabel('ms per keyframe that reaches the stage')
    style(axes, theme)
    axes.tick_params(axis='y', labelcolor=theme.ink, length=0)
    axes.grid(axis='x', color=theme.grid, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure
