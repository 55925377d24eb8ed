"""Figures of the trajectory: from above, before and after correction, and over time."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.geometry.trajectory import align
from lpr_ros.core.offline.result import DriveResult
from lpr_ros.core.offline.summary import odometry_poses
from lpr_ros.core.timing import NS_PER_S
from lpr_ros.core.types import LoopClosure, Place
from lpr_ros.report.theme import FONT_SIZE, Theme, legend_below, new_figure, style

Poses = Mapping[int, NDArray[np.float64]]
MAX_LINES = 400  # loops drawn; more would be unreadable


def drive_figure(result: DriveResult, theme: Theme) -> Figure:
    """Draw the odometry with its loops and, if there are any, the corrected trajectory."""
    odometry, corrected = odometry_poses(result), result.correction.poses
    if not result.loops:
        figure = new_figure(theme, 10.6, 4.4)
        alone = figure.add_subplot()
        draw_drive(alone, result, odometry, theme, 'Odometry only: no loop closures')
        legend_below(figure, alone, theme, 6)
        return figure
    figure = new_figure(theme, 10.6, _height([odometry, corrected]))
    before, after = figure.subplots(1, 2, sharex=True, sharey=True)
    draw_drive(before, result, odometry, theme, 'Before: odometry only')
    draw_drive(after, result, corrected, theme, 'After: with loop closures')
    after.set_ylabel('')
    legend_below(figure, after, theme, 6)
    return figure


def time_figure(result: DriveResult, theme: Theme) -> Figure:
    """Draw the trajectory with time as height; a loop connects two times at one place."""
    figure = new_figure(theme, 5.2, 4.6)
    axes = figure.add_subplot(projection='3d')
    poses = result.correction.poses
    ids = [place.id for place in result.places if place.id in poses]
    xyz = {i: _with_time(result, poses, i) for i in ids}
    path = np.array([xyz[i] for i in ids]).reshape(-1, 3)
    floor = path.copy()
    floor[:, 2] = path[:, 2].min(initial=0.0)
    axes.plot(*floor.T, color=theme.grid, linewidth=2.0)
    for loop in _subsample(result.loops):
        if loop.query_id in xyz and loop.match_id in xyz:
            ends = np.array([xyz[loop.query_id], xyz[loop.match_id]])
            axes.plot(*ends.T, color=theme.loop, linewidth=0.7, alpha=0.8)
    axes.plot(*path.T, color=theme.path, linewidth=1.6)
    style(axes, theme)
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis.set_pane_color((0.0, 0.0, 0.0, 0.0))
        axis.line.set_color(theme.grid)
        axis.set_tick_params(colors=theme.muted, labelsize=FONT_SIZE - 2)
        axis._axinfo['grid'].update(color=theme.grid, linewidth=0.6)
        axis.set_major_locator(MaxNLocator(4))
    axes.set_xlabel('x (m)', color=theme.muted)
    axes.set_ylabel('y (m)', color=theme.muted)
    axes.set_zlabel('time (s)', color=theme.muted, fontsize=FONT_SIZE)
    width, depth = np.ptp(path[:, 0]), np.ptp(path[:, 1])
    longest = max(width, depth, 1.0)
    axes.set_box_aspect((max(width / longest, 0.35), max(depth / longest, 0.35), 0.75), zoom=0.92)
    axes.view_init(elev=24, azim=-58)
    return figure


def draw_drive(axes: Axes, result: DriveResult, poses: Poses, theme: Theme, title: str) -> None:
    """Draw paths, loops and, if known, the ground truth below them."""
    xy = {i: T[:2, 3] for i, T in poses.items()}
    _draw_truth(axes, result, poses, theme)
    for session in dict.fromkeys(place.session for place in _all_places(result)):
        ids = [p.id for p in _all_places(result) if p.session == session and p.id in xy]
        is_old = bool(ids) and ids[0] < result.first_id
        path = np.array([xy[i] for i in ids]).reshape(-1, 2)
        color, label = (theme.truth, 'existing map') if is_old else (theme.path, 'drive')
        axes.plot(*path.T, color=color, linewidth=1.5, zorder=3, label=label)
        if not is_old and len(path):
            axes.plot(*path[0], 'o', color=theme.ink, markersize=5, zorder=5, label='start')
            axes.plot(*path[-1], 's', color=theme.ink, markersize=5, zorder=5, label='end')
    _draw_loops(axes, result, xy, theme)
    axes.set_aspect('equal', adjustable='box')
    axes.grid(color=theme.grid, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel('x (m)')
    axes.set_ylabel('y (m)')
    style(axes, theme, title)


def _draw_loops(
    axes: Axes, result: DriveResult, xy: Mapping[int, NDArray[np.float64]], theme: Theme
) -> None:
    drawn, retracted = (
        [x for x in _subsample(loops) if x.query_id in xy and x.match_id in xy]
        for loops in (result.loops, result.retracted)
    )
    rejected = [x for x in drawn if (x.query_id, x.match_id) in result.correction.rejected]
    kept = [x for x in drawn if x not in rejected]
    looks = (
        (kept, f'loop closures ({len(result.loops)})', theme.loop, 'solid', 'o'),
        (rejected, f'rejected by the optimizer ({len(rejected)})', theme.muted, 'dotted', 'x'),
        (retracted, f'retracted ({len(result.retracted)})', theme.warn, 'dashed', '+'),
    )
    for loops, label, color, line, marker in looks:
        if loops:
            ends = np.array([[xy[x.query_id], xy[x.match_id]] for x in loops])
            axes.add_collection(
                LineCollection(
                    list(ends), colors=color, linestyles=line, linewidths=0.9, alpha=0.85, zorder=4
                )
            )
            axes.plot(
                ends[:, 0, 0],
                ends[:, 0, 1],
                marker,
                color=color,
                zorder=4,
                markersize=3.2,
                label=label,
            )


def _draw_truth(axes: Axes, result: DriveResult, poses: Poses, theme: Theme) -> None:
    """Draw the ground truth, rigidly aligned to the poses of each session."""
    truth = result.T_world_sensor
    for session in dict.fromkeys(place.session for place in result.places):
        ids = [
            p.id for p in result.places if p.session == session and p.id in truth and p.id in poses
        ]
        if len(ids) < 2:
            continue
        true = np.stack([truth[i][:3, 3] for i in ids])
        T = align(true, np.stack([poses[i][:3, 3] for i in ids]))
        moved = true @ T[:3, :3].T + T[:3, 3]
        axes.plot(
            *moved[:, :2].T,
            color=theme.truth,
            linewidth=4.0,
            alpha=0.55,
            zorder=2,
            solid_capstyle='round',
            label='ground truth',
        )


def _with_time(result: DriveResult, poses: Poses, keyframe_id: int) -> NDArray[np.float64]:
    start_ns = result.places[0].stamp_ns
    seconds = (result.database.place(keyframe_id).stamp_ns - start_ns) / NS_PER_S
    return np.array([*poses[keyframe_id][:2, 3], seconds])


def _all_places(result: DriveResult) -> list[Place]:
    return [result.database.place(i) for i in range(len(result.database))]


def _subsample(loops: Sequence[LoopClosure]) -> Sequence[LoopClosure]:
    """Return evenly spaced loops if there are too many to draw."""
    return loops if len(loops) <= MAX_LINES else loops[:: -(-len(loops) // MAX_LINES)]


def _height(drives: Sequence[Poses]) -> float:
    """Return the height in inches of a figure with two panels that fit the drives."""
    xy = np.array([T[:2, 3] for poses in drives for T in poses.values()]).reshape(-1, 2)
    if len(xy) < 2:
        return 4.2
    width, height = np.ptp(xy, axis=0)
    return float(np.clip(4.9 * height / max(width, 1.0) + 1.0, 3.4, 5.8))
