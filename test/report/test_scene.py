"""The 3-D view of the report, as a browser shows it; and the data it is drawn from."""

import base64
import json

from browser import CHROMIUM, MISSING, Browser
import numpy as np
import pytest
from toy_drive import STEPS_PER_LAP, step

from lpr_ros.core.database.place_database import DatabaseConfig, PlaceDatabase
from lpr_ros.core.geometry.odometry_noise import OdometryNoiseConfig
from lpr_ros.core.geometry.points import first_in_voxels
from lpr_ros.core.geometry.se3 import invert, pose_from_euler
from lpr_ros.core.offline.result import DriveResult
from lpr_ros.core.offline.run import correct
from lpr_ros.core.types import LoopClosure, Match
from lpr_ros.report import page
from lpr_ros.report.page import report_page
from lpr_ros.report.scene import map_points, scene_json
from lpr_ros.report.theme import DARK, LIGHT

STEPS = STEPS_PER_LAP + 12
CANVAS, SLIDER = '#scene canvas', '#scene input[type=range]'


@pytest.fixture(scope='module')
def result():
    """A lap and a half with odometry that drifts, and loops that correct it."""
    database = PlaceDatabase(DatabaseConfig(), 2)
    loops = []
    for i in range(STEPS):
        seen = step(i)
        drifted = pose_from_euler([0.0, 0.1 * i, 0.0], [0.0, 0.0, 0.01 * i]) @ seen.T_odom_sensor
        keyframe = database.make_keyframe(
            np.array([i % STEPS_PER_LAP, 1.0], np.float32), seen.points, session='toy',
            stamp_ns=seen.stamp_ns, T_odom_sensor=drifted,
        )  # fmt: skip
        database.add(keyframe)
        if (match := i - STEPS_PER_LAP) >= 0:
            T = invert(step(match).T_odom_sensor) @ seen.T_odom_sensor
            loops.append(
                LoopClosure(i, match, T, 1e-4 * np.eye(6), 0.9, 500, Match(match, 0.1, 0.9))
            )
    noise = OdometryNoiseConfig(position_fraction=0.2, heading_deg=60.0)
    correction = correct(database, loops, noise=noise)
    assert not correction.rejected
    return DriveResult('toy', database, tuple(loops), correction=correction)


def test_the_map_is_the_clouds_at_corrected_poses_thinned_in_order_of_time(result):
    every = map_points(result, 10**6)
    assert first_in_voxels(every.xyz, 0.2).all()
    assert (np.diff(every.keyframe) >= 0).all()
    for i in (0, STEPS - 1):  # those of the second lap lie on those of the first
        cloud = result.database[i].points
        seen = cloud @ result.correction.poses[i][:3, :3].T + result.correction.poses[i][:3, 3]
        gaps = np.linalg.norm(every.xyz[None] - seen[::50, None], axis=2).min(axis=1)
        assert gaps.max() < 0.2 * np.sqrt(3.0) + 1e-3
    few = map_points(result, 500)
    assert 100 < len(few.xyz) <= 500


def test_the_data_of_the_view_are_those_of_the_drive(result):
    points = map_points(result)
    scene = json.loads(scene_json(result, points))

    def array(key, dtype, columns=1):
        return np.frombuffer(base64.b64decode(scene[key]), dtype).reshape(-1, columns)

    positions = np.array([result.correction.poses[i][:3, 3] for i in range(STEPS)])
    center = (positions.min(axis=0) + positions.max(axis=0)) / 2
    np.testing.assert_allclose(array('corrected', '<f4', 3), positions - center, atol=1e-4)
    drawn = scene['unit_m'] * array('points', '<i2', 3)
    np.testing.assert_allclose(drawn, points.xyz - center, atol=0.51 * scene['unit_m'])
    until = array('points_until', '<i4').ravel()
    assert [np.count_nonzero(points.keyframe <= i) for i in range(STEPS)] == until.tolist()
    assert array('loops', '<i4', 2).tolist() == [[x.query_id, x.match_id] for x in result.loops]


def test_the_page_of_a_large_drive_is_below_8_mb(result, rng, monkeypatch):
    """Noise is the worst case: no two points share a voxel."""
    database = PlaceDatabase(DatabaseConfig(), 2)
    for i in range(30):
        cloud = rng.uniform(-500.0, 500.0, (20_000, 3)).astype(np.float32)
        database.add(
            database.make_keyframe(
                np.zeros(2, np.float32), cloud, session='large', stamp_ns=i + 1,
                T_odom_sensor=pose_from_euler([10.0 * i, 0.0, 0.0], [0.0, 0.0, 0.0]),
            )
        )  # fmt: skip
    large = DriveResult('large', database, (), correction=correct(database, ()))
    assert 100_000 < len(map_points(large).xyz) <= 200_000
    assert len(report_page(large, None)) < 8e6


@pytest.fixture(scope='module')
def report(result, tmp_path_factory):
    """The report with the 3-D view alone."""
    path = tmp_path_factory.mktemp('report') / 'report.html'
    with pytest.MonkeyPatch.context() as patch:
        rows = page.figure_rows
        patch.setattr(page, 'figure_rows', lambda figures: rows({'map': figures['map']}))
        path.write_text(report_page(result, None), encoding='utf-8')
    return path


@pytest.fixture(scope='module')
def browser(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip(MISSING)
    browser = Browser(tmp_path_factory.mktemp('chromium'))
    yield browser
    browser.close()


def pixels_of(picture, color, within=3):
    """Count the pixels of a color, given as #rrggbb."""
    rgb = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
    return np.count_nonzero(np.abs(picture.astype(int) - rgb).max(axis=2) <= within)


def slide_to(browser, keyframe):
    browser.evaluate(
        f'document.querySelector({SLIDER!r}).value = {keyframe};'
        f'document.querySelector({SLIDER!r}).dispatchEvent(new Event("input"))'
    )
    return browser.picture(CANVAS)


@pytest.mark.parametrize(('dark', 'theme'), [(False, LIGHT), (True, DARK)])
def test_map_drive_and_loops_are_drawn_in_the_colors_of_the_page(browser, report, dark, theme):
    browser.open(report, 1200, 900, dark=dark)
    picture = browser.picture(CANVAS)
    assert picture.shape[1] > 1000
    assert pixels_of(picture, theme.path) > 100
    assert pixels_of(picture, theme.loop) > 30
    paper = pixels_of(picture, theme.paper)
    assert 0.2 < paper / picture[..., 0].size < 0.97
    browser.evaluate('document.querySelector("[name=map]").click()')
    assert pixels_of(browser.picture(CANVAS), theme.paper) > paper + 3000
    odometry = pixels_of(browser.picture(CANVAS), theme.muted)
    browser.evaluate('document.querySelector("[name=before]").click()')
    assert pixels_of(browser.picture(CANVAS), theme.muted) > odometry + 100
    assert (
        browser.evaluate('getComputedStyle(document.querySelector(".picture")).display') == 'none'
    )
    assert browser.complaints() == []
    asked = [url for url in browser.requests() if not url.startswith('data:')]
    assert asked == [report.as_uri()]


def test_dragging_turns_the_wheel_zooms_and_a_double_click_resets(browser, report):
    browser.open(report, 1200, 900)
    first = browser.picture(CANVAS)
    browser.drag(CANVAS, 150, 40)
    turned = browser.picture(CANVAS)
    assert (turned != first).any(axis=2).mean() > 0.02
    x, y, width, height = browser.box(CANVAS)
    at = x + width / 2, y + height / 2 - browser.evaluate('scrollY')
    browser.mouse('mouseWheel', *at, deltaX=0, deltaY=-400)
    zoomed = browser.picture(CANVAS)
    assert pixels_of(zoomed, LIGHT.paper) < pixels_of(turned, LIGHT.paper)
    browser.evaluate(f'document.querySelector({CANVAS!r}).dispatchEvent(new Event("dblclick"))')
    assert (browser.picture(CANVAS) != first).any(axis=2).mean() < 1e-3
    assert browser.complaints() == []


def test_the_slider_and_the_button_go_through_the_drive(browser, report):
    browser.open(report, 1200, 900)
    clock = 'document.querySelector("#scene output").textContent'
    browser.picture(CANVAS)
    assert browser.evaluate(clock) == '18 s of 18 s · 12 loop closures'
    pictures = [slide_to(browser, i) for i in (0, 8, STEPS_PER_LAP + 4, STEPS - 1)]
    empty = [pixels_of(picture, LIGHT.paper) for picture in pictures]
    assert empty[0] > empty[1] + 2000 > empty[2] + 4000  # the second lap sees nothing new
    loops = [pixels_of(picture, LIGHT.loop) for picture in pictures]
    assert loops[1] == 0
    assert 0 < loops[2] < loops[3]
    slide_to(browser, STEPS_PER_LAP)
    assert browser.evaluate(clock) == '12 s of 18 s · 1 loop closure'
    browser.evaluate('document.querySelector("#scene button").click()')
    arrived = f'document.querySelector({SLIDER!r}).value > {STEPS_PER_LAP}'
    browser.evaluate(
        f'new Promise((f) => {{ const look = () => {arrived} ? f() : requestAnimationFrame(look);'
        'look() })'
    )
    assert browser.complaints() == []


def test_it_fits_a_phone_and_turns_under_a_finger(browser, report):
    browser.open(report, 390, 844)
    first = browser.picture(CANVAS)
    assert browser.evaluate('document.documentElement.scrollWidth') == 390
    for selector in (CANVAS, SLIDER, '#scene output', '.layers label:last-child'):
        x, _, width, height = browser.box(selector)
        assert x >= 0
        assert x + width <= 390
        assert height >= 14
    x, y, width, height = browser.box(CANVAS)
    assert height < 500  # there is page left to scroll by
    x, y = x + width / 2, y + height / 2 - browser.evaluate('scrollY')
    for kind, at in (('Start', [0]), ('Move', [60]), ('End', [])):
        touches = [{'x': x + dx, 'y': y} for dx in at]
        browser.command('Input.dispatchTouchEvent', type=f'touch{kind}', touchPoints=touches)
    assert (browser.picture(CANVAS) != first).any(axis=2).mean() > 0.02
    assert browser.complaints() == []


def test_without_webgl_there_is_the_picture(report, tmp_path):
    if CHROMIUM is None:
        pytest.skip(MISSING)
    browser = Browser(tmp_path, '--disable-3d-apis')
    try:
        browser.open(report, 1200, 900)
        assert browser.evaluate(f'document.querySelector({CANVAS!r}).getContext("webgl")') is None
        assert browser.box('#scene .view')[3] == 0
        picture = browser.picture('#scene .picture')
        assert pixels_of(picture, LIGHT.path) > 100
        assert pixels_of(picture, LIGHT.loop, within=60) > 100  # drawn with transparency
        assert picture[..., 0].size - pixels_of(picture, LIGHT.paper) > 20_000
        assert [e for e in browser.complaints() if e['method'] != 'Log.entryAdded'] == []
    finally:
        browser.close()
