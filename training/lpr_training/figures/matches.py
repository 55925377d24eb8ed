"""Map of a drive with correct, wrong and missed matches."""

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
import numpy as np
from numpy.typing import NDArray

from lpr_training.figures.axes import CORRECT, MISSED, WRONG


def plot_matches(
    positions: NDArray[np.floating],
    query_frames: NDArray[np.integer],
    match_frames: NDArray[np.integer],
    is_correct: NDArray[np.bool_],
    is_revisit: NDArray[np.bool_],
    is_detected: NDArray[np.bool_] | None = None,
    title: str = '',
) -> Figure:
    """Plot the path (N, 2 or more) and the matches of detected queries (default: all).

    Lines connect queries to their matches, green if correct and red if wrong; rings are missed
    revisits. Wrong matches are on top, because they harm a SLAM back-end most.
    """
    xy = np.asarray(positions, dtype=np.float64)[:, :2]
    detected = np.ones(len(query_frames), dtype=bool) if is_detected is None else is_detected
    figure = Figure(figsize=(6.5, 6.5), layout='constrained', dpi=150)
    axes = figure.add_subplot()
    axes.plot(xy[:, 0], xy[:, 1], color='0.75', linewidth=1.5, zorder=1)
    missed = ~detected & is_revisit
    axes.scatter(
        *xy[query_frames[missed]].T,
        s=18,
        facecolors='none',
        edgecolors=MISSED,
        linewidths=0.8,
        zorder=2,
        label=f'missed ({int(missed.sum())})',
    )
    for name, mask, color, layer in (
        ('correct', detected & is_correct, CORRECT, 3),
        ('wrong', detected & ~is_correct, WRONG, 4),
    ):
        _draw_edges(axes, xy, query_frames[mask], match_frames[mask], name, color, layer)
    axes.set_aspect('equal')
    axes.set_xlabel('x (m)')
    axes.set_ylabel('y (m)')
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=8, loc='best')
    return figure


def _draw_edges(
    axes: Axes,
    xy: NDArray[np.float64],
    queries: NDArray[np.integer],
    matches: NDArray[np.integer],
    name: str,
    color: str,
    layer: int,
) -> None:
    """Plot a dot at each query and a line to its match."""
    segments = np.stack([xy[queries], xy[matches]], axis=1)
    axes.add_collection(LineCollection(segments, colors=color, linewidths=0.8, zorder=layer))
    label = f'{name} ({len(queries)})'
    axes.scatter(*xy[queries].T, s=6, color=color, zorder=layer, label=label)
