"""Figures of pairs of scans aligned by their loop closure."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
import numpy as np

from lpr_ros.core.geometry.se3 import transform_points
from lpr_ros.core.loop_closure.registration import upright_points
from lpr_ros.core.offline.result import DriveResult
from lpr_ros.core.timing import NS_PER_S
from lpr_ros.core.types import LoopClosure
from lpr_ros.report.theme import FONT_SIZE, Theme, new_figure, style

COLUMNS = 3
MAX_PAIRS = 6
MAX_EXTENT_M = 45.0
# Points are rasterized, so the page cannot recolor them; these work on light and dark.
MATCH_COLOR, QUERY_COLOR = '#2f8fd0', '#e8721c'


def chosen_pairs(result: DriveResult) -> list[tuple[str, LoopClosure]]:
    """Return up to six labeled loops: those with the most, median and least overlap."""
    ranked = sorted(result.loops, key=lambda loop: -loop.overlap)
    if len(ranked) <= MAX_PAIRS:
        return [('', loop) for loop in ranked]
    middle = len(ranked) // 2
    picks = {'best': ranked[:2], 'median': ranked[middle - 1 : middle + 1], 'worst': ranked[-2:]}
    return [(label, loop) for label, loops in picks.items() for loop in loops]


def pairs_figure(result: DriveResult, theme: Theme) -> Figure:
    """Draw the chosen pairs from above, the query over the match."""
    pairs = chosen_pairs(result)
    columns = min(COLUMNS, len(pairs))
    rows = -(-len(pairs) // columns)
    figure = new_figure(theme, 3.55 * columns, 3.55 * rows + 0.3)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (label, loop) in zip(grid, pairs, strict=False):
        draw_pair(axes, result, loop, theme, label)
    for axes in grid[len(pairs) :]:
        axes.set_axis_off()
    return figure


def draw_pair(
    axes: Axes, result: DriveResult, loop: LoopClosure, theme: Theme, label: str = ''
) -> None:
    """Draw the upright points of both scans in the match frame."""
    match, query = result.database[loop.match_id], result.database[loop.query_id]
    voxels = result.config.verification.registration
    upright = [
        upright_points(points, voxels.upright_cell_m, voxels.upright_height_m)
        for points in (match.points, transform_points(loop.T_match_query, query.points))
    ]
    for points, color, layer in zip(upright, (MATCH_COLOR, QUERY_COLOR), (1, 2), strict=True):
        axes.scatter(
            points[:, 0],
            points[:, 1],
            s=1.1,
            color=color,
            alpha=0.5,
            linewidths=0,
            rasterized=True,
            zorder=layer,
        )
    T = loop.T_match_query
    axes.plot(0.0, 0.0, 'o', color=theme.ink, markersize=5, zorder=4)
    axes.plot(*T[:2, 3], '^', color=theme.ink, markersize=6, zorder=4)
    center = 0.5 * T[:2, 3]
    gaps = np.abs(np.concatenate(upright)[:, :2] - center).max(axis=1)
    near = gaps[gaps < MAX_EXTENT_M]
    extent = np.percentile(near, 97.0) if len(near) else MAX_EXTENT_M
    axes.set_xlim(center[0] - extent, center[0] + extent)
    axes.set_ylim(center[1] - extent, center[1] + extent)
    axes.set_aspect('equal')
    axes.set_xticks([])
    axes.set_yticks([])
    distance_m = float(np.linalg.norm(T[:3, 3]))
    later_s = (query.stamp_ns - match.stamp_ns) / NS_PER_S
    title = f'Keyframes {loop.match_id} and {loop.query_id}'
    style(axes, theme, f'{title} · {label}' if label else title)
    note = f'overlap {loop.overlap:.0%}, {distance_m:.1f} m apart'
    if query.session == match.session:
        note += f', {later_s:.0f} s later'
    axes.set_xlabel(note, color=theme.muted, fontsize=FONT_SIZE - 0.5)
