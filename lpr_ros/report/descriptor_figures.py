"""Figures of descriptor distances between keyframes and of the outcome of their matches."""

from matplotlib.figure import Figure
import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.offline.result import DriveResult, Outcome
from lpr_ros.report.theme import FONT_SIZE, Theme, new_figure, style

MAX_ROWS = 700  # of the matrix; longer drives are subsampled


def distance_matrix_figure(result: DriveResult, theme: Theme) -> Figure:
    """Draw the descriptor distance of every keyframe to every earlier one, and the loops."""
    figure = new_figure(theme, 5.4, 4.6)
    axes = figure.add_subplot()
    count = len(result.database)
    step = max(1, -(-count // MAX_ROWS))
    ids = np.arange(0, count, step)
    distances = descriptor_distances(result, ids)
    queries = ids >= result.first_id
    shown = np.where(ids[:, None] < ids[None], distances, np.nan)[:, queries]
    finite = shown[np.isfinite(shown)]
    low, high = np.percentile(finite, [0.5, 90.0]) if len(finite) else (0.0, 1.0)
    edges = (result.first_id - 0.5, count - 0.5, -0.5, count - 0.5)
    image = axes.imshow(
        shown,
        cmap='cividis_r',
        vmin=low,
        vmax=high,
        origin='lower',
        extent=edges,
        aspect='auto',
        interpolation='nearest',
    )
    query_ids = [loop.query_id for loop in result.loops]
    match_ids = [loop.match_id for loop in result.loops]
    for color, width in (('white', 2.8), (theme.loop, 1.3)):  # a halo, visible on any color
        axes.scatter(
            query_ids, match_ids, s=34, facecolors='none', edgecolors=color, linewidths=width
        )
    axes.set_xlim(edges[:2])
    axes.set_ylim(edges[2:])
    axes.set_xlabel('keyframe')
    axes.set_ylabel('earlier keyframe')
    style(axes, theme)
    bar = figure.colorbar(image, ax=axes, shrink=0.75, pad=0.02)
    bar.set_label('descriptor distance (bright: similar)', color=theme.muted)
    bar.ax.tick_params(colors=theme.muted, labelsize=FONT_SIZE - 1.5)
    bar.outline.set_edgecolor(theme.grid)
    return figure


def descriptor_distances(result: DriveResult, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the Euclidean distances between descriptors, (N, N)."""
    rows = np.stack([result.database[int(i)].descriptor for i in ids]).astype(np.float64)
    squares = np.square(rows).sum(axis=1)
    squared = squares[:, None] + squares[None] - 2.0 * rows @ rows.T
    return np.asarray(np.sqrt(np.maximum(squared, 0.0)))


OUTCOMES = (
    'loop closure',
    'inconsistent',
    'failed verification',
    'excluded by odometry',
    'no candidate',
)


def outcome_label(outcome: Outcome, closed: frozenset[int]) -> str:
    """Return what happened to the matches of a keyframe."""
    if outcome.query_id in closed:
        return OUTCOMES[0]
    if outcome.verified is not None:
        return OUTCOMES[1]
    if outcome.rejected:
        return OUTCOMES[2]
    return OUTCOMES[3] if outcome.excluded else OUTCOMES[4]


def probability_figure(result: DriveResult, theme: Theme) -> Figure:
    """Draw the distance, probability and outcome of the nearest match of each keyframe."""
    figure = new_figure(theme, 5.4, 4.2)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(1.0, 1.35))
    queries = [o for o in result.outcomes if o.matches]
    nearest = sorted((o.matches[0] for o in queries), key=lambda match: match.distance)
    known = [match for match in nearest if np.isfinite(match.probability)]
    if known:
        upper.fill_between(
            [m.distance for m in known],
            [m.probability for m in known],
            color=theme.path,
            alpha=0.18,
            linewidth=0,
        )
        upper.plot([m.distance for m in known], [m.probability for m in known], color=theme.path)
    else:
        upper.text(
            0.5,
            0.5,
            'No probabilities',
            transform=upper.transAxes,
            ha='center',
            color=theme.muted,
            fontsize=FONT_SIZE,
        )
    upper.set_ylim(0.0, 1.05)
    upper.set_ylabel('P(same place)')
    style(upper, theme)
    closed = frozenset(loop.query_id for loop in result.loops)
    shades = (theme.loop, theme.warn, theme.path, theme.muted, theme.truth)
    colors = dict(zip(OUTCOMES, shades, strict=True))
    rng = np.random.default_rng(0)
    counts = []
    for row, label in enumerate(reversed(OUTCOMES)):
        distances = [o.matches[0].distance for o in queries if outcome_label(o, closed) == label]
        counts.append(len(distances))
        height = row + rng.uniform(-0.28, 0.28, len(distances))
        lower.scatter(distances, height, s=8, color=colors[label], alpha=0.75, linewidths=0)
    labels = [f'{label} ({n})' for label, n in zip(reversed(OUTCOMES), counts, strict=True)]
    lower.set_yticks(range(len(OUTCOMES)), labels)
    lower.set_ylim(-0.6, len(OUTCOMES) - 0.4)
    lower.set_xlabel('descriptor distance to the nearest match')
    style(lower, theme)
    lower.tick_params(axis='y', labelcolor=theme.ink, length=0)
    for axes in (upper, lower):
        axes.grid(axis='x', color=theme.grid, linewidth=0.6)
        axes.set_axisbelow(True)
    return figure
