"""Writes report.html, a single self-contained file, and report.png, a summary to share."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import yaml

from lpr_ros.core.config import changed_settings
from lpr_ros.core.errors import utf8_text
from lpr_ros.core.files import atomic_file
from lpr_ros.core.offline import export
from lpr_ros.core.offline.evaluation import DriveEvaluation
from lpr_ros.core.offline.result import DriveResult
from lpr_ros.report import text
from lpr_ros.report.descriptor_figures import distance_matrix_figure, probability_figure
from lpr_ros.report.precision_recall_figure import precision_recall_figure
from lpr_ros.report.registration_figures import pairs_figure
from lpr_ros.report.scene import map_figure, map_points, scene_json
from lpr_ros.report.summary_figure import summary_picture
from lpr_ros.report.theme import DARK, LIGHT, PAGE, css_variables, to_png, to_svg
from lpr_ros.report.timings_figure import timings_figure
from lpr_ros.report.trajectory_figures import drive_figure, time_figure

REPORT, PICTURE = 'report.html', 'report.png'
TEMPLATES = Path(__file__).parent / 'templates'
MAX_MESSAGES = 20  # dropped scans listed per kind


@dataclass(frozen=True)
class PageFigure:
    """A figure as it appears on the page."""

    name: str
    title: str
    svg: str
    caption: str
    scene: str = ''  # data of the 3-D view that takes the place of the picture where it can


@dataclass(frozen=True)
class FigureRow:
    """Figures in one row of the page; those in a side-by-side row take half of the width."""

    figures: list[PageFigure]
    side_by_side: bool


def write_report(folder: Path, result: DriveResult, evaluation: DriveEvaluation | None) -> None:
    """Write the page and the picture into a folder."""
    for name, write in report_writers(result, evaluation).items():
        write(folder / name)


def report_writers(
    result: DriveResult, evaluation: DriveEvaluation | None
) -> dict[str, export.FileWriter]:
    """Return the writers of the page and, if there is a trajectory, of the picture."""

    def write_page(path: Path) -> None:
        page = utf8_text(report_page(result, evaluation))
        with atomic_file(path) as temporary:
            temporary.write_text(page, encoding='utf-8')

    def write_picture(path: Path) -> None:
        picture = to_png(summary_picture(result, evaluation, LIGHT))
        with atomic_file(path) as temporary:
            temporary.write_bytes(picture)

    writers: dict[str, export.FileWriter] = {REPORT: write_page}
    if result.correction.poses:
        writers[PICTURE] = write_picture
    return writers


def report_page(result: DriveResult, evaluation: DriveEvaluation | None) -> str:
    """Return the page: well-formed XML, without references to other files."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    figures = draw_figures(result, evaluation)
    return (
        environment.get_template('report.html.j2')
        .render(
            name=result.name,
            light=css_variables(LIGHT),
            dark=css_variables(DARK),
            headline=text.headline(result),
            tiles=text.tiles(result, evaluation),
            hints=text.hints(result),
            figure_rows=figure_rows(figures),
            keyframes=len(result.database),
            drops=text.drop_sentences(result),
            max_messages=MAX_MESSAGES,
            scans=result.scans,
            about=about_rows(result),
            changed_settings={
                key: f'{value} (default {default})'
                for key, (value, default) in changed_settings(result.config).items()
            },
            settings_yaml=yaml.safe_dump(result.config.to_dict(), sort_keys=False),
            files=text.file_descriptions(result),
        )
        .lstrip()
    )


def draw_figures(result: DriveResult, evaluation: DriveEvaluation | None) -> dict[str, PageFigure]:
    """Draw each figure that there is data for."""
    drawn: dict[str, Any] = {}
    scenes: dict[str, str] = {}
    if result.correction.poses and result.places:
        points = map_points(result)
        drawn['map'] = map_figure(result, points, PAGE)
        scenes['map'] = scene_json(result, points)
        drawn['drive'] = drive_figure(result, PAGE)
        if result.loops:
            drawn['time'] = time_figure(result, PAGE)
    if len(result.places) > 1:
        drawn['matrix'] = distance_matrix_figure(result, PAGE)
    if result.loops:
        drawn['pairs'] = pairs_figure(result, PAGE)
    if evaluation is not None and (evaluation.detections or evaluation.errors.loops):
        drawn['truth'] = precision_recall_figure(evaluation, PAGE)
    if any(outcome.matches for outcome in result.outcomes):
        drawn['probability'] = probability_figure(result, PAGE)
    if any(outcome.seconds for outcome in result.outcomes):
        drawn['timings'] = timings_figure(result, PAGE)
    captions = text.captions(result, evaluation)
    return {
        name: PageFigure(
            name,
            text.TITLES[name],
            to_svg(figure, name, text.TITLES[name]),
            captions[name],
            scenes.get(name, ''),
        )
        for name, figure in drawn.items()
    }


def figure_rows(figures: Mapping[str, PageFigure]) -> list[FigureRow]:
    """Arrange wide figures alone and small ones in pairs."""
    small = [name for name in ('truth', 'probability', 'timings') if name in figures]
    arrangement = (
        (['map'], False),
        (['drive'], False),
        (['time', 'matrix'], True),
        (['pairs'], False),
        (small[:2], True),
        (small[2:], True),
    )
    rows = [
        FigureRow([figures[name] for name in names if name in figures], side_by_side)
        for names, side_by_side in arrangement
    ]
    return [row for row in rows if row.figures]


def about_rows(result: DriveResult) -> dict[str, str]:
    """Return the sources of the data and the weights, by label."""
    note = result.checkpoint
    origin = [f'{k}: {v}' for k, v in note.provenance.items() if isinstance(v, str | int | float)]
    return {
        **{key.capitalize(): value for key, value in result.about.items()},
        'Weights': note.path,
        'Fingerprint': note.fingerprint[:16],
        'License of the weights': note.license,
        'Origin of the weights': '; '.join(origin),
    }
