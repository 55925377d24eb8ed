"""report.html, one file with everything in it, and report.png, the picture to pass on."""

from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

import yaml

from lpr_ros.core import drive_files
from lpr_ros.core.config import changed_settings
from lpr_ros.core.drive_result import DriveResult
from lpr_ros.core.drive_truth import Judgement
from lpr_ros.core.files import whole_file
from lpr_ros.report import words
from lpr_ros.report.chart_figures import precision_recall_figure, timings_figure
from lpr_ros.report.drive_figures import drive_figure, time_figure
from lpr_ros.report.match_figures import distance_matrix_figure, probability_figure
from lpr_ros.report.pair_figures import pairs_figure
from lpr_ros.report.stylesheet import STYLE
from lpr_ros.report.summary_picture import summary_picture
from lpr_ros.report.theme import LIGHT, PAGE, to_png, to_svg

REPORT, PICTURE = 'report.html', 'report.png'
TITLES = {
    'drive': 'The drive and its loop closures',
    'time': 'Loops in time',
    'matrix': 'What looks alike',
    'pairs': 'Matched scans',
    'truth': 'Precision and recall',
    'probability': 'The nearest matches',
    'timings': 'Where the time goes',
}
FILES = {
    drive_files.LOOPS: 'the loop closures: T_match_query, covariance, overlap, probability',
    drive_files.KEYFRAMES: 'the keyframes: poses by odometry, corrected and true; nearest matches',
    drive_files.MAP: 'the place database; --map finds another drive in it',
    drive_files.GRAPH: 'odometry and loops as a pose graph, at the corrected poses',
    drive_files.ODOMETRY: 'the trajectory before, TUM',
    drive_files.CORRECTED: 'and after',
    drive_files.TIMINGS: 'milliseconds of each keyframe by stage',
    drive_files.SUMMARY: 'the numbers of this page',
}
MOST_LISTED = 20  # scans left out, of a kind


def write_report(folder: Path, result: DriveResult, judgement: Judgement | None) -> None:
    """Write the page and the picture into a folder."""
    with whole_file(folder / REPORT) as partial:
        partial.write_text(report_page(result, judgement), encoding='utf-8')
    if result.correction.poses:
        with whole_file(folder / PICTURE) as partial:
            partial.write_bytes(to_png(summary_picture(result, judgement, LIGHT)))


def report_page(result: DriveResult, judgement: Judgement | None) -> str:
    """Return the page: well-formed, with no reference to anything outside it."""
    captions = words.captions(result, judgement)
    figures = {
        name: _figure(name, svg, captions[name])
        for name, svg in draw_figures(result, judgement).items()
    }
    body = [
        _header(result, judgement),
        *_in_order(figures),
        _trouble(result),
        _about(result),
        _settings(result),
        _files(result),
    ]
    title = escape(f'{result.name}: loop closures')
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f'<title>{title}</title><style>{STYLE}</style></head><body><main>'
        + '\n'.join(part for part in body if part)
        + '<footer>Made by lpr_ros, LiDAR place recognition and loop closure for ROS 2.</footer>'
        '</main></body></html>\n'
    )


def draw_figures(result: DriveResult, judgement: Judgement | None) -> dict[str, str]:
    """Draw each figure that there is data for, as SVG, by its name."""
    drawn = {}
    if result.correction.poses and result.places:
        drawn['drive'] = drive_figure(result, PAGE)
        if result.loops:
            drawn['time'] = time_figure(result, PAGE)
    if len(result.places) > 1:
        drawn['matrix'] = distance_matrix_figure(result, PAGE)
    if result.loops:
        drawn['pairs'] = pairs_figure(result, PAGE)
    if judgement is not None and (judgement.detections or judgement.errors.loops):
        drawn['truth'] = precision_recall_figure(judgement, PAGE)
    if any(outcome.matches for outcome in result.outcomes):
        drawn['probability'] = probability_figure(result, PAGE)
    if any(outcome.seconds for outcome in result.outcomes):
        drawn['timings'] = timings_figure(result, PAGE)
    return {name: to_svg(figure, name, TITLES[name]) for name, figure in drawn.items()}


def _header(result: DriveResult, judgement: Judgement | None) -> str:
    shown = ''.join(
        f'<div class="tile{" long" if len(tile.value) > 9 else ""}"><b>{escape(tile.value)}</b>'
        f'<span>{escape(tile.label)}</span><i>{escape(tile.note)}</i></div>'
        for tile in words.tiles(result, judgement)
    )
    notes = ''.join(f'<p class="hint">{escape(text)}</p>' for text in words.hints(result))
    return (
        f'<header><p class="eyebrow">Loop closure report</p><h1>{escape(result.name)}</h1>'
        f'<p class="lead">{escape(words.headline(result))}</p>'
        f'<div class="tiles">{shown}</div>{notes}</header>'
    )


def _in_order(figures: Mapping[str, str]) -> Iterable[str]:
    """Yield wide figures alone and small ones in pairs."""
    yield figures.get('drive', '')
    yield _side_by_side(figures, 'time', 'matrix')
    yield figures.get('pairs', '')
    small = [name for name in ('truth', 'probability', 'timings') if name in figures]
    yield _side_by_side(figures, *small[:2])
    yield _side_by_side(figures, *small[2:])


def _side_by_side(figures: Mapping[str, str], *names: str) -> str:
    found = [figures[name] for name in names if name in figures]
    return f'<div class="pair">{"".join(found)}</div>' if found else ''


def _figure(name: str, svg: str, caption: str) -> str:
    return (
        f'<section id="{name}"><h2>{escape(TITLES[name])}</h2><figure>{svg}'
        f'<figcaption>{escape(caption)}</figcaption></figure></section>'
    )


def _trouble(result: DriveResult) -> str:
    if not result.drops:
        return f'<section><h2>What went wrong</h2><p class="note">{_nothing(result)}</p></section>'
    parts = []
    for sentence, texts in words.drops_in_words(result):
        listed = ''.join(f'<li><code>{escape(text)}</code></li>' for text in texts[:MOST_LISTED])
        more = len(texts) - MOST_LISTED
        rest = f'<li>and {more} more</li>' if more > 0 else ''
        parts.append(
            f'<details><summary>{escape(sentence)}</summary><ul>{listed}{rest}</ul></details>'
        )
    return f'<section><h2>What went wrong</h2>{"".join(parts)}</section>'


def _nothing(result: DriveResult) -> str:
    return f'Nothing: all {result.scans} scans were used.' if result.scans else 'Nothing is known.'


def _about(result: DriveResult) -> str:
    note = result.checkpoint
    origin = [f'{k}: {v}' for k, v in note.provenance.items() if isinstance(v, str | int | float)]
    rows = {
        **{key.capitalize(): value for key, value in result.about.items()},
        'Weights': note.path,
        'Fingerprint': note.fingerprint[:16],
        'Licence of the weights': note.licence,
        'Origin of the weights': '; '.join(origin),
    }
    return f'<section><h2>Data and weights</h2>{_table(rows)}</section>'


def _settings(result: DriveResult) -> str:
    changed = changed_settings(result.config)
    rows = {key: f'{value} (default {usual})' for key, (value, usual) in changed.items()}
    summary = _table(rows) if rows else '<p class="note">All at their defaults.</p>'
    text = yaml.safe_dump(result.config.to_dict(), sort_keys=False)
    return (
        f'<section><h2>Settings</h2>{summary}<details><summary>All settings, as --config takes '
        f'them</summary><pre>{escape(text)}</pre></details></section>'
    )


def _files(result: DriveResult) -> str:
    tracked = {drive_files.GRAPH, drive_files.ODOMETRY, drive_files.CORRECTED}
    rows = {name: text for name, text in FILES.items()
            if result.has_odometry or name not in tracked}  # fmt: skip
    return f'<section><h2>Files beside this page</h2>{_table(rows)}</section>'


def _table(rows: Mapping[str, str]) -> str:
    cells = ''.join(
        f'<tr><th scope="row">{escape(key)}</th><td>{escape(value)}</td></tr>'
        for key, value in rows.items()
        if value
    )
    return f'<table>{cells}</table>'
