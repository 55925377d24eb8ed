"""Figure of the processing time of each stage."""

from matplotlib.figure import Figure

from lpr_ros.core.offline.result import DriveResult
from lpr_ros.core.offline.statistics import median_of, percentile_of
from lpr_ros.core.offline.summary import stage_ms, stages_of
from lpr_ros.report.text import milliseconds
from lpr_ros.report.theme import FONT_SIZE, Theme, new_figure, style


def timings_figure(result: DriveResult, theme: Theme) -> Figure:
    """Draw the median time of each stage as a bar, and its 95th percentile as a tick."""
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
        axes.text(
            max(median, tail) + 0.02 * longest,
            row,
            milliseconds(median),
            va='center',
            color=theme.ink,
            fontsize=FONT_SIZE,
        )
    axes.set_xlim(0.0, 1.2 * longest)
    axes.set_yticks(range(len(stages)), stages)
    axes.invert_yaxis()
    axes.set_xlabel('ms per keyframe that reaches the stage')
    style(axes, theme)
    axes.tick_params(axis='y', labelcolor=theme.ink, length=0)
    axes.grid(axis='x', color=theme.grid, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure
