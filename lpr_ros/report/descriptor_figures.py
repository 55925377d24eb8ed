"""What the descriptor sees: distances between keyframes, and what became of the matches."""

from matplotlib.figure import Figure
import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.drive_result import DriveResult, Outcome
from lpr_ros.report.theme import FONT_SIZE, Theme, new_figure, style

MOST_ROWS = 700  # of the matrix; a longer drive is shown in steps


def distance_matrix_figure(result: DriveResult, theme: Theme) -> Figure:
    """Show how alike every keyframe is to every earlier one; rings are loop closures."""
    figure = new_figure(theme, 5.4, 4.6)
    axes = figure.add_subplot()
    count = len(result.database)
    step = max(1, -(-count // MOST_ROWS))
    ids = np.arange(0, count, step)
    distances = descriptor_distances(result, ids)
    queries = ids >= result.first_id
    shown = np.where(ids[:, None] < ids[None], distances, np.nan)[:, queries]
    finite = shown[np.isfinite(shown)]
    low, high = np.percentile(finite, [0.5, 90.0]) if len(finite) else (0.0, 1.0)
    edges = (result.first_id - 0.5, count - 0.5, -0.5, count - 0.5)
    image = axes.imshow(
        shown, cmap='cividis_r', vmin=low, vmax=high, origin='lower', extent=edges,
        aspect='auto', interpolation='nearest',
    )  # fmt: skip
    queries_closed = [loop.query_id for loop in result.loops]
    matches_closed = [loop.match_id for loop in result.loops]
    for colour, width in (('white', 2.8), (theme.loop, 1.3)):  # the halo is seen on any colour
        axes.scatter(queries_closed, matches_closed, s=34, facecolors='none', edgecolors=colour,
                     linewidths=width)  # fmt: skip
    axes.set_xlim(edges[:2])
    axes.set_ylim(edges[2:])
    axes.set_xlabel('keyframe')
    axes.set_ylabel('earlier keyframe')
    style(axes, theme)
    bar = figure.colorbar(image, ax=axes, shrink=0.75, pad=0.02)
    bar.set_label('descriptor distance, bright is alike', color=theme.muted)
    bar.ax.tick_params(colors=theme.muted, labelsize=FONT_SIZE - 1.5)
    bar.outline.set_edgecolor(theme.grid)
    return figure


def descriptor_distances(result: DriveResult, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the Euclidean distances of descriptors, (N, N)."""
    rows = np.stack([result.database[int(i)].descriptor for i in ids]).astype(np.float64)
    squares = np.square(rows).sum(axis=1)
    squared = squares[:, None] + squares[None] - 2.0 * rows @ rows.T
    return np.asarray(np.sqrt(np.maximum(squared, 0.0)))


FATES = ('loop closure', 'contradicts others', 'refused by geometry', 'no candidate')


def fate_of(outcome: Outcome, closed: frozenset[int]) -> str:
    """Say what became of the matches of a keyframe."""
    if outcome.query_id in closed:
        return FATES[0]
    if outcome.verified is not None:
        return FATES[1]
    return FATES[2] if outcome.rejected else FATES[3]


def probability_figure(result: DriveResult, theme: Theme) -> Figure:
    """Show each keyframe's nearest match: its distance, what that means, what became of it."""
    figure = new_figure(theme, 5.4, 4.2)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(1.0, 1.35))
    asked = [o for o in result.outcomes if o.matches]
    nearest = sorted((o.matches[0] for o in asked), key=lambda match: match.distance)
    known = [match for match in nearest if np.isfinite(match.probability)]
    if known:
        upper.fill_between(
            [m.distance for m in known], [m.probability for m in known], color=theme.path,
            alpha=0.18, linewidth=0,
        )  # fmt: skip
        upper.plot([m.distance for m in known], [m.probability for m in known], color=theme.path)
    else:
        upper.text(0.5, 0.5, 'the checkpoint is not calibrated', transform=upper.transAxes,
                   ha='center', color=theme.muted, fontsize=FONT_SIZE)  # fmt: skip
    upper.set_ylim(0.0, 1.05)
    upper.set_ylabel('P(same place)')
    style(upper, theme)
    closed = frozenset(loop.query_id for loop in result.loops)
    colours = dict(zip(FATES, (theme.loop, theme.warn, theme.path, theme.truth), strict=True))
    rng = np.random.default_rng(0)
    counts = []
    for row, fate in enumerate(reversed(FATES)):
        distances = [o.matches[0].distance for o in asked if fate_of(o, closed) == fate]
        counts.append(len(distances))
        height = row + rng.uniform(-0.28, 0.28, len(distances))
        lower.scatter(distances, height, s=8, color=colours[fate], alpha=0.75, linewidths=0)
    labels = [f'{fate} ({n})' for fate, n in zip(reversed(FATES), counts, strict=True)]
    lower.set_yticks(range(len(FATES)), labels)
    lower.set_ylim(-0.6, len(FATES) - 0.4)
    lower.set_xlabel('descriptor distance to the nearest match')
    style(lower, theme)
    lower.tick_params(axis='y', labelcolor=theme.ink, length=0)
    for axes in (upper, lower):
        axes.grid(axis='x', color=theme.grid, linewidth=0.6)
        axes.set_axisbelow(True)
    return figure
