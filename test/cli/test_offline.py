"""The offline command on a small drive that comes back to where it began."""

import csv
from dataclasses import replace
import json
import os
from pathlib import Path
import signal
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

from lpr_ros import offline
from lpr_ros.core import offline_run
from lpr_ros.core.closer_process import CloserProcess
from lpr_ros.core.config import override
from lpr_ros.core.database import PlaceDatabase
from lpr_ros.core.database_config import DatabaseConfig
from lpr_ros.core.drive_files import read_loops
from lpr_ros.core.drive_result import DriveResult
from lpr_ros.core.drive_truth import judge
from lpr_ros.core.g2o import read_g2o
from lpr_ros.core.geometry import Trajectory, invert
from lpr_ros.core.model.describer import Describer
from lpr_ros.core.offline_run import run_offline
from lpr_ros.core.pipeline import Pipeline, PipelineConfig
from lpr_ros.core.poses import read_tum, write_tum
from lpr_ros.core.resources import default_weights
from lpr_ros.core.scan_sources import SourceOptions, open_source
from lpr_ros.report.page import report_page
from lpr_training.datasets.bag_writer import write_bag
from lpr_training.datasets.kitti import write_kitti
from lpr_training.simulator import (
    OdometryConfig,
    SimulationConfig,
    load_sensor,
    make_drive,
    make_world,
    simulate_drive,
)
from lpr_training.simulator.trajectory import trajectory_from

ROOT = Path(__file__).resolve().parents[1]
RADIUS_M = 17.0
SETTINGS = {
    'keyframes.distance_m': 3.0,
    'database.exclude_s': 5.0,
    'database.exclude_m': 60.0,
    'candidates': 1,
    'pairwise.odometry.position_share': 0.03,
    'pairwise.odometry.heading_deg': 3.0,
}
CONFIG = override(PipelineConfig(), SETTINGS)
ARGUMENTS = ['--quiet', '--device', 'cpu', '--set', *(f'{k}={v}' for k, v in SETTINGS.items())]
FILES = {
    'loops.csv', 'keyframes.csv', 'timings.csv', 'map.lpr', 'graph.g2o', 'summary.json',
    'trajectory_odometry.tum', 'trajectory_corrected.tum', 'report.html', 'report.png',
}  # fmt: skip


@pytest.fixture(scope='module')
def scans():
    """A lap and a quarter on a circle, odometry that turns too much."""
    angle = np.linspace(0.0, 2.5 * np.pi, 400)
    circle = RADIUS_M * np.stack([np.sin(angle), 1.0 - np.cos(angle), 0.0 * angle], axis=1)
    world = make_world('suburb', 31, trajectory=trajectory_from(circle, 'circle'))
    odometry = OdometryConfig(heading_bias_deg=8.0, position_walk_m=0.3)
    config = SimulationConfig(spacing_m=1.5, traffic_per_km=0.0, odometry=odometry, workers=1)
    sensor = replace(load_sensor('hdl32'), columns=720)
    return list(simulate_drive(world, sensor, make_drive(world), config, seed=31))


@pytest.fixture(scope='module')
def bag(scans, tmp_path_factory):
    path = tmp_path_factory.mktemp('bag') / 'circle'
    write_bag(path, scans)
    return path


@pytest.fixture(scope='module')
def describer():
    return Describer.load(default_weights(), device='cpu')


@pytest.fixture(scope='module')
def out(bag, tmp_path_factory):
    """What the command wrote."""
    folder = tmp_path_factory.mktemp('out') / 'circle'
    assert offline.main([str(bag), '--out', str(folder), *ARGUMENTS]) == 0
    return folder


def test_all_files_are_there_and_nothing_else(out):
    assert {path.name for path in out.iterdir()} == FILES
    assert [path.name for path in out.parent.iterdir()] == ['circle']


def test_loops_are_those_of_the_pipeline(out, scans, describer, tmp_path):
    """Scans handed one by one to the pipeline, as a node would, and from other files."""
    write_kitti(tmp_path, '00', scans)
    stamps = np.array([s.stamp_ns for s in scans])
    write_tum(tmp_path / 'odom', Trajectory(stamps, np.stack([s.T_odom_sensor for s in scans])))
    source = open_source(tmp_path / 'sequences/00', SourceOptions(poses=tmp_path / 'odom'))
    pipeline = Pipeline(CONFIG, describer)
    expected = []
    for recorded in source:
        step = pipeline.add(recorded.scan)
        expected += [] if step is None else step.verdict.trusted
    loops = read_loops(out / 'loops.csv')
    assert len(loops) == len(expected) >= 3
    for read, true in zip(loops, expected, strict=True):
        assert (read.query_id, read.match_id) == (true.query_id, true.match_id)
        assert read.inliers == pytest.approx(true.inliers, rel=0.02)
        np.testing.assert_allclose(read.T_match_query, true.T_match_query, atol=1e-3)
        np.testing.assert_allclose(read.covariance, true.covariance, rtol=0.05, atol=1e-6)
        assert read.match.distance == pytest.approx(true.match.distance, abs=1e-3)


def test_map_graph_and_trajectories_read_back(out, describer):
    database = PlaceDatabase.load(
        out / 'map.lpr', DatabaseConfig(), fingerprint=describer.fingerprint
    )
    assert database.sessions == ('circle',)
    graph = read_g2o(out / 'graph.g2o')
    assert sorted(graph.poses) == list(range(len(database)))
    loops = [(e.to_id, e.from_id) for e in graph.edges if e.is_loop]
    assert loops == [(x.query_id, x.match_id) for x in read_loops(out / 'loops.csv')]
    odometry = read_tum(out / 'trajectory_odometry.tum')
    corrected = read_tum(out / 'trajectory_corrected.tum')
    for i in range(len(database)):
        place = database.place(i)
        np.testing.assert_allclose(odometry.at(place.stamp_ns), place.T_odom_sensor, atol=1e-9)
        np.testing.assert_allclose(corrected.at(place.stamp_ns), graph.poses[i], atol=1e-9)
    with (out / 'keyframes.csv').open(newline='') as stream:
        rows = list(csv.DictReader(stream))
    assert [int(row['id']) for row in rows] == list(range(len(database)))
    assert float(rows[5]['corrected_x']) == pytest.approx(graph.poses[5][0, 3])


def test_loops_are_right_and_correction_helps(out):
    summary = json.loads((out / 'summary.json').read_text())
    assert summary['precision'] == 1.0
    assert summary['recall'] > 0.3
    assert summary['pose_error_median_m'] < 0.2
    assert summary['ate_corrected_m'] < 0.5 * summary['ate_odometry_m']
    assert summary['loop_gap_corrected_m'] < summary['loop_gap_odometry_m']
    assert summary['dropped'] == {}
    assert 'CC BY-NC-SA' in summary['checkpoint']['licence']


def parse(page):
    return ElementTree.fromstring(page.removeprefix('<!DOCTYPE html>'))


def test_report_is_well_formed_and_needs_nothing_else(out):
    page = (out / 'report.html').read_text(encoding='utf-8')
    root = parse(page)
    sections = {node.get('id') for node in root.iter('section')}
    expected = {'drive', 'time', 'matrix', 'pairs', 'truth', 'probability', 'timings'}
    assert expected <= sections
    drawn = list(root.iter('{http://www.w3.org/2000/svg}svg'))
    assert len(drawn) == len(expected)
    ids = [node.get('id') for node in root.iter() if node.get('id')]
    assert len(ids) == len(set(ids))
    links = [v for node in root.iter() for k, v in node.attrib.items() if k.split('}')[-1] in
             ('href', 'src')]  # fmt: skip
    assert links
    assert all(link.startswith(('#', 'data:image/png;base64,')) for link in links)
    assert {link[1:] for link in links if link[0] == '#'} <= set(ids)
    style = root.find('head/style').text
    assert '@import' not in style
    assert 'url(' not in style
    assert 'prefers-color-scheme: dark' in style
    assert not [role for role in ('010101', '050505', '090909') if f'#{role}' in page]
    assert (out / 'report.png').read_bytes()[:4] == b'\x89PNG'


def test_a_result_put_together_from_files_gives_the_same_report(out, describer):
    """What a demo or a node has left, the map and the loops, is enough."""
    database = PlaceDatabase.load(
        out / 'map.lpr', DatabaseConfig(), fingerprint=describer.fingerprint
    )
    recorded = DriveResult('recorded', database, tuple(read_loops(out / 'loops.csv')))
    sections = {node.get('id') for node in parse(report_page(recorded, None)).iter('section')}
    assert {'matrix', 'pairs'} <= sections
    assert 'truth' not in sections


def test_an_old_map_is_found_again(out, bag, describer):
    """A drive with an odometry frame of its own is placed in the map of an earlier one."""
    source = open_source(bag)
    shift = np.eye(4)
    shift[:3, 3] = 500.0, -300.0, 0.0
    source.T_odom_sensor = shift @ source.T_odom_sensor
    stop = Countdown(45)
    found = run_offline(
        source, describer, CONFIG, session='again', old_map=out / 'map.lpr',
        should_stop=stop,
    )  # fmt: skip
    assert found.database.sessions == ('circle', 'again')
    into_old = [loop for loop in found.loops if loop.match_id < found.first_id]
    assert len(into_old) >= 3
    newest, poses = max(found.correction.poses), found.correction.poses
    twin = newest - found.first_id  # the same scan, in the old map
    gap = invert(poses[twin]) @ poses[newest]
    assert np.linalg.norm(gap[:3, 3]) < 1.0  # and not 583 m
    page = report_page(found, judge(found))
    assert f'lead into the old map of {found.first_id} keyframes' in page


class Countdown:
    """Says stop after so many scans."""

    def __init__(self, scans):
        self.left = scans

    def __call__(self):
        self.left -= 1
        return self.left < 0


def test_bad_scans_are_counted_by_kind_and_listed(scans, describer, tmp_path):
    few = scans[:14]
    write_kitti(tmp_path, '00', few)
    velodyne = tmp_path / 'sequences/00/velodyne'
    (velodyne / '000003.bin').write_bytes(b'cut')
    np.full((50, 4), 900.0, np.float32).tofile(velodyne / '000006.bin')  # beyond any range
    times = [s.stamp_ns for s in few]
    times[9] = times[8]
    (tmp_path / 'sequences/00/times.txt').write_text('\n'.join(f'{t / 1e9:.9f}' for t in times))
    source = open_source(tmp_path / 'sequences/00')
    source.T_odom_sensor[11] = np.nan
    config = override(CONFIG, {'keyframes.distance_m': 0.5})
    found = run_offline(source, describer, config)
    assert {kind: len(texts) for kind, texts in found.drops.items()} == {
        'unreadable': 1, 'cloud': 1, 'stamp': 1, 'odometry': 1,
    }  # fmt: skip
    assert (found.scans, len(found.places)) == (14, 10)
    page = report_page(found, judge(found))
    assert '000003.bin' in page
    assert 'scan 11: no odometry' in page
    assert 'No loops found: no keyframe had an older one' in page


class DiesOnce(CloserProcess):
    """A closer whose process is killed when the first candidates come."""

    killed = 0

    def close(self, sighting):
        if sighting.candidates and not self.killed:
            self.killed = self.pid
            os.kill(self.pid, signal.SIGKILL)
        return super().close(sighting)


def test_verification_that_dies_costs_the_loops_of_one_keyframe(
    out, bag, describer, monkeypatch
):
    """It is in a process of its own, which does not outlive the drive."""
    pids, others = [], children()
    monkeypatch.setattr(offline_run, 'CloserProcess', DiesOnce)
    found = run_offline(
        open_source(bag), describer, CONFIG, on_scan=lambda gathered: pids.append(children())
    )
    (reason,) = found.drops['verification']
    first = next(o for o in found.outcomes if o.candidates)
    assert reason.startswith(f'keyframe {first.query_id}: verification ended with status -9')
    assert first.verified is None
    assert len(found.outcomes) == len(found.places)
    expected = [ends(loop) for loop in read_loops(out / 'loops.csv')]
    assert len(expected) >= 3
    assert [ends(loop) for loop in found.loops] == [
        (query, match) for query, match in expected if query != first.query_id
    ]
    assert '1 scan got no loops, as verification failed' in report_page(found, judge(found))
    assert len(pids[0] - others) == 1
    assert not (set().union(*pids) - others) & children()


def children():
    """Return the processes that this one has started and that have not ended."""
    text = Path(f'/proc/self/task/{os.getpid()}/children').read_text()
    return {int(pid) for pid in text.split()}


def ends(loop):
    return loop.query_id, loop.match_id


def test_interrupted_it_writes_the_drive_so_far(bag, tmp_path):
    """The first Ctrl-C ends the drive; everything is written, and says so."""
    code = (
        'import os, signal, sys; from lpr_ros import offline; '
        'from lpr_ros.core import offline_run as run; take = run.Gathered.take\n'
        'def taking(self, recorded, step):\n'
        '    take(self, recorded, step)\n'
        '    if len(self.outcomes) == 4: os.kill(os.getpid(), signal.SIGINT)\n'
        'run.Gathered.take = taking\n'
        'sys.exit(offline.main(sys.argv[1:]))\n'
    )
    command = [sys.executable, '-c', code, str(bag), '--out', str(tmp_path / 'out'), *ARGUMENTS]
    environment = {**os.environ, 'PYTHONPATH': f'{ROOT}:{ROOT / "training"}'}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == offline.INTERRUPTED, done.stderr
    assert {path.name for path in (tmp_path / 'out').iterdir()} == FILES
    summary = json.loads((tmp_path / 'out/summary.json').read_text())
    assert (summary['interrupted'], summary['keyframes']) == (True, 4)
    assert 'interrupted: this is the drive so far' in done.stdout
    assert 'The run was interrupted' in (tmp_path / 'out/report.html').read_text()


@pytest.fixture
def interruptible():
    """Shells start what runs in the background with SIGINT ignored, tests too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures('interruptible')
def test_a_second_interrupt_ends_it_at_once(bag, tmp_path, capsys, monkeypatch):
    def twice(self, recorded, step):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    before = children()
    monkeypatch.setattr(offline_run.Gathered, 'take', twice)
    arguments = [str(bag), '--out', str(tmp_path / 'out'), *ARGUMENTS]
    assert offline.main(arguments) == offline.INTERRUPTED
    assert 'interrupted: nothing was written' in capsys.readouterr().err
    assert not (tmp_path / 'out').exists()
    assert children() == before


@pytest.mark.parametrize(
    ('arguments', 'expected'),
    [
        (['nothing'], 'nothing: no such file or folder'),
        (['{bag}', '--points', '/cloud'], "expected /cloud to be one of the PointCloud2 topics"),
        (['{bag}', '--truth', '/truth'], 'expected /truth to be a pose topic or a pose file'),
        (['{bag}', '--weights', 'no.safetensors'], 'no.safetensors: no such file'),
        (['{bag}', '--map', 'no.lpr'], 'no.lpr: cannot be read'),
        (['{bag}', '--set', 'keyframes.metres=1'], "unknown key 'keyframes.metres'"),
        (['{bag}', '--config', 'no.yaml'], 'no.yaml: cannot be read'),
        (['{bag}', '--extrinsic', *'0000000'], 'expected a unit quaternion'),
    ],
)
def test_errors_say_what_was_expected(bag, tmp_path, capsys, monkeypatch, arguments, expected):
    monkeypatch.chdir(tmp_path)
    filled = [text.format(bag=bag) for text in arguments]
    assert offline.main([*filled, '--out', 'out', '--quiet']) == 1
    assert expected in capsys.readouterr().err
    assert not (tmp_path / 'out').exists()


def test_results_are_not_written_over(out, bag, capsys):
    assert offline.main([str(bag), '--out', str(out), '--quiet']) == 1
    assert 'exists already' in capsys.readouterr().err
