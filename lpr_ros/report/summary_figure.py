"""The summary picture: the numbers, the drive before and after, and one matched pair."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from lpr_ros.core.offline.evaluation import DriveEvaluation
from lpr_ros.core.offline.result import DriveResult
from lpr_ros.core.offline.summary import odometry_poses
from lpr_ros.report import text
from lpr_ros.report.registration_figures import draw_pair
from lpr_ros.report.theme import FONT_SIZE, Theme, new_figure
from lpr_ros.report.trajectory_figures import draw_drive

MAX_TILES = 6


def summary_picture(
    result: DriveResult, evaluation: DriveEvaluation | None, theme: Theme
) -> Figure:
    """Draw name and numbers above; below, the drive before and after, and a pair of scans."""
    figure = new_figure(theme, 12.0, 5.4)
    head, body = figure.subfigures(2, 1, squeeze=False, height_ratios=(1.0, 3.6))[:, 0]
    head.set_facecolor('none')
    body.set_facecolor('none')
    _draw_head(head, result, evaluation, theme)
    panels = body.subplots(1, 3 if result.loops else 2, squeeze=False)[0]
    draw_drive(panels[0], result, odometry_poses(result), theme, 'Before: odometry only')
    draw_drive(panels[1], result, result.correction.poses, theme, 'After: with loop closures')
    for axes in panels[:2]:
        axes.set_xlim(_limits(panels, 'x'))
        axes.set_ylim(_limits(panels, 'y'))
    panels[1].set_ylabel('')
    if result.loops:
        ranked = sorted(result.loops, key=lambda loop: loop.overlap)
        draw_pair(panels[2], result, ranked[len(ranked) // 2], theme)  # a typical one
        panels[2].set_title(
            'A loop closure: two scans of one place',
            loc='left',
            color=theme.ink,
            fontsize=FONT_SIZE + 1.5,
            pad=8,
        )
    return figure


def _draw_head(
    head: SubFigure, result: DriveResult, evaluation: DriveEvaluation | None, theme: Theme
) -> None:
    axes = head.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    axes.text(0.012, 0.93, result.name, fontsize=19, weight='bold', color=theme.ink, va='top')
    tiles = text.tiles(result, evaluation)[:MAX_TILES]
    for column, tile in enumerate(tiles):
        x = 0.012 + column * 0.976 / len(tiles)
        axes.text(x, 0.36, tile.value, fontsize=15, color=theme.path, va='center', weight='bold')
        axes.text(x, 0.08, tile.label, fontsize=FONT_SIZE, color=theme.muted, va='center')


def _limits(panels: Sequence[Axes], axis: str) -> tuple[float, float]:
    """Return axis limits that contain both drives."""
    found = [getattr(axes, f'get_{axis}lim')() for axes in panels[:2]]
    return min(low for low, _ in found), max(high for _, high in found)
