"""The common style of all figures: light, dark, or SVG that takes its colors from the page.

The hues are from the color-blind safe palette of Okabe and Ito; shape or position distinguishes
them as well.
"""

from dataclasses import asdict, dataclass
import io
import re

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

FONT_SIZE = 9.5
RASTER_DPI = 170  # of point clouds in vector figures


@dataclass(frozen=True)
class Theme:
    """A color for each role."""

    paper: str
    ink: str
    muted: str
    grid: str
    path: str  # the drive; the matched scan
    loop: str  # loop closures; the query scan
    truth: str
    good: str
    warn: str


LIGHT = Theme(
    paper='#ffffff',
    ink='#1b2430',
    muted='#5b6675',
    grid='#e3e7ed',
    path='#0072b2',
    loop='#d55e00',
    truth='#9aa3b0',
    good='#009e73',
    warn='#b57900',
)
DARK = Theme(
    paper='#12161d',
    ink='#e6eaf0',
    muted='#98a3b3',
    grid='#2a3240',
    path='#56b4e9',
    loop='#ff8a3d',
    truth='#6f7b8c',
    good='#35c99b',
    warn='#f0b93a',
)
# Placeholders, one per role, that become CSS variables of the page when written as SVG.
PAGE = Theme(*(f'#0{i}0{i}0{i}' for i in range(1, 10)))


def new_figure(theme: Theme, width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches."""
    figure = Figure(figsize=(width, height), layout='constrained', dpi=150)
    figure.patch.set_facecolor(theme.paper)
    figure.patch.set_alpha(0.0 if theme is PAGE else 1.0)
    return figure


def style(axes: Axes, theme: Theme, title: str = '') -> None:
    """Apply the common style to axes."""
    axes.set_facecolor('none')
    for spine in axes.spines.values():
        spine.set_color(theme.grid)
    axes.tick_params(colors=theme.muted, labelsize=FONT_SIZE - 1, length=3, color=theme.grid)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_color(theme.muted)
        label.set_fontsize(FONT_SIZE)
    if title:
        axes.set_title(title, loc='left', color=theme.ink, fontsize=FONT_SIZE + 1.5, pad=8)


def legend_below(figure: Figure, axes: Axes, theme: Theme, columns: int) -> None:
    """Add the legend of axes below the figure, without duplicate labels."""
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    found = figure.legend(
        handles.values(),
        handles.keys(),
        loc='outside lower center',
        ncols=columns,
        frameon=False,
        fontsize=FONT_SIZE,
    )
    for text in found.get_texts():
        text.set_color(theme.ink)


def css_variables(theme: Theme) -> str:
    """Return the colors as CSS variable declarations."""
    return ' '.join(f'--{role}: {color};' for role, color in asdict(theme).items())


def to_svg(figure: Figure, name: str, description: str) -> str:
    """Return an inline <svg> in the colors of the page; IDs start with `name`.

    The figure must be drawn with PAGE. Text stays text, in the font of the page.
    """
    stream = io.StringIO()
    with rc_context({'svg.fonttype': 'none', 'svg.hashsalt': name}):
        figure.savefig(stream, format='svg', dpi=RASTER_DPI, metadata={'Date': None})
    svg = stream.getvalue()
    svg = svg[svg.index('<svg') :]
    svg = re.sub(r'<metadata>.*?</metadata>', '', svg, flags=re.DOTALL)
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', '', svg, count=2)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(url\(|href=")#', rf'\1#{name}-', svg)
    svg = re.sub(r"'[^']*', sans-serif|\"?DejaVu Sans\"?", 'inherit', svg)
    for role, color in asdict(PAGE).items():
        svg = svg.replace(color, f'var(--{role})')
    label = description.replace('&', '&amp;').replace('"', '&quot;').replace('<', '&lt;')
    return svg.replace('<svg ', f'<svg role="img" aria-label="{label}" ', 1)


def to_png(figure: Figure, dpi: int = 150) -> bytes:
    """Return a figure drawn with LIGHT or DARK as PNG."""
    stream = io.BytesIO()
    figure.savefig(stream, format='png', dpi=dpi, facecolor=figure.get_facecolor())
    return stream.getvalue()
