"""The map of a drive with right, wrong and missed matches drawn."""

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
import numpy as np
from numpy.typing import NDArray

from lpr_training.figures.axes import MISSED, RIGHT, WRONG


def plot_matches(
    positions: NDArray[np.floating],
    query_frames: NDArray[np.integer],
    match_frames: NDArray[np.integer],
    is_correct: NDArray[np.bool_],
    is_revisit: NDArray[np.bool_],
    is_claimed: NDArray[np.bool_] | None = None,
    title: str = '',
) -> Figure:
    """Draw the path (N, 2 or more), and each query's match if it is claimed (default: all).

    Right matches are green and wrong ones red lines to what was matched; a revisit that was not
    claimed is a ring. Wrong ones lie on top: they are what a back-end suffers from.
    """
    xy = np.asarray(positions, dtype=np.float64)[:, :2]
    claimed = np.ones(len(query_frames), dtype=bool) if is_claimed is None else is_claimed
    figure = Figure(figsize=(6.5, 6.5), layout='constrained', dpi=150)
    axes = figure.add_subplot()
    axes.plot(xy[:, 0], xy[:, 1], color='0.75', linewidth=1.5, zorder=1)
    missed = ~claimed & is_revisit
    axes.scatter(
        *xy[query_frames[missed]].T,
        s=18,
        facecolors='none',
        edgecolors=MISSED,
        linewidths=0.8,
        zorder=2,
        label=f'missed ({int(missed.sum())})',
    )
    for name, mask, colour, layer in (
        ('right', claimed & is_correct, RIGHT, 3),
        ('wrong', claimed & ~is_correct, WRONG, 4),
    ):
        _draw_edges(axes, xy, query_frames[mask], match_frames[mask], name, colour, layer)
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
    colour: str,
    layer: int,
) -> None:
    """Draw a dot at each query and a line to its match."""
    segments = np.stack([xy[queries], xy[matches]], axis=1)
    axes.add_collection(LineCollection(segments, colors=colour, linewidths=0.8, zorder=layer))
    label = f'{name} ({len(queries)})'
    axes.scatter(*xy[queries].T, s=6, color=colour, zorder=layer, label=label)
